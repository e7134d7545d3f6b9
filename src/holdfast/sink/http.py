"""The health and metrics of a sink over HTTP: /metrics, /health and /live.

Owns the listener and three answers. It runs on the sink's own loop, so that /live says that the
loop turns, and not only that there is a process. Must never ask the worker: it has the last status.
"""

import asyncio
import contextlib
from http import HTTPStatus

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from holdfast.client.address import Address, parse_listen
from holdfast.errors import ConfigurationError
from holdfast.sink.metrics import SinkCollector
from holdfast.sink.status import SinkStatus

HEAD_BYTES_MAX = 16 * 1024
HEAD_SECONDS_MAX = 10.0
JSON = "application/json"
PATHS = ("/metrics", "/health", "/live")

Answer = tuple[HTTPStatus, str, bytes]


class HealthServer:
    """Serves what `report` was told last."""

    def __init__(self, listen: str, *, memory_bytes: int) -> None:
        self._listen = parse_listen(listen)
        self._status: SinkStatus | None = None
        self._registry = CollectorRegistry()
        self._registry.register(SinkCollector(lambda: self._status, memory_bytes=memory_bytes))
        self._server: asyncio.Server | None = None

    def report(self, status: SinkStatus) -> None:
        self._status = status

    async def start(self) -> Address:
        """Listen; ConfigurationError where that cannot be."""
        try:
            self._server = await asyncio.start_server(
                self._serve, self._listen.host, self._listen.port, limit=HEAD_BYTES_MAX
            )
        except OSError as error:
            raise ConfigurationError(
                f"[http] listen: nothing can listen on {self._listen} ({error.strerror or error}):"
                " choose another port, or 0 for any"
            ) from error
        return Address(self._listen.host, self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                method, path = _asked(head)
                writer.write(_response(self.answer(method, path), with_body=method != "HEAD"))
                await writer.drain()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            pass  # whoever asked is gone, or speaks no HTTP
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def answer(self, method: str, path: str) -> Answer:
        """What is said to one request."""
        if method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"only GET\n"
        match path.partition("?")[0]:
            case "/metrics":
                return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(self._registry)
            case "/health":
                status = self._status
                is_well = status is not None and status.is_healthy
                code = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
                return code, JSON, msgspec.json.encode(health_of(status)) + b"\n"
            case "/live":
                return HTTPStatus.OK, JSON, b'{"live":true}\n'
            case _:
                said = f"there are {', '.join(PATHS)}\n"
                return HTTPStatus.NOT_FOUND, "text/plain", said.encode()


def health_of(status: SinkStatus | None) -> dict[str, object]:
    """The answer to /health, before it is JSON."""
    if status is None:
        return {"healthy": False, "state": "starting", "problems": ["it has not begun yet"]}
    return {
        "healthy": status.is_healthy,
        "state": status.state,
        "problems": status.problems,
        "store_problem_seconds": status.store_problem_seconds,
        "member_id": status.member_id,
        "member_epoch": status.epoch,
        "partitions": len(status.partitions),
        "lag": status.lag,
        "held_bytes": status.held_bytes,
        "fetch_paused": status.fetch_paused,
        "last_landed": status.last_landed,
    }


def _asked(head: bytes) -> tuple[str, str]:
    """Method and path of a request; empty ones where it has none."""
    words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    return (words[0], words[1]) if len(words) == 3 else ("", "")


def _response(answer: Answer, *, with_body: bool) -> bytes:
    status, kind, body = answer
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
