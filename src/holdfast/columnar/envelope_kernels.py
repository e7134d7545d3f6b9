"""Rows of columns as lines of JSON, compiled: one object per line, members in the columns' order.

Pure. Owns the escaping of strings, base64, and numbers as digits. A table describes each column:
its kind, its labels (the name and the JSON around it), and the addresses of its numbers or bytes.
The maker of the table keeps the arrays alive and has checked their offsets. A row is begun only if
there is room for its greatest possible length. Must never let a byte of a value end a line. Loops
are written out, because what the linter suggests compiles to slower code, or not at all.
"""
# ruff: noqa: SIM109

import numpy as np
from numpy.typing import NDArray

from holdfast.columnar.compiled import (
    Address,
    address_of,
    byte_at,
    copy_bytes,
    i64,
    kernel,
    put_byte,
    u64,
    word_at,
)
from holdfast.columnar.json_kernels import BACKSLASH, QUOTE, is_ordinary

NUMBER, TEXT, LIST = 0, 1, 2
"""Kinds of columns: 64-bit numbers, text or bytes, lists.

A list's two parts are the next two rows.
"""

KIND, LABEL, LABEL_END, OTHER_LABEL, OTHER_LABEL_END, DATA, OFFSETS, VALID, IS_TEXT = range(9)
"""IS_TEXT and VALID are 0 if true for all rows. The other label is for bytes that are not text."""

ESCAPED_BYTES_MAX = 6
DIGITS_MAX = 20
TEN = u64(10)
ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


@kernel
def number_at(numbers: Address, row: int) -> int:
    return i64(word_at(numbers, row * 8))


@kernel
def is_set(flags: Address, row: int) -> bool:
    return flags == u64(0) or byte_at(flags, row) != 0


@kernel
def short_escape(byte: int) -> int:
    """Return the letter after the backslash, or 0 if the byte has no short escape."""
    if byte == QUOTE or byte == BACKSLASH:
        return byte
    if byte == 0x0A:
        return 0x6E
    if byte == 0x0D:
        return 0x72
    if byte == 0x09:
        return 0x74
    if byte == 0x08:
        return 0x62
    if byte == 0x0C:
        return 0x66
    return 0


@kernel
def put_escaped(byte: int, out: Address, size: int) -> int:
    letter = short_escape(byte)
    put_byte(out, size, BACKSLASH)
    if letter:
        put_byte(out, size + 1, letter)
        return size + 2
    put_byte(out, size + 1, 0x75)
    put_byte(out, size + 2, 0x30)
    put_byte(out, size + 3, 0x30)
    put_byte(out, size + 4, 0x30 + (byte >> 4))
    low = byte & 15
    put_byte(out, size + 5, 0x30 + low if low < 10 else 0x57 + low)
    return size + 6


@kernel
def put_string(data: Address, position: int, end: int, out: Address, size: int) -> int:
    put_byte(out, size, QUOTE)
    size += 1
    while position < end:
        if position + 8 <= end and is_ordinary(word_at(data, position)):
            copy_bytes(out, size, data, position, 8)
            position += 8
            size += 8
            continue
        stop = min(end, position + 8)
        while position < stop:
            byte = byte_at(data, position)
            position += 1
            if byte < 0x20 or byte == QUOTE or byte == BACKSLASH:
                size = put_escaped(byte, out, size)
            else:
                put_byte(out, size, byte)
                size += 1
    put_byte(out, size, QUOTE)
    return size + 1


@kernel
def put_base64(
    data: Address, position: int, end: int, alphabet: Address, out: Address, size: int
) -> int:
    put_byte(out, size, QUOTE)
    size += 1
    while position < end:
        left = end - position
        three = byte_at(data, position) << 16
        if left > 1:
            three |= byte_at(data, position + 1) << 8
        if left > 2:
            three |= byte_at(data, position + 2)
        put_byte(out, size, byte_at(alphabet, three >> 18))
        put_byte(out, size + 1, byte_at(alphabet, (three >> 12) & 63))
        put_byte(out, size + 2, byte_at(alphabet, (three >> 6) & 63) if left > 1 else 0x3D)
        put_byte(out, size + 3, byte_at(alphabet, three & 63) if left > 2 else 0x3D)
        position += 3
        size += 4
    put_byte(out, size, QUOTE)
    return size + 1


@kernel
def put_number(number: int, out: Address, size: int) -> int:
    """Write a number in decimal digits."""
    left = u64(number)
    if number < 0:
        put_byte(out, size, 0x2D)
        size += 1
        left = u64(0) - left
    rest = left
    size += 1
    while rest >= TEN:
        rest = rest // TEN
        size += 1
    position = size
    while True:
        position -= 1
        rest = left // TEN
        put_byte(out, position, 0x30 + i64(left - rest * TEN))
        if rest == u64(0):
            return size
        left = rest


@kernel
def put_null(out: Address, size: int) -> int:
    put_byte(out, size, 0x6E)
    put_byte(out, size + 1, 0x75)
    put_byte(out, size + 2, 0x6C)
    put_byte(out, size + 3, 0x6C)
    return size + 4


