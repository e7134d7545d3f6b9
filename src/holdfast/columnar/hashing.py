"""128-bit hashes of Arrow columns, for keys whose collision would lose a record.

Pure. Owns which values are equal: text and bytes of any width by their bytes; integers of any width
and sign by their value; dates, times and timestamps by their stored number, so a column must keep
its unit. Booleans are hashed as one byte, fixed-size binary and decimals by their bytes. A null
differs from every value, also from an empty one. The hash of a value is SipHash-2-4-128 with the
seed as its key. It is kept in state, so it must never change. Columns of floats are refused,
because 0.0 and -0.0 are equal and NaN is not equal to itself.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.columnar import siphash
from holdfast.columnar.arrow import Array, bytes_of, has_offsets, pa, plain, variable_parts
from holdfast.errors import CallError, CorruptObject

Hashes = tuple[NDArray[np.uint64], NDArray[np.uint64]]
"""The low and the high 64 bits of each row's hash."""

SEEDS = 1 << 128
_WORD = (1 << 64) - 1
_WHOLE_WIDTH = 8


def hash128(column: Array, seed: int = 0) -> Hashes:
    """Return the hash of each row of one column. The seed is SipHash's 128-bit key."""
    key = _key(seed)
    column = plain(column)
    rows = len(column)
    low = np.empty(rows, dtype=np.uint64)
    high = np.empty(rows, dtype=np.uint64)
    if column.null_count == rows:
        fits = True
    elif has_offsets(column.type):
        fits = siphash.hash_variable(*variable_parts(column), key, low, high)
    else:
        data, width = _fixed(column)
        fits = siphash.hash_fixed(data, width, key, low, high)
    if fits and column.null_count:
        validity = column.buffers()[0]
        # An array of the null type has no validity bits: all of its rows are null.
        bits = bytes_of(validity) if validity else np.zeros((column.offset + rows + 7) // 8, "u1")
        bits.flags.writeable = False
        fits = siphash.mark_nulls(bits, column.offset, key, low, high)
    if not fits:
        raise CorruptObject(f"a column of {column.type} with {rows} rows lies about its bytes")
    return low, high


def hash_columns(columns: Sequence[Array], seed: int = 0) -> Hashes:
    """Return the hash of each row of several columns: the hash of their hashes, in this order.

    Each part has 16 bytes, whatever the value, so ("a", "bc") and ("ab", "c") differ. For one
    column the result differs from hash128.
    """
    if not columns:
        raise CallError("hash_columns needs at least one column")
    rows = len(columns[0])
    if any(len(column) != rows for column in columns):
        raise CallError(f"columns of {[len(column) for column in columns]} rows cannot be one key")
    parts = np.empty((rows, 2 * len(columns)), dtype="<u8")
    for index, column in enumerate(columns):
        parts[:, 2 * index], parts[:, 2 * index + 1] = hash128(column, seed)
    low = np.empty(rows, dtype=np.uint64)
    high = np.empty(rows, dtype=np.uint64)
    data = bytes_of(parts.reshape(-1).view(np.uint8))
    siphash.hash_fixed(data, 16 * len(columns), _key(seed), low, high)
    return low, high


def _key(seed: int) -> tuple[np.uint64, np.uint64]:
    if not 0 <= seed < SEEDS:
        raise CallError(f"the seed {seed} is not a number of 128 bits")
    return np.uint64(seed & _WORD), np.uint64(seed >> 64)


def _fixed(column: Any) -> tuple[NDArray[np.uint8], int]:
    """Return the bytes of a column of fixed-width values from its first row on, and the width."""
    kind = column.type
    types = pa.types
    if types.is_boolean(kind):
        return bytes_of(column.cast(pa.uint8()).buffers()[1])[: len(column)], 1
    if types.is_uint64(kind):
        width = _WHOLE_WIDTH
    elif types.is_integer(kind):
        column = column.cast(pa.int64())
        width = _WHOLE_WIDTH
    elif types.is_fixed_size_binary(kind) or types.is_decimal(kind) or types.is_temporal(kind):
        width = kind.bit_width // 8
    else:
        raise CallError(f"a column of {kind} cannot be a key: cast it to text, bytes or int64")
    return bytes_of(column.buffers()[1])[column.offset * width :], width
