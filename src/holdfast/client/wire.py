"""Frames of requests and responses: sizes, headers, correlation ids.

Pure. Owns the client's side of a frame. Must never read from or write to a socket.
"""

from typing import TypeVar

from holdfast.protocol.headers import (
    CORRELATION,
    decode_response_header,
    encode_request_header,
)
from holdfast.protocol.message import Message
from holdfast.protocol.primitives import Buffer, MalformedMessage

R = TypeVar("R", bound=Message)

CORRELATION_IDS = 1 << 31
SIZE_BYTES = 4


def request_frame(
    request: Message, *, version: int, correlation_id: int, client_id: str
) -> list[Buffer]:
    """Return the buffers of one request, its size first."""
    body = request.encode(version)
    header = encode_request_header(
        request.API_KEY, version, correlation_id, client_id, flexible=request.is_flexible(version)
    )
    size = len(header) + sum(map(len, body))
    return [size.to_bytes(SIZE_BYTES, "big") + header, *body]


def correlation_id_of(frame: Buffer) -> int:
    """Return the correlation id in a response frame (without its size)."""
    if len(frame) < CORRELATION.size:
        raise MalformedMessage(f"a response of {len(frame)} bytes has no correlation id")
    return CORRELATION.unpack_from(frame)[0]


def decode_response(frame: Buffer, answer: type[R], version: int) -> R:
    """Return the message in a response frame."""
    flexible = answer.is_flexible(version)
    _, position = decode_response_header(memoryview(frame), answer.API_KEY, flexible=flexible)
    return answer.decode(frame, version, position)
