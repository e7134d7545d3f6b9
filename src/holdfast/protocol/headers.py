"""The headers of requests and responses.

Pure. Owns the header versions. A flexible request has header 2, any other request header 1. A
flexible response has header 1, any other response header 0. ApiVersions responses always have
header 0, because the client does not know the broker's versions yet.
"""

from struct import Struct

from holdfast.protocol.api import ApiKey
from holdfast.protocol.primitives import (
    DECODE_PROBLEMS,
    Buffer,
    FieldProblem,
    MalformedMessage,
    skip_tagged_fields,
)

FIXED = Struct(">hhi")
LENGTH = Struct(">h")
SIZE_AND_CORRELATION = Struct(">ii")
CORRELATION = Struct(">i")


def decode_request_prefix(frame: Buffer) -> tuple[int, int, int]:
    """Return the API key, version and correlation id, which all header versions have.

    Raises MalformedMessage if the frame is shorter.
    """
    if len(frame) < FIXED.size:
        raise MalformedMessage(f"a request of {len(frame)} bytes has no room for its header")
    return FIXED.unpack_from(frame)


def decode_client_id(frame: memoryview, *, flexible: bool) -> tuple[str | None, int]:
    """Return the client id and the position of the body. Raises MalformedMessage.

    Bytes of a client id that are not UTF-8 are replaced, as in Kafka.
    """
    position = FIXED.size
    end = len(frame)
    try:
        (length,) = LENGTH.unpack_from(frame, position)
        position += LENGTH.size
        client_id = None
        if length >= 0:
            if position + length > end:
                raise FieldProblem(f"a client id of {length} bytes where {end - position} are left")
            client_id = str(frame[position : position + length], "utf-8", "replace")
            position += length
        elif length != -1:
            raise FieldProblem(f"a client id of {length} bytes")
        if flexible:
            count = frame[position]
            position += 1
            if count:
                position = skip_tagged_fields(frame, position, count, end)
    except DECODE_PROBLEMS as problem:
        raise MalformedMessage(f"request header at byte {position}: {problem}") from problem
    return client_id, position


def encode_request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None, *, flexible: bool
) -> bytes:
    header = FIXED.pack(api_key, version, correlation_id)
    if client_id is None:
        header += LENGTH.pack(-1)
    else:
        raw = client_id.encode()
        header += LENGTH.pack(len(raw)) + raw
    return header + b"\0" if flexible else header


def has_tagged_response_header(api_key: int, *, flexible: bool) -> bool:
    return flexible and api_key != ApiKey.API_VERSIONS


def decode_response_header(frame: memoryview, api_key: int, *, flexible: bool) -> tuple[int, int]:
    """Return the correlation id and the position of the body. Raises MalformedMessage."""
    try:
        (correlation_id,) = CORRELATION.unpack_from(frame)
        position = CORRELATION.size
        if has_tagged_response_header(api_key, flexible=flexible):
            count = frame[position]
            position += 1
            if count:
                position = skip_tagged_fields(frame, position, count, len(frame))
    except DECODE_PROBLEMS as problem:
        raise MalformedMessage(f"response header: {problem}") from problem
    return correlation_id, position
