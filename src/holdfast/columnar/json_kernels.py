"""The compiled walk through JSON texts to one field, by the grammar of RFC 8259.

Pure. Owns the grammar. A position is compared with the end before it is read. A negative position
means "not JSON". Must never recurse or allocate for nested values: nesting is a stack of fixed
size. Bytes from 0x80 on are accepted unchecked inside strings. Loops and comparisons are written
out, because what the linter suggests compiles to slower code, or not at all.
"""
# ruff: noqa: SIM109, SIM110

import numpy as np
from numpy.typing import NDArray

from holdfast.columnar.compiled import (
    Address,
    address_of,
    byte_at,
    copy_bytes,
    kernel,
    put_byte,
    trailing_zeros,
    u64,
    word_at,
)

DEPTH_MAX = 1024
ESCAPE_BYTES_MAX = 6

MISSING, TEXT, ESCAPED = 0, 1, 2
"""Kinds of results: nothing, bytes to take as they are, or a string with escapes."""

INVALID = -1

QUOTE, BACKSLASH, COMMA, COLON, MINUS, PLUS, DOT, SLASH = (
    0x22,
    0x5C,
    0x2C,
    0x3A,
    0x2D,
    0x2B,
    0x2E,
    0x2F,
)
OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY = 0x7B, 0x7D, 0x5B, 0x5D
ZERO, NINE, LETTER_U, LETTER_E = 0x30, 0x39, 0x75, 0x65
EIGHT_ONES = u64(0x0101010101010101)
EIGHT_HIGH_BITS = u64(0x8080808080808080)
EIGHT_SPACES = u64(0x2020202020202020)
EIGHT_QUOTES = u64(0x2222222222222222)
EIGHT_BACKSLASHES = u64(0x5C5C5C5C5C5C5C5C)
SURROGATES, LOW_SURROGATES, AFTER_SURROGATES = 0xD800, 0xDC00, 0xE000


@kernel
def skip_space(data: Address, position: int, end: int) -> int:
    while position < end:
        byte = byte_at(data, position)
        if byte > 0x20 or not (byte == 0x20 or byte == 0x0A or byte == 0x0D or byte == 0x09):
            break
        position += 1
    return position


@kernel
def hex_digit(byte: int) -> int:
    """Return the value of a hex digit, or -1."""
    if ZERO <= byte <= NINE:
        return byte - ZERO
    lower = byte | 0x20
    if 0x61 <= lower <= 0x66:
        return lower - 0x61 + 10
    return -1


@kernel
def read_unit(data: Address, position: int, end: int) -> int:
    """Return the value of the four hex digits of an escape, or -1."""
    if position + 4 > end:
        return INVALID
    unit = 0
    for i in range(4):
        digit = hex_digit(byte_at(data, position + i))
        if digit < 0:
            return INVALID
        unit = unit * 16 + digit
    return unit


@kernel
def escaped_byte(byte: int) -> int:
    """Return the byte that a short escape stands for, or -1."""
    if byte == QUOTE or byte == BACKSLASH or byte == SLASH:
        return byte
    if byte == 0x62:
        return 0x08
    if byte == 0x66:
        return 0x0C
    if byte == 0x6E:
        return 0x0A
    if byte == 0x72:
        return 0x0D
    if byte == 0x74:
        return 0x09
    return INVALID


@kernel
def special_bytes(word: np.uint64) -> np.uint64:
    """Set the high bit of each of eight bytes that is a quote, a backslash or a control character.

    Subtracting n from a byte borrows into its highest bit only if the byte is below n. The
    exclusive or turns the wanted byte into zero, which is below one. The lowest bit that is set is
    certain. A higher one may be set by the borrow of a lower byte.
    """
    quotes = word ^ EIGHT_QUOTES
    backslashes = word ^ EIGHT_BACKSLASHES
    found = (word - EIGHT_SPACES) & ~word
    found |= (quotes - EIGHT_ONES) & ~quotes
    found |= (backslashes - EIGHT_ONES) & ~backslashes
    return found & EIGHT_HIGH_BITS