@kernel
def put_label(labels: Address, start: int, end: int, out: Address, size: int) -> int:
    copy_bytes(out, size, labels, start, end - start)
    return size + end - start


@kernel
def put_member(
    table: NDArray[np.int64],
    column: int,
    row: int,
    labels: Address,
    alphabet: Address,
    out: Address,
    size: int,
) -> int:
    """Write the label and value of one member that is not a list."""
    line = u64(column)
    start, end = table[line, u64(LABEL)], table[line, u64(LABEL_END)]
    if not is_set(u64(table[line, u64(VALID)]), row):
        return put_null(out, put_label(labels, start, end, out, size))
    data = u64(table[line, u64(DATA)])
    if table[line, u64(KIND)] == NUMBER:
        size = put_label(labels, start, end, out, size)
        return put_number(number_at(data, row), out, size)
    offsets = u64(table[line, u64(OFFSETS)])
    first, last = number_at(offsets, row), number_at(offsets, row + 1)
    if is_set(u64(table[line, u64(IS_TEXT)]), row):
        size = put_label(labels, start, end, out, size)
        return put_string(data, first, last, out, size)
    start, end = table[line, u64(OTHER_LABEL)], table[line, u64(OTHER_LABEL_END)]
    size = put_label(labels, start, end, out, size)
    return put_base64(data, first, last, alphabet, out, size)


@kernel
def put_list(
    table: NDArray[np.int64],
    column: int,
    row: int,
    labels: Address,
    alphabet: Address,
    out: Address,
    size: int,
) -> int:
    """Write a list of objects with two members each. A null becomes an empty list."""
    line = u64(column)
    start, end = table[line, u64(LABEL)], table[line, u64(LABEL_END)]
    size = put_label(labels, start, end, out, size)
    put_byte(out, size, 0x5B)
    size += 1
    if is_set(u64(table[line, u64(VALID)]), row):
        offsets = u64(table[line, u64(OFFSETS)])
        first, last = number_at(offsets, row), number_at(offsets, row + 1)
        for item in range(first, last):
            if item > first:
                put_byte(out, size, 0x2C)
                size += 1
            size = put_member(table, column + 1, item, labels, alphabet, out, size)
            size = put_member(table, column + 2, item, labels, alphabet, out, size)
            put_byte(out, size, 0x7D)
            size += 1
    put_byte(out, size, 0x5D)
    return size + 1


@kernel
def member_bytes_max(table: NDArray[np.int64], column: int, first: int, last: int) -> int:
    """Return the most bytes that a column, not of lists, can take for rows [first, last)."""
    line = u64(column)
    label = max(
        table[line, u64(LABEL_END)] - table[line, u64(LABEL)],
        table[line, u64(OTHER_LABEL_END)] - table[line, u64(OTHER_LABEL)],
    )
    each = label + DIGITS_MAX + 1
    if table[line, u64(KIND)] == NUMBER:
        return each * (last - first)
    offsets = u64(table[line, u64(OFFSETS)])
    length = number_at(offsets, last) - number_at(offsets, first)
    return each * (last - first) + ESCAPED_BYTES_MAX * length


@kernel
def row_bytes_max(table: NDArray[np.int64], row: int) -> int:
    """Return the most bytes that a row can take, with the brace and line feed after it."""
    total = 2
    column = 0
    while column < len(table):
        if table[u64(column), u64(KIND)] == LIST:
            offsets = u64(table[u64(column), u64(OFFSETS)])
            first, last = number_at(offsets, row), number_at(offsets, row + 1)
            total += table[u64(column), u64(LABEL_END)] - table[u64(column), u64(LABEL)]
            total += 2 + 2 * (last - first)
            total += member_bytes_max(table, column + 1, first, last)
            total += member_bytes_max(table, column + 2, first, last)
            column += 3
        else:
            total += member_bytes_max(table, column, row, row + 1)
            column += 1
    return total


@kernel
def put_envelopes(
    table: NDArray[np.int64],
    labels: NDArray[np.uint8],
    alphabet: NDArray[np.uint8],
    first: int,
    last: int,
    out: NDArray[np.uint8],
) -> tuple[int, int, int]:
    """Write rows from `first` on, as many as certainly fit.

    Returns the next row, the bytes written, and the room that the next row needs (0 if all are
    done).
    """
    to = address_of(out)
    size = 0
    row = first
    while row < last:
        room = row_bytes_max(table, row)
        if size + room > len(out):
            return row, size, room
        column = 0
        while column < len(table):
            if table[u64(column), u64(KIND)] == LIST:
                size = put_list(
                    table, column, row, address_of(labels), address_of(alphabet), to, size
                )
                column += 3
            else:
                size = put_member(
                    table, column, row, address_of(labels), address_of(alphabet), to, size
                )
                column += 1
        put_byte(to, size, 0x7D)
        put_byte(to, size + 1, 0x0A)
        size += 2
        row += 1
    return row, size, 0
