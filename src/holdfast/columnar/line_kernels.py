"""Values as lines and as framed bytes, and the check that a value can be a line, compiled.

Pure. Owns the loops over a column's bytes. If a row has several problems, the one with the lowest
number below is reported. UTF-8 is that of RFC 3629: no surrogates, no overlong forms. Must never
read past a row's end: offsets are checked before the first byte is read. Loops and comparisons are
written out, because what the linter suggests compiles to slower code, or not at all.
"""
# ruff: noqa: SIM110

import numpy as np
from numpy.typing import NDArray

from holdfast.columnar.compiled import (
    Address,
    address_of,
    byte_at,
    copy_bytes,
    kernel,
    put_byte,
    u64,
    word_at,
)
from holdfast.columnar.json_kernels import (
    DEPTH_MAX,
    EIGHT_HIGH_BITS,
    EIGHT_ONES,
    skip_space,
    skip_value,
)

FITS, NULL, EMPTY, LINE_BREAK, MARKED, NOT_UTF8, NOT_JSON = range(7)
EIGHT_LINE_FEEDS = u64(0x0A0A0A0A0A0A0A0A)
EIGHT_RETURNS = u64(0x0D0D0D0D0D0D0D0D)
NO_WORD = u64(0)
ASCII, TEXT, BROKEN, NO_TEXT = 0, 1, 2, 3
"""Kinds of a row's bytes: ASCII, other UTF-8, either with a line break, not UTF-8."""


@kernel
def after_character(data: Address, position: int, end: int) -> int:
    """Return the position after a character of several bytes, or -1 if it is not one."""
    first = byte_at(data, position)
    if first < 0xC2 or first > 0xF4:
        return -1
    length = 2 if first < 0xE0 else (3 if first < 0xF0 else 4)
    if position + length > end:
        return -1
    second = byte_at(data, position + 1)
    least, greatest = 0x80, 0xBF
    if first == 0xE0:
        least = 0xA0
    elif first == 0xED:
        greatest = 0x9F
    elif first == 0xF0:
        least = 0x90
    elif first == 0xF4:
        greatest = 0x8F
    if second < least or second > greatest:
        return -1
    for i in range(2, length):
        if byte_at(data, position + i) & 0xC0 != 0x80:
            return -1
    return position + length


@kernel
def is_utf8(data: Address, position: int, end: int) -> bool:
    while position < end:
        if position + 8 <= end and word_at(data, position) & EIGHT_HIGH_BITS == NO_WORD:
            position += 8
        elif byte_at(data, position) < 0x80:
            position += 1
        else:
            position = after_character(data, position, end)
            if position < 0:
                return False
    return True


@kernel
def look_over(data: Address, position: int, end: int) -> tuple[bool, bool]:
    """Return whether there is a line break, and whether all bytes are ASCII.

    Reads eight bytes at a time. The exclusive or turns the wanted byte into zero, and only a zero
    borrows into its highest bit when one is subtracted.
    """
    high = NO_WORD
    breaks = NO_WORD
    while position + 8 <= end:
        word = word_at(data, position)
        feeds = word ^ EIGHT_LINE_FEEDS
        returns = word ^ EIGHT_RETURNS
        high |= word
        breaks |= ((feeds - EIGHT_ONES) & ~feeds) | ((returns - EIGHT_ONES) & ~returns)
        position += 8
    has_break = breaks & EIGHT_HIGH_BITS != NO_WORD
    is_ascii = high & EIGHT_HIGH_BITS == NO_WORD
    while position < end:
        byte = byte_at(data, position)
        if byte == 0x0A or byte == 0x0D:
            has_break = True
        if byte >= 0x80:
            is_ascii = False
        position += 1
    return has_break, is_ascii


@kernel
def starts_with(data: Address, position: int, end: int, mark: Address, length: int) -> bool:
    if length == 0 or end - position < length:
        return False
    for i in range(length):
        if byte_at(data, position + i) != byte_at(mark, i):
            return False
    return True


@kernel
def is_json(data: Address, position: int, end: int, stack: Address) -> bool:
    """True if the bytes are one JSON value. Space around it is allowed."""
    position = skip_value(data, position, end, stack)
    return position >= 0 and skip_space(data, position, end) == end


@kernel
def line_problem(
    data: Address, position: int, end: int, mark: Address, mark_length: int, json_stack: Address
) -> int:
    if position == end:
        return EMPTY
    has_break, is_ascii = look_over(data, position, end)
    if has_break:
        return LINE_BREAK
    if starts_with(data, position, end, mark, mark_length):
        return MARKED
    if not is_ascii and not is_utf8(data, position, end):
        return NOT_UTF8
    if json_stack != NO_WORD and not is_json(data, position, end, json_stack):
        return NOT_JSON
    return FITS


