"""One connection to one broker: agreed API versions, requests matched with their responses.

Owns the socket, the correlation ids and the request timeouts. A request that times out closes the
connection, because Kafka answers in order and all later responses would wait behind it. Must never
retry, and never hide that a request may have reached the broker.
"""

import asyncio
import contextlib
import ssl
from typing import Final, TypeVar

from holdfast import __version__
from holdfast.client.address import Address
from holdfast.client.refusals import (
    BrokerUnavailable,
    NobodyListens,
    UnsupportedByBroker,
    raise_for,
)
from holdfast.client.wire import (
    CORRELATION_IDS,
    SIZE_BYTES,
    correlation_id_of,
    decode_response,
    request_frame,
)
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.message import Message
from holdfast.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from holdfast.protocol.primitives import MalformedMessage

R = TypeVar("R", bound=Message)

RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
READ_BUFFER_BYTES: Final = 1024 * 1024
SOFTWARE_NAME: Final = "holdfast"


class BrokerConnection:
    """A connection, made by `open`. Many tasks may use it at once until it closes."""

    def __init__(
        self,
        address: Address,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        client_id: str,
        timeout_ms: int,
    ) -> None:
        self.address = address
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._versions: dict[int, range] = {}
        self._next_id = 0
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._closed_by: str | None = None
        self._receiver = asyncio.get_running_loop().create_task(self._receive())

    @classmethod
    async def open(
        cls,
        address: Address,
        *,
        client_id: str = SOFTWARE_NAME,
        timeout_ms: int = 30_000,
        tls: ssl.SSLContext | None = None,
    ) -> "BrokerConnection":
        """Connect and agree on API versions; BrokerUnavailable if no broker answers."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                reader, writer = await asyncio.open_connection(
                    address.host, address.port, ssl=tls, limit=READ_BUFFER_BYTES
                )
        except TimeoutError:
            raise BrokerUnavailable(
                f"{address} did not accept a connection within {timeout_ms} ms; "
                "is the address right, and may this machine reach it?"
            ) from None
        except OSError as error:
            gone = isinstance(error, ConnectionRefusedError)
            raise (NobodyListens if gone else BrokerUnavailable)(
                f"{address} cannot be connected to ({error.strerror or error}); "
                "is a broker running there, and is the address right?"
            ) from None
        connection = cls(address, reader, writer, client_id=client_id, timeout_ms=timeout_ms)
        try:
            await connection._negotiate()
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._closed_by is None

    def version_for(self, message: type[Message]) -> int:
        """Return the newest version of this API that both sides know."""
        theirs = self._versions.get(message.API_KEY, range(0))
        ours = message.VERSIONS
        newest = min(theirs.stop, ours.stop) - 1
        if newest < max(theirs.start, ours.start):
            offered = f"{theirs.start} to {theirs.stop - 1}" if theirs else "no version"
            raise UnsupportedByBroker(
                f"{self.address} serves {offered} of {ApiKey(message.API_KEY).name}; "
                f"this client knows {ours.start} to {ours.stop - 1}"
            )
        return newest

    async def request(
        self,
        request: Message,
        answer: type[R],
        *,
        version: int | None = None,
        timeout_ms: int | None = None,
    ) -> R:
        """Send one request and wait for its response."""
        if version is None:
            version = self.version_for(type(request))
        frame = await self._exchange(request, version, timeout_ms or self._timeout_ms)
        return self._decode(frame, answer, version)

    async def close(self) -> None:
        """Close the connection; requests in flight end with BrokerUnavailable."""
        self._fail("this client closed the connection")
        self._receiver.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._receiver
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _negotiate(self) -> None:
        version = ApiVersionsRequest.VERSIONS[-1]
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=__version__
        )
        frame = await self._exchange(request, version, self._timeout_ms)
        refused = int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION
        response = self._decode(frame, ApiVersionsResponse, 0 if refused else version)
        self._remember(response)
        if refused:
            version = self.version_for(ApiVersionsRequest) if response.api_keys else 0
            response = await self.request(request, ApiVersionsResponse, version=version)
            self._remember(response)
        raise_for(response.error_code, f"ApiVersions from {self.address}")

    def _remember(self, response: ApiVersionsResponse) -> None:
        self._versions = {
            row.api_key: range(row.min_version, row.max_version + 1) for row in response.api_keys
        }

    async def _exchange(self, request: Message, version: int, timeout_ms: int) -> bytes:
        if self._closed_by is not None:
            raise BrokerUnavailable(f"{self.address}: the connection is closed: {self._closed_by}")
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) % CORRELATION_IDS
        buffers = request_frame(
            request, version=version, correlation_id=correlation_id, client_id=self._client_id
        )
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = answered
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                self._writer.writelines(buffers)
                await self._writer.drain()
                return await answered
        except TimeoutError:
            name = type(request).__name__
            self._fail(f"{name} was not answered within {timeout_ms} ms")
            raise BrokerUnavailable(
                f"{self.address} did not answer {name} v{version} within {timeout_ms} ms; "
                "it is stopped, overloaded or cut off"
            ) from None
        except OSError as error:
            self._fail(f"sending failed: {error}")
            raise BrokerUnavailable(f"{self.address}: sending failed: {error}") from None
        finally:
            # A cancelled request keeps its id registered, because its response still arrives.
            if answered.done() and not answered.cancelled():
                self._waiting.pop(correlation_id, None)

    def _decode(self, frame: bytes, answer: type[R], version: int) -> R:
        try:
            return decode_response(frame, answer, version)
        except MalformedMessage as error:
            self._fail(f"a response that cannot be read: {error}")
            raise BrokerUnavailable(
                f"{self.address} sent a response that cannot be read: {error}; "
                "is this the port of a Kafka broker?"
            ) from error

    async def _receive(self) -> None:
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(SIZE_BYTES), "big")
                if not SIZE_BYTES <= size <= RESPONSE_BYTES_MAX:
                    self._fail(
                        f"a response of {size} bytes, of at most {RESPONSE_BYTES_MAX}; "
                        "is this the port of a Kafka broker, without TLS?"
                    )
                    return
                frame = await self._reader.readexactly(size)
                answered = self._waiting.pop(correlation_id_of(frame), None)
                if answered is None:
                    self._fail(f"an answer to request {correlation_id_of(frame)}, never asked")
                    return
                if not answered.done():
                    answered.set_result(frame)
        except asyncio.IncompleteReadError as error:
            where = "inside a response" if error.partial else "without an answer"
            self._fail(f"the broker closed it {where}")
        except OSError as error:
            self._fail(f"receiving failed: {error}")

    def _fail(self, reason: str) -> None:
        """Close now, and fail every request in flight with the reason."""
        if self._closed_by is not None:
            return
        self._closed_by = reason
        waiting, self._waiting = self._waiting, {}
        for answered in waiting.values():
            if not answered.done():
                answered.set_exception(
                    BrokerUnavailable(f"{self.address}: the connection closed: {reason}")
                )
                # A cancelled caller never reads the exception; asyncio must not report it as lost.
                _ = answered.exception()
        self._writer.close()
