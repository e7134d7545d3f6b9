"""A small HTTP listener for health and metrics: a few pages, each answered by a function.

Owns the socket and the form of requests and responses. It runs on the caller's event loop, so that
a response shows that the loop runs, and not only that there is a process. Must never keep a
connection open, and never answer 200 on a path that is not served.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from holdfast.client.address import Address
from holdfast.errors import ConfigurationError

HEAD_BYTES_MAX = 16 * 1024
HEAD_SECONDS_MAX = 10.0
JSON = "application/json"

Answer = tuple[HTTPStatus, str, bytes]
Page = Callable[[], Answer | Awaitable[Answer]]


class HttpListener:
    """A listener that answers GET and HEAD on the given paths, and 404 on all others."""

    def __init__(self, listen: Address, pages: Mapping[str, Page], *, setting: str) -> None:
        self._listen = listen
        self._pages = pages
        self._setting = setting
        """The option that names the address, for the error if it cannot be used."""
        self._server: asyncio.Server | None = None

    async def start(self) -> Address:
        """Listen. Raise ConfigurationError if the address cannot be used."""
        try:
            self._server = await asyncio.start_server(
                self._serve, self._listen.host, self._listen.port, limit=HEAD_BYTES_MAX
            )
        except OSError as error:
            reason = error.strerror or error
            raise ConfigurationError(
                f"{self._setting}: nothing can listen on {self._listen} ({reason}): choose another"
                " port, or 0 for any"
            ) from error
        return Address(self._listen.host, self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def answer(self, method: str, path: str) -> Answer:
        """Return the answer to one request."""
        if method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"only GET\n"
        page = self._pages.get(path.partition("?")[0])
        if page is None:
            listed = f"there are {', '.join(self._pages)}\n"
            return HTTPStatus.NOT_FOUND, "text/plain", listed.encode()
        answer = page()
        return await answer if isinstance(answer, Awaitable) else answer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_SECONDS_MAX):
                method, path = _parse_request(await reader.readuntil(b"\r\n\r\n"))
                answer = await self.answer(method, path)
                writer.write(_response(answer, with_body=method != "HEAD"))
                await writer.drain()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            pass  # the client is gone, or does not speak HTTP
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def json_answer(status: HTTPStatus, value: object) -> Answer:
    return status, JSON, msgspec.json.encode(value) + b"\n"


def live_page() -> Answer:
    """Return 200. Any answer at all shows that the event loop runs."""
    return json_answer(HTTPStatus.OK, {"live": True})


def metrics_page(
    collector: Collector, count: Callable[[], Awaitable[None]] | None = None
) -> Callable[[], Awaitable[Answer]]:
    """Return a page of metrics in Prometheus's text format. The event loop reads the numbers, since
    it owns them. A thread formats them, since that takes long for ten thousand partitions. `count`
    is awaited first, for numbers that take long to count."""

    async def page() -> Answer:
        if count is not None:
            await count()
        registry = CollectorRegistry()
        registry.register(_Collected(list(collector.collect())))
        text = await asyncio.to_thread(generate_latest, registry)
        return HTTPStatus.OK, CONTENT_TYPE_LATEST, text

    return page


class _Collected(Collector):
    """A collector of metrics that were read already."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _parse_request(head: bytes) -> tuple[str, str]:
    """Return method and path of a request; empty texts if it has none."""
    words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    return (words[0], words[1]) if len(words) == 3 else ("", "")


def _response(answer: Answer, *, with_body: bool) -> bytes:
    status, kind, body = answer
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
