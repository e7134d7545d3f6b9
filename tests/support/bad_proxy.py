"""An HTTP proxy that loses what it is told to lose: requests before, answers after the server.

It forwards bytes unchanged, so that signatures stay valid, one upstream connection per request.
"""

import asyncio
import enum
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable

HEAD_BYTES_MAX = 1 << 16
ACT_SECONDS_MAX = 60


class Mishap(enum.Enum):
    """What happens to one request."""

    NONE = "none"
    LOSE_REQUEST = "the connection ends before the server sees the request"
    LOSE_ANSWER = "the server acts; the connection ends before its answer"
    ERROR_AFTER = "the server acts; the answer is 500"
    CONFLICT = "409, and the server never sees the request"
    BUSY = "503, and the server never sees the request"
    STALL = "the server acts; no answer ever comes"
    CUT_ANSWER = "half of the answer, then the connection ends"


ANSWERS = {
    Mishap.ERROR_AFTER: b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
    Mishap.CONFLICT: b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n",
    Mishap.BUSY: b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n",
}
NOT_FORWARDED = (Mishap.LOSE_REQUEST, Mishap.CONFLICT, Mishap.BUSY)


class BadProxy:
    """Listens on a port of its own; `plan` names the mishaps of the next requests, per method."""

    def __init__(self, upstream_port: int) -> None:
        self.plan: defaultdict[str, deque[Mishap]] = defaultdict(deque)
        self.happened: Counter[tuple[str, Mishap]] = Counter()
        self._upstream_port = upstream_port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._acted: defaultdict[Mishap, asyncio.Event] = defaultdict(asyncio.Event)

    @property
    def endpoint(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> "BadProxy":
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, limit=HEAD_BYTES_MAX
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def server_has_acted(self, mishap: Mishap) -> None:
        """Wait until the server has answered a request with this mishap, whoever hears of it."""
        async with asyncio.timeout(ACT_SECONDS_MAX):
            await self._acted[mishap].wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await _message(reader, _request_has_body)
        method = request.split(b" ", 1)[0].decode()
        planned = self.plan[method]
        mishap = planned.popleft() if planned else Mishap.NONE
        self.happened[method, mishap] += 1
        answer = b""
        if mishap not in NOT_FORWARDED:
            answer = await self._forward(request, method)
            self._acted[mishap].set()
        match mishap:
            case Mishap.LOSE_REQUEST | Mishap.LOSE_ANSWER:
                return False
            case Mishap.STALL:
                await reader.read(1)
                return False
            case Mishap.CUT_ANSWER:
                writer.write(answer[: len(answer) - 5])
                await writer.drain()
                writer.close()
                return False
            case _:
                writer.write(ANSWERS.get(mishap, answer))
                await writer.drain()
                return True

    async def _forward(self, request: bytes, method: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        try:
            writer.write(request)
            await writer.drain()
            return await _message(reader, lambda head: method != "HEAD" and b" 204" not in head)
        finally:
            writer.close()


def _request_has_body(head: bytes) -> bool:
    return b"\r\ncontent-length:" in head.lower()


async def _message(reader: asyncio.StreamReader, has_body: Callable[[bytes], bool]) -> bytes:
    """One whole request or answer; its body has a length or comes in chunks."""
    head = await reader.readuntil(b"\r\n\r\n")
    if not has_body(head):
        return head
    fields = head.lower()
    if b"transfer-encoding: chunked" in fields:
        return head + await _chunks(reader.readuntil, reader.readexactly)
    _, found, rest = fields.partition(b"\r\ncontent-length:")
    length = int(rest.split(b"\r\n", 1)[0]) if found else 0
    return head + await reader.readexactly(length)


async def _chunks(
    readuntil: Callable[[bytes], Awaitable[bytes]], readexactly: Callable[[int], Awaitable[bytes]]
) -> bytes:
    whole = b""
    while True:
        line = await readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        whole += line + await readexactly(size + 2)
        if size == 0:
            return whole
