"""Columns of 64-bit integers as bytes: big-endian, whatever the machine.

Pure. Owns nothing but the byte order, which snapshots and segments share.
"""

import sys
from array import array


def column_bytes(column: "array[int]") -> bytes:
    """The column as it is stored."""
    if sys.byteorder == "big":
        return column.tobytes()
    swapped = array("q", column)
    swapped.byteswap()
    return swapped.tobytes()


def fill_column(column: "array[int]", values: bytes) -> None:
    """Fill an empty column with what was stored."""
    column.frombytes(values)
    if sys.byteorder == "little":
        column.byteswap()
