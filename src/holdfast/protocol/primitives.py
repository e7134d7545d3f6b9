"""Functions that generated codecs call: varints, UUIDs, tagged fields, refusals.

Pure. Owns the bounds that keep a hostile message from costing more than its own bytes. Must never
allocate memory for a length that has not been compared with the bytes that are left.
"""

import struct
from typing import NoReturn
from uuid import UUID, SafeUUID

from holdfast.errors import CallError

Buffer = bytes | bytearray | memoryview

ELEMENTS_MAX = 1_000_000
"""The most array elements in one message, over all of its arrays. An element of three bytes on the
wire can take a hundred bytes of memory, so a bound on the frame's size is not enough. Four numbers
or UUIDs count as one element."""
VARINT_BYTES_MAX = 5
ZERO_UUID = UUID(int=0)


class MalformedMessage(CallError):
    """Bytes that are not the message they claim to be."""


class UnencodableMessage(CallError):
    """A value that its field cannot carry in this version: our mistake, not the peer's."""


class FieldProblem(Exception):
    """A problem with one field; the generated codec adds the message and the position."""


DECODE_PROBLEMS = (FieldProblem, IndexError, struct.error, UnicodeError)
"""Every exception that malformed bytes can raise in a generated decoder."""
ENCODE_PROBLEMS = (*DECODE_PROBLEMS, AttributeError, TypeError, OverflowError)
"""Every exception that a value of the wrong type or size can raise in a generated encoder."""


def more_varint(source: memoryview, position: int, first: int) -> tuple[int, int]:
    """Finish an unsigned varint whose first byte, already read, had its high bit set."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = source[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise FieldProblem(f"a varint has more than {VARINT_BYTES_MAX} bytes")


def read_varint(source: memoryview, position: int) -> tuple[int, int]:
    first = source[position]
    if first < 0x80:
        return first, position + 1
    return more_varint(source, position + 1, first)


def write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def skip_tagged_fields(source: memoryview, position: int, count: int, end: int) -> int:
    """Skip `count` tagged fields that this version does not know; return the position after them.

    `count` is the first byte of the varint; if the varint is longer, the rest is read here.
    """
    if count > 0x7F:
        count, position = more_varint(source, position, count)
    for _ in range(count):
        _, position = read_varint(source, position)
        size, position = read_varint(source, position)
        position += size
        if position > end:
            raise FieldProblem(f"a tagged field of {size} bytes reaches past the end")
    return position


def refuse_short(field: str, wanted: int, left: int) -> NoReturn:
    raise FieldProblem(f"{field} declares {wanted} bytes where {left} are left")


def refuse_count(field: str, count: int, left: int) -> NoReturn:
    raise FieldProblem(f"{field} declares {count} elements where {left} bytes are left")


def refuse_null(field: str) -> NoReturn:
    raise FieldProblem(f"{field} is null, which this version does not allow")


def refuse_total() -> NoReturn:
    raise FieldProblem(f"more than {ELEMENTS_MAX} array elements in one message")


def refuse_tag_size(field: str, size: int) -> NoReturn:
    raise FieldProblem(f"the tagged field {field} does not fill the {size} bytes that it declares")


_set_int = UUID.__dict__["int"].__set__
_set_is_safe = UUID.__dict__["is_safe"].__set__


def uuid_of(raw: bytes) -> UUID:
    """Build a UUID from sixteen bytes, without the checks for other forms that UUID() makes."""
    value = UUID.__new__(UUID)
    _set_int(value, int.from_bytes(raw, "big"))
    _set_is_safe(value, SafeUUID.unknown)
    return value