@kernel
def is_ordinary(word: np.uint64) -> bool:
    """True if none of eight bytes is a quote, a backslash or a control character."""
    return special_bytes(word) == u64(0)


@kernel
def skip_string(data: Address, position: int, end: int) -> tuple[int, bool]:
    """Return the position after a string's closing quote, and if there are escapes."""
    escapes = False
    while position < end:
        if position + 8 <= end:
            found = special_bytes(word_at(data, position))
            if found == u64(0):
                position += 8
                continue
            position += trailing_zeros(found) >> 3
        byte = byte_at(data, position)
        position += 1
        if byte == QUOTE:
            return position, escapes
        if byte < 0x20:
            return INVALID, False
        if byte == BACKSLASH:
            escapes = True
            if position >= end:
                return INVALID, False
            byte = byte_at(data, position)
            position += 1
            if byte == LETTER_U:
                if read_unit(data, position, end) < 0:
                    return INVALID, False
                position += 4
            elif escaped_byte(byte) < 0:
                return INVALID, False
    return INVALID, False


@kernel
def skip_digits(data: Address, position: int, end: int) -> int:
    """Skip one digit or more."""
    start = position
    while position < end and ZERO <= byte_at(data, position) <= NINE:
        position += 1
    return position if position > start else INVALID


@kernel
def skip_number(data: Address, position: int, end: int) -> int:
    if position < end and byte_at(data, position) == MINUS:
        position += 1
    if position < end and byte_at(data, position) == ZERO:
        position += 1
    else:
        position = skip_digits(data, position, end)
    if 0 <= position < end and byte_at(data, position) == DOT:
        position = skip_digits(data, position + 1, end)
    if 0 <= position < end and (byte_at(data, position) | 0x20) == LETTER_E:
        position += 1
        if position < end and (byte_at(data, position) == PLUS or byte_at(data, position) == MINUS):
            position += 1
        position = skip_digits(data, position, end)
    return position


@kernel
def skip_word(data: Address, position: int, end: int, word: bytes) -> int:
    if position + len(word) > end:
        return INVALID
    for i in range(len(word)):
        if byte_at(data, position + i) != word[i]:
            return INVALID
    return position + len(word)


@kernel
def skip_scalar(data: Address, position: int, end: int) -> int:
    byte = byte_at(data, position)
    if byte == QUOTE:
        return skip_string(data, position + 1, end)[0]
    if byte == 0x74:
        return skip_word(data, position, end, b"true")
    if byte == 0x66:
        return skip_word(data, position, end, b"false")
    if byte == 0x6E:
        return skip_word(data, position, end, b"null")
    return skip_number(data, position, end)


@kernel
def skip_key(data: Address, position: int, end: int) -> tuple[int, int, int, bool]:
    """Return the position after a member's colon, and start, end and escapes of its name."""
    position = skip_space(data, position, end)
    if position >= end or byte_at(data, position) != QUOTE:
        return INVALID, 0, 0, False
    start = position + 1
    position, escapes = skip_string(data, start, end)
    if position < 0:
        return INVALID, 0, 0, False
    name_end = position - 1
    position = skip_space(data, position, end)
    if position >= end or byte_at(data, position) != COLON:
        return INVALID, 0, 0, False
    return position + 1, start, name_end, escapes


