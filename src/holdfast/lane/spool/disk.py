"""A folder on a local disk, with what a spool needs: durable append, read, delete.

Owns the threads that wait for the disk. Must never report as durable what a crash of the machine
could undo. That includes the name of a new file.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

from holdfast.errors import ConfigurationError
from holdfast.lane.entry import Buffer
from holdfast.lane.journal import JournalFailed

T = TypeVar("T")
FILE_MODE = 0o640
VECTORS_MAX = 1_000
"""How many buffers one writev takes; the limit of Linux is 1,024."""
THREADS = 4
"""How many lanes can wait for the disk at once; each lane has one write under way."""


class DiskFailed(JournalFailed):
    """The disk is full or does not work. Earlier writes are still there."""


class Disk(Protocol):
    """The operations of a disk. Each returns when its effect is durable, except for `delete`."""

    async def append(self, name: str, buffers: Sequence[Buffer]) -> None:
        """Append to a file, which is created if it is missing.

        Raises DiskFailed, and then the file may end with a part of the buffers.
        """
        ...

    async def read(self, name: str) -> bytes: ...

    async def names(self) -> list[str]: ...

    async def delete(self, names: Sequence[str]) -> None:
        """Delete files without a sync: a file that reappears after a crash is deleted again."""
        ...

    async def close(self) -> None: ...


class LocalDisk:
    """A folder of the local file system, and the threads that wait for it."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._open: dict[str, int] = {}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _sync_folder(self._folder.parent)
            self._folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigurationError(
                f"the spool directory {folder!r} cannot be used ({error.strerror}): name a"
                " directory that this user may create and write"
            ) from error
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast-spool")

    async def append(self, name: str, buffers: Sequence[Buffer]) -> None:
        await self._call(lambda: self._append(name, buffers))

    async def read(self, name: str) -> bytes:
        return await self._call((self._folder / name).read_bytes)

    async def names(self) -> list[str]:
        return await self._call(lambda: sorted(path.name for path in self._folder.iterdir()))

    async def delete(self, names: Sequence[str]) -> None:
        await self._call(lambda: self._delete(names))

    async def close(self) -> None:
        """Close the files and stop the threads; no call may be under way."""
        await self._call(self._close)
        self._threads.shutdown(wait=False)

    def _append(self, name: str, buffers: Sequence[Buffer]) -> None:
        fd = self._open.get(name)
        if fd is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            fd = self._open[name] = os.open(name, flags, FILE_MODE, dir_fd=self._folder_fd)
            os.fsync(self._folder_fd)
        left = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        while left:
            written = os.writev(fd, left[:VECTORS_MAX])
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if written:
                left[0] = left[0][written:]
        os.fdatasync(fd)

    def _delete(self, names: Sequence[str]) -> None:
        for name in names:
            fd = self._open.pop(name, None)
            if fd is not None:
                os.close(fd)
            (self._folder / name).unlink(missing_ok=True)

    def _close(self) -> None:
        for fd in (*self._open.values(), self._folder_fd):
            os.close(fd)
        self._open.clear()

    async def _call(self, call: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except OSError as error:
            raise DiskFailed(
                f"the spool directory {str(self._folder)!r} failed: {error}"
            ) from error


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
