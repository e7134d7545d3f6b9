"""Requests to frames and frames to responses: sizes, headers, correlation ids.

Pure. Owns the header versions of the client's side. Must never read from or write to a socket.
"""

import struct
from typing import TypeVar

from holdfast.protocol.api import ApiKey
from holdfast.protocol.message import Message
from holdfast.protocol.primitives import (
    DECODE_PROBLEMS,
    Buffer,
    MalformedMessage,
    skip_tagged_fields,
)

R = TypeVar("R", bound=Message)

CORRELATION_IDS = 1 << 31
_HEADER = struct.Struct(">ihhih")
_CORRELATION_ID = struct.Struct(">i")
SIZE_BYTES = 4


def request_frame(
    request: Message, *, version: int, correlation_id: int, client_id: str
) -> list[Buffer]:
    """The buffers of one request, its size first."""
    body = request.encode(version)
    name = client_id.encode()
    tail = b"\x00" if request.is_flexible(version) else b""
    size = _HEADER.size - SIZE_BYTES + len(name) + len(tail) + sum(map(len, body))
    header = _HEADER.pack(size, request.API_KEY, version, correlation_id, len(name))
    return [header + name + tail, *body]


def correlation_id_of(frame: Buffer) -> int:
    """Which request a response frame (without its size) answers."""
    if len(frame) < _CORRELATION_ID.size:
        raise MalformedMessage(f"a response of {len(frame)} bytes has no correlation id")
    return _CORRELATION_ID.unpack_from(frame)[0]


def decode_response(frame: Buffer, answer: type[R], version: int) -> R:
    """The message in a response frame.

    The response to ApiVersions has the oldest header in every version: a client that asked in too
    new a version must be able to read the answer.
    """
    position = _CORRELATION_ID.size
    if answer.is_flexible(version) and answer.API_KEY != ApiKey.API_VERSIONS:
        view = memoryview(frame)
        try:
            position = skip_tagged_fields(view, position + 1, view[position], len(view))
        except DECODE_PROBLEMS as problem:
            raise MalformedMessage(f"the header of {answer.__name__}: {problem}") from None
    return answer.decode(frame, version, position)
