"""Lines from a file, a pipe or a terminal, as they come, for a command that must not block.

Owns one thread that reads, at most two blocks ahead. It reads the file descriptor directly: a
thread that is blocked in a buffered reader would hold the reader's lock when the process ends.
"""

import asyncio
import os
import threading

BLOCK_BYTES = 256 * 1024
BLOCKS_AHEAD = 2
LINE_BYTES_MAX = 256 * 1024 * 1024


class LineInput:
    """The lines of a file descriptor, for one task. A signal handler may call `end`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._blocks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._room = threading.Semaphore(BLOCKS_AHEAD)
        self._rest = b""
        self._has_ended = False
        threading.Thread(target=self._read, daemon=True, name="holdfast-input").start()

    def end(self) -> None:
        """Stop reading: `lines` returns None, and an incomplete line is dropped."""
        self._rest, self._has_ended = b"", True
        self._blocks.put_nowait(b"")

    async def lines(self) -> list[bytes] | None:
        """Wait for complete lines and return them, at least one. None at the end of the input."""
        while not self._has_ended:
            block = await self._blocks.get()
            self._room.release()
            if isinstance(block, OSError):
                raise block
            if self._has_ended:
                return None
            if not block:
                self._has_ended = True
                return [_without_return(self._rest)] if self._rest else None
            whole, found, self._rest = (self._rest + block).rpartition(b"\n")
            if found:
                return [_without_return(line) for line in whole.split(b"\n")]
            if len(self._rest) > LINE_BYTES_MAX:
                raise OSError(f"a line of more than {LINE_BYTES_MAX} bytes")
        return None

    def _read(self) -> None:
        block: bytes | OSError = b" "
        while block and not isinstance(block, OSError):
            self._room.acquire()
            try:
                block = os.read(self._descriptor, BLOCK_BYTES)
            except OSError as error:
                block = error
            if self._loop.is_closed():
                return
            self._loop.call_soon_threadsafe(self._blocks.put_nowait, block)


def _without_return(line: bytes) -> bytes:
    return line.removesuffix(b"\r")