@kernel
def line_problems(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    valid: NDArray[np.bool_],
    mark: NDArray[np.uint8],
    stack: NDArray[np.uint8],
    problems: NDArray[np.uint8],
) -> int:
    """Write the problem of each row. Return how many rows have one, or -1 for bad offsets.

    `valid` may be empty if no row is null, `mark` if nothing is marked, and `stack` if JSON is not
    required.
    """
    asks_json = len(stack) > 0
    if asks_json and len(stack) < DEPTH_MAX:
        return -1
    found = 0
    for row in range(len(problems)):
        first, end = offsets[u64(row)], offsets[u64(row + 1)]
        if first < 0 or end < first or end > len(data):
            return -1
        if len(valid) and not valid[u64(row)]:
            problem = NULL
        else:
            problem = line_problem(
                address_of(data),
                first,
                end,
                address_of(mark),
                len(mark),
                address_of(stack) if asks_json else NO_WORD,
            )
        problems[u64(row)] = problem
        found += problem != FITS
    return found


@kernel
def utf8_rows(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], is_text: NDArray[np.bool_]
) -> int:
    """Write whether each row is UTF-8. Return how many are not, or -1 for bad offsets."""
    found = 0
    for row in range(len(is_text)):
        first, end = offsets[u64(row)], offsets[u64(row + 1)]
        if first < 0 or end < first or end > len(data):
            return -1
        text = is_utf8(address_of(data), first, end)
        is_text[u64(row)] = text
        found += not text
    return found


@kernel
def put_lines(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    first: int,
    last: int,
    out: NDArray[np.uint8],
) -> int:
    """Write rows [first, last), each with a line feed.

    Return the bytes written, or -1 without room.
    """
    if offsets[u64(last)] - offsets[u64(first)] + last - first > len(out):
        return -1
    if offsets[u64(first)] < 0 or offsets[u64(last)] > len(data):
        return -1
    size = 0
    for row in range(first, last):
        start = offsets[u64(row)]
        length = offsets[u64(row + 1)] - start
        if length < 0:
            return -1
        copy_bytes(address_of(out), size, address_of(data), start, length)
        size += length
        put_byte(address_of(out), size, 0x0A)
        size += 1
    return size


@kernel
def put_framed(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    valid: NDArray[np.bool_],
    first: int,
    last: int,
    out: NDArray[np.uint8],
) -> int:
    """Write rows [first, last), each after its length in four bytes, big-endian, -1 for a null."""
    if offsets[u64(last)] - offsets[u64(first)] + 4 * (last - first) > len(out):
        return -1
    if offsets[u64(first)] < 0 or offsets[u64(last)] > len(data):
        return -1
    size = 0
    for row in range(first, last):
        start = offsets[u64(row)]
        length = offsets[u64(row + 1)] - start
        if length < 0:
            return -1
        is_null = len(valid) > 0 and not valid[u64(row)]
        shown = -1 if is_null else length
        for i in range(4):
            put_byte(address_of(out), size + i, (shown >> (24 - 8 * i)) & 0xFF)
        size += 4
        if not is_null:
            copy_bytes(address_of(out), size, address_of(data), start, length)
            size += length
    return size


@kernel
def frame_length(data: Address, position: int) -> int:
    """Return the four bytes before a value, as a signed number."""
    length = 0
    for i in range(4):
        length = (length << 8) | byte_at(data, position + i)
    return length if length < 1 << 31 else length - (1 << 32)


@kernel
def measure_framed(
    data: NDArray[np.uint8], position: int, rows_max: int, bytes_max: int
) -> tuple[int, int, int]:
    """Return how many framed values are next, their bytes, and where the following one begins.

    It counts as many as the bounds allow, but at least one. The count is -1 if a frame leads past
    the end.
    """
    rows = 0
    size = 0
    while position < len(data) and rows < rows_max:
        if position + 4 > len(data):
            return -1, 0, 0
        length = frame_length(address_of(data), position)
        if length < -1 or length > len(data) - position - 4:
            return -1, 0, 0
        length = max(0, length)
        if rows > 0 and size + length > bytes_max:
            break
        position += 4 + length
        size += length
        rows += 1
    return rows, size, position


@kernel
def take_framed(
    data: NDArray[np.uint8],
    position: int,
    offsets: NDArray[np.int32],
    out: NDArray[np.uint8],
    validity: NDArray[np.uint8],
) -> int:
    """Write the values that measure_framed counted (mask zeroed before).

    Return the number of nulls.
    """
    size = 0
    nulls = 0
    offsets[0] = 0
    for row in range(len(offsets) - 1):
        length = frame_length(address_of(data), position)
        position += 4
        if length < 0:
            nulls += 1
        else:
            copy_bytes(address_of(out), size, address_of(data), position, length)
            validity[u64(row >> 3)] |= np.uint8(1 << (row & 7))
            position += length
            size += length
        offsets[u64(row + 1)] = size
    return nulls
