"""Zigzag varints as in records: 32-bit lengths and deltas, 64-bit timestamps.

Pure. Owns their encoding. Must never read past the given end, nor more bytes than the width allows.
"""

from holdfast.errors import CorruptObject

SMALL_MAX = 4096


def _encode(value: int) -> bytes:
    rest = (value << 1) if value >= 0 else ((-value) << 1) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_SMALL = tuple(_encode(value) for value in range(SMALL_MAX))


def encode_varint(value: int) -> bytes:
    """Return the zigzag varint of a value. Small values come from a table."""
    if 0 <= value < SMALL_MAX:
        return _SMALL[value]
    return _encode(value)


def decode_varint(data: bytes, position: int, end: int, bits: int) -> tuple[int, int]:
    """Return the value at a position and the position after it."""
    if position < end and (byte := data[position]) < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw = 0
    shift = 0
    while position < end:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> bits:
                break
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
        if shift >= bits:
            break
    else:
        raise CorruptObject(f"the records end inside a varint, at byte {position} of {end}")
    raise CorruptObject(f"a varint before byte {position} has more than {bits} bits")
