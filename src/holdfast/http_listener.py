"""A small HTTP listener for health and metrics: a few pages, each answered by a function.

Owns the socket and the form of requests and answers. It runs on the caller's own loop, so that an
answer says that the loop turns, and not only that there is a process. Must never keep a connection
open, and never answer 200 on a path that is not served.
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
    """Answers GET and HEAD for the given paths, and 404 for all others."""

    def __init__(self, listen: Address, pages: Mapping[str, Page], *, setting: str) -> None:
        self._listen = listen
        self._pages = pages
        self._setting = setting
        """The option that names the address, for the message where nothing can listen there."""
        self._server: asyncio.Server | None = None

    async def start(self) -> Address:
        """Listen; ConfigurationError where that cannot be."""
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
        """The answer to one request."""
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
    """That this is answered at all says that the loop turns."""
    return json_answer(HTTPStatus.OK, {"live": True})


def metrics_page(
    collector: Collector, count: Callable[[], Awaitable[None]] | None = None
) -> Callable[[], Awaitable[Answer]]:
    """Prometheus's text. Numbers are read on the loop, which owns them; a thread makes the text of
    them, since that of ten thousand partitions takes long. `count` is awaited first, for what takes
    long to count."""

    async def page() -> Answer:
        if count is not None:
            await count()
        registry = CollectorRegistry()
        registry.register(_Collected(list(collector.collect())))
        text = await asyncio.to_thread(generate_latest, registry)
        return HTTPStatus.OK, CONTENT_TYPE_LATEST, text

    return page


class _Collected(Collector):
    """Metrics that were read already."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _parse_request(head: bytes) -> tuple[str, str]:
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