@kernel
def skip_value(data: Address, position: int, end: int, stack: Address) -> int:
    """Return the position after the value that starts here. Space before it is allowed."""
    depth = 0
    while True:
        position = skip_space(data, position, end)
        if position >= end:
            return INVALID
        byte = byte_at(data, position)
        if byte == OPEN_OBJECT or byte == OPEN_ARRAY:
            if depth == DEPTH_MAX:
                return INVALID
            put_byte(stack, depth, byte)
            position = skip_space(data, position + 1, end)
            # In ASCII the closing bracket or brace is two after the opening one.
            if position < end and byte_at(data, position) == byte + 2:
                position += 1
            else:
                depth += 1
                if byte == OPEN_OBJECT:
                    position = skip_key(data, position, end)[0]
                    if position < 0:
                        return INVALID
                continue
        else:
            position = skip_scalar(data, position, end)
            if position < 0:
                return INVALID
        while depth:
            position = skip_space(data, position, end)
            if position >= end:
                return INVALID
            byte = byte_at(data, position)
            position += 1
            opened = byte_at(stack, depth - 1)
            if byte == COMMA:
                if opened == OPEN_OBJECT:
                    position = skip_key(data, position, end)[0]
                break
            if byte != opened + 2:
                return INVALID
            depth -= 1
        if depth == 0 or position < 0:
            return position


@kernel
def put_character(code: int, out: Address, size: int) -> int:
    """Write UTF-8. A surrogate without its pair takes three bytes, so each stays distinct."""
    if code < 0x80:
        put_byte(out, size, code)
        return size + 1
    if code < 0x800:
        put_byte(out, size, 0xC0 | (code >> 6))
        put_byte(out, size + 1, 0x80 | (code & 0x3F))
        return size + 2
    if code < 0x10000:
        put_byte(out, size, 0xE0 | (code >> 12))
        put_byte(out, size + 1, 0x80 | ((code >> 6) & 0x3F))
        put_byte(out, size + 2, 0x80 | (code & 0x3F))
        return size + 3
    put_byte(out, size, 0xF0 | (code >> 18))
    put_byte(out, size + 1, 0x80 | ((code >> 12) & 0x3F))
    put_byte(out, size + 2, 0x80 | ((code >> 6) & 0x3F))
    put_byte(out, size + 3, 0x80 | (code & 0x3F))
    return size + 4


@kernel
def low_surrogate(data: Address, position: int, end: int) -> int:
    """Return the second half of a surrogate pair, or -1 if there is no escape of one here."""
    if position + 6 > end:
        return INVALID
    if byte_at(data, position) != BACKSLASH or byte_at(data, position + 1) != LETTER_U:
        return INVALID
    unit = read_unit(data, position + 2, end)
    return unit if LOW_SURROGATES <= unit < AFTER_SURROGATES else INVALID


@kernel
def unescape(data: Address, start: int, end: int, out: Address, size: int) -> int:
    """Write the content of a string, which skip_string accepted, to `out` at `size`.

    Returns the new size. No escape is shorter than its result, so `out` needs no more room than the
    string has.
    """
    position = start
    while position < end:
        byte = byte_at(data, position)
        position += 1
        if byte != BACKSLASH:
            put_byte(out, size, byte)
            size += 1
            continue
        byte = byte_at(data, position)
        position += 1
        if byte != LETTER_U:
            put_byte(out, size, escaped_byte(byte))
            size += 1
            continue
        code = read_unit(data, position, end)
        position += 4
        if SURROGATES <= code < LOW_SURROGATES:
            low = low_surrogate(data, position, end)
            if low >= 0:
                code = 0x10000 + ((code - SURROGATES) << 10) + (low - LOW_SURROGATES)
                position += 6
        size = put_character(code, out, size)
    return size


@kernel
def same_bytes(a: Address, a_start: int, b: Address, b_start: int, length: int) -> bool:
    for i in range(length):
        if byte_at(a, a_start + i) != byte_at(b, b_start + i):
            return False
    return True


@kernel
def is_name(
    data: Address,
    start: int,
    end: int,
    escapes: bool,
    names: Address,
    name_start: int,
    length: int,
    scratch: Address,
) -> bool:
    """True if a member's name is the wanted one. `scratch` has six bytes for each byte of it.

    No escape is longer than six bytes, so a name of more than six times its length is another one.
    """
    if not escapes:
        return end - start == length and same_bytes(data, start, names, name_start, length)
    if end - start > ESCAPE_BYTES_MAX * length:
        return False
    size = unescape(data, start, end, scratch, 0)
    return size == length and same_bytes(scratch, 0, names, name_start, length)


