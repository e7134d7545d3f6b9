"""One connection without its socket: frames in, requests out, replies in the requests' order.

Pure. Owns which requests are admitted, and the order of replies, however late each completes. Must
never decode a body (the handler does), nor wait for anything.
"""

import enum
from collections import deque
from collections.abc import Mapping, Sequence, Set
from typing import Final, NamedTuple

from holdfast.errors import ConfigurationError
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.headers import (
    CORRELATION,
    SIZE_AND_CORRELATION,
    decode_client_id,
    decode_request_prefix,
)
from holdfast.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from holdfast.protocol.primitives import Buffer, MalformedMessage
from holdfast.protocol.schemas import SCHEMAS


class Close(enum.Enum):
    """The reply that ends the connection, once the replies before it are sent."""

    CLOSE = "close"


class _Pending(enum.Enum):
    PENDING = "pending"


CLOSE: Final = Close.CLOSE
PENDING: Final = _Pending.PENDING

Reply = Sequence[Buffer] | None | Close
"""An encoded response without its header; None if the request wants no response (acks=0)."""


class ProtocolViolation(NamedTuple):
    """The reason why a connection has to be closed."""

    reason: str


class Request:
    """A request whose body is not decoded yet; a plain class, since each frame makes one."""

    __slots__ = (
        "api_key",
        "body",
        "client_id",
        "correlation_id",
        "flexible",
        "frame_bytes",
        "reply",
        "version",
    )

    def __init__(
        self,
        api_key: ApiKey,
        version: int,
        correlation_id: int,
        client_id: str | None,
        body: memoryview,
        frame_bytes: int,
        flexible: bool,
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        """The encoded message, for its class's `decode`. The view keeps the frame alive."""
        self.frame_bytes = frame_bytes
        self.flexible = flexible
        """True if this version has compact lengths and tagged fields."""
        self.reply: Reply | _Pending = PENDING

    def __repr__(self) -> str:
        return (
            f"Request({self.api_key.name} v{self.version}, correlation_id={self.correlation_id}, "
            f"client_id={self.client_id!r}, {len(self.body)} bytes)"
        )


class _Served(NamedTuple):
    api_key: ApiKey
    first: int
    last: int
    flexible_since: int


class ServedApis:
    """The versions that a broker serves, checked once against those that the codec knows."""

    def __init__(
        self, versions: Mapping[ApiKey, range], *, unlisted: Set[ApiKey] = frozenset()
    ) -> None:
        self._unlisted = unlisted
        self._served: dict[int, _Served] = {}
        for api_key, served in versions.items():
            schema = SCHEMAS.get(api_key)
            if schema is None or not served:
                raise ConfigurationError(
                    f"{api_key.name} cannot be served: no version of it is known"
                )
            known = schema[0].VERSIONS
            if served[0] not in known or served[-1] not in known:
                raise ConfigurationError(
                    f"{api_key.name} {served[0]} to {served[-1]} cannot be served: "
                    f"{known[0]} to {known[-1]} are known"
                )
            self._served[api_key] = _Served(
                api_key, served[0], served[-1], schema[0].FLEXIBLE_SINCE
            )
        self.unsupported_version = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=self.entries()
        ).encode(0)
        """The response to an ApiVersions request of a version that is too new, in version 0, which
        all clients can read."""

    def entries(self) -> list[ApiVersion]:
        """Return the list for an ApiVersions response, without the unlisted APIs."""
        return [
            ApiVersion(api_key=row.api_key, min_version=row.first, max_version=row.last)
            for _, row in sorted(self._served.items())
            if row.api_key not in self._unlisted
        ]

    def find(self, api_key: int) -> _Served | None:
        return self._served.get(api_key)


class ConnectionState:
    """The unanswered requests of one peer, and the bytes that are to be sent to it."""

    __slots__ = (
        "_outgoing",
        "_served",
        "_unanswered",
        "is_closing",
        "outgoing_bytes",
        "waiting_bytes",
    )

    def __init__(self, served: ServedApis) -> None:
        self.is_closing = False
        """True when it is a CLOSE reply's turn: send what is outgoing, then close."""
        self.outgoing_bytes = 0
        self.waiting_bytes = 0
        """Bytes of replies that wait for an earlier one."""
        self._served = served
        self._unanswered: deque[Request] = deque()
        self._outgoing: list[Buffer] = []

    @property
    def unanswered(self) -> int:
        return len(self._unanswered)

    def accept(self, frame: Buffer) -> Request | ProtocolViolation | None:
        """Return the request in a frame, None if it is answered already, or a Violation."""
        try:
            return self._accept(memoryview(frame))
        except MalformedMessage as problem:
            return ProtocolViolation(str(problem))

    def _accept(self, frame: memoryview) -> Request | ProtocolViolation | None:
        api_key, version, correlation_id = decode_request_prefix(frame)
        served = self._served.find(api_key)
        if served is None:
            return ProtocolViolation(f"api key {api_key}, version {version}, is not served")
        if not served.first <= version <= served.last:
            if api_key != ApiKey.API_VERSIONS:
                return ProtocolViolation(
                    f"{served.api_key.name} version {version} is not served, "
                    f"{served.first} to {served.last} are"
                )
            nothing = frame[len(frame) :]
            request = Request(
                served.api_key, 0, correlation_id, None, nothing, len(frame), flexible=False
            )
            self._unanswered.append(request)
            self.complete(request, self._served.unsupported_version)
            return None
        flexible = version >= served.flexible_since
        client_id, position = decode_client_id(frame, flexible=flexible)
        request = Request(
            served.api_key,
            version,
            correlation_id,
            client_id,
            frame[position:],
            len(frame),
            flexible,
        )
        self._unanswered.append(request)
        return request

    def complete(self, request: Request, reply: Reply) -> None:
        """Record the reply, which becomes outgoing when all earlier requests are answered."""
        request.reply = reply
        unanswered = self._unanswered
        if unanswered and unanswered[0] is not request:
            self.waiting_bytes += _body_bytes(reply)
            return
        while unanswered:
            head = unanswered[0]
            answer = head.reply
            if answer is PENDING or self.is_closing:
                return
            unanswered.popleft()
            if head is not request:
                self.waiting_bytes -= _body_bytes(answer)
            if answer is CLOSE:
                self.is_closing = True
            elif answer is not None:
                self._send(head, answer)

    def _send(self, request: Request, body: Sequence[Buffer]) -> None:
        tagged = request.flexible and request.api_key is not ApiKey.API_VERSIONS
        size = CORRELATION.size + tagged
        for piece in body:
            size += len(piece)
        header = SIZE_AND_CORRELATION.pack(size, request.correlation_id)
        self._outgoing.append(header + b"\0" if tagged else header)
        self._outgoing += body
        self.outgoing_bytes += size

    def take_outgoing(self) -> list[Buffer]:
        """Return the bytes that are to be sent, in order; they then belong to the caller."""
        outgoing = self._outgoing
        self._outgoing = []
        self.outgoing_bytes = 0
        return outgoing


def _body_bytes(reply: Reply | _Pending) -> int:
    return sum(map(len, reply)) if isinstance(reply, Sequence) else 0
