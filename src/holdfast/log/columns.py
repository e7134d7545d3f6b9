"""Columns of 64-bit integers as bytes: big-endian on every machine.

Pure. Owns the byte order, which snapshots and segments share.
"""

import sys
from array import array


def column_bytes(column: "array[int]") -> bytes:
    """Return the column's bytes as they are stored."""
    if sys.byteorder == "big":
        return column.tobytes()
    swapped = array("q", column)
    swapped.byteswap()
    return swapped.tobytes()


def fill_column(column: "array[int]", values: bytes) -> None:
    """Fill an empty column from its stored bytes."""
    column.frombytes(values)
    if sys.byteorder == "little":
        column.byteswap()