@kernel
def read_leaf(data: Address, position: int, end: int, stack: Address) -> tuple[int, int, int]:
    """Return start, length and kind of the value here. A comma or a brace must follow it."""
    position = skip_space(data, position, end)
    after = skip_value(data, position, end, stack)
    if after < 0:
        return 0, 0, MISSING
    follower = skip_space(data, after, end)
    if follower >= end:
        return 0, 0, MISSING
    if byte_at(data, follower) != COMMA and byte_at(data, follower) != CLOSE_OBJECT:
        return 0, 0, MISSING
    first = byte_at(data, position)
    if first == 0x6E:
        return 0, 0, MISSING
    if first != QUOTE:
        return position, after - position, TEXT
    escapes = skip_string(data, position + 1, end)[1]
    return position + 1, after - position - 2, ESCAPED if escapes else TEXT


@kernel
def find(
    data: Address,
    position: int,
    end: int,
    names: Address,
    name_offsets: NDArray[np.int64],
    stack: Address,
    scratch: Address,
) -> tuple[int, int, int]:
    """Return start, length and kind of the first member at the path."""
    level = 0
    position = skip_space(data, position, end)
    while position < end and byte_at(data, position) == OPEN_OBJECT:
        position += 1
        descended = False
        while not descended:
            position, start, name_end, escapes = skip_key(data, position, end)
            if position < 0:
                return 0, 0, MISSING
            wanted = name_offsets[u64(level)]
            length = name_offsets[u64(level + 1)] - wanted
            if is_name(data, start, name_end, escapes, names, wanted, length, scratch):
                level += 1
                if level == len(name_offsets) - 1:
                    return read_leaf(data, position, end, stack)
                position = skip_space(data, position, end)
                descended = True
            else:
                position = skip_value(data, position, end, stack)
                if position < 0:
                    return 0, 0, MISSING
                position = skip_space(data, position, end)
                if position >= end or byte_at(data, position) != COMMA:
                    return 0, 0, MISSING
                position += 1
    return 0, 0, MISSING


@kernel
def locate(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    valid: NDArray[np.bool_],
    names: NDArray[np.uint8],
    name_offsets: NDArray[np.int64],
    stack: NDArray[np.uint8],
    scratch: NDArray[np.uint8],
    found: NDArray[np.int64],
) -> int:
    """Write start, length and kind of each row's field. Return total bytes, -1 for bad offsets."""
    if len(stack) < DEPTH_MAX or len(scratch) < ESCAPE_BYTES_MAX * len(names):
        return -1
    total = 0
    for row in range(len(found)):
        first, end = offsets[u64(row)], offsets[u64(row + 1)]
        if first < 0 or end < first or end > len(data):
            return -1
        start, length, kind = 0, 0, MISSING
        if valid[u64(row)]:
            start, length, kind = find(
                address_of(data),
                first,
                end,
                address_of(names),
                name_offsets,
                address_of(stack),
                address_of(scratch),
            )
        found[u64(row), 0] = start
        found[u64(row), 1] = length
        found[u64(row), 2] = kind
        total += length
    return total


@kernel
def collect(
    data: NDArray[np.uint8],
    found: NDArray[np.int64],
    offsets: NDArray[np.int64],
    out: NDArray[np.uint8],
    validity: NDArray[np.uint8],
) -> int:
    """Write bytes, offsets, validity (zeroed before) of what locate found. Return null count."""
    size = 0
    nulls = 0
    offsets[0] = 0
    for row in range(len(found)):
        start = found[u64(row), 0]
        length = found[u64(row), 1]
        kind = found[u64(row), 2]
        if kind == TEXT:
            copy_bytes(address_of(out), size, address_of(data), start, length)
            size += length
        elif kind == ESCAPED:
            size = unescape(address_of(data), start, start + length, address_of(out), size)
        else:
            nulls += 1
        if kind != MISSING:
            validity[u64(row >> 3)] |= np.uint8(1 << (row & 7))
        offsets[u64(row + 1)] = size
    return nulls
