"""Columns of a batch as plain buffers for kernels: bytes, offsets and a validity mask.

Pure. Owns the windows in which rows become bytes. Must never return offsets that point outside of
their bytes.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.columnar.arrow import RecordBatch, pa, plain, variable_parts
from holdfast.errors import CorruptObject

PIECE_BYTES = 1024 * 1024
"""Approximate size of a piece of rows as bytes. Each is compressed before the next is made."""


class ColumnParts(NamedTuple):
    """The buffers of a column of text or bytes."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    """One more offset than there are rows."""
    valid: NDArray[np.bool_]
    """True for each row that is not null. Empty if no row is null."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)


def parts_of(column: Any) -> ColumnParts:
    """Return the buffers of a column of text or bytes."""
    if pa.types.is_null(column.type):
        column = column.cast(pa.binary())
    array = plain(column)
    if len(array) == 0:
        empty = np.empty(0, np.uint8)
        empty.flags.writeable = False
        return ColumnParts(empty, np.zeros(1, np.int64), np.empty(0, np.bool_))
    data, numbers = variable_parts(array)
    offsets = numbers.astype(np.int64)
    if int(offsets[0]) < 0 or int(offsets[-1]) > len(data) or bool(np.any(np.diff(offsets) < 0)):
        raise CorruptObject(
            f"the buffers of a column of {array.type} do not fit its {len(array)} rows"
        )
    return ColumnParts(data, offsets, valid_rows(array))


def valid_rows(column: Any) -> NDArray[np.bool_]:
    """Return a mask of the rows that are not null. Empty if none is null."""
    if column.null_count == 0:
        return np.empty(0, np.bool_)
    return np.array(column.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)


def windows(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield ranges [first, last) of rows of about PIECE_BYTES.

    A larger row is alone in its range.
    """
    rows = len(offsets) - 1
    first = 0
    while first < rows:
        end = int(offsets[first]) + PIECE_BYTES
        last = max(first + 1, int(np.searchsorted(offsets, end, side="right")) - 1)
        last = min(last, rows, first + PIECE_BYTES)
        yield first, last
        first = last


def record_bytes(batch: RecordBatch) -> NDArray[np.int64]:
    """Return the bytes of each record's key, value and headers, of the columns that exist."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for name in ("key", "value"):
        if name in batch.schema.names:
            sizes += parts_of(batch.column(name)).lengths
    if "headers" in batch.schema.names and batch.num_rows:
        headers = batch.column("headers")
        items = header_items(headers)
        before = np.zeros(len(items.flat) + 1, np.int64)
        for field in (0, 1):
            before[1:] += np.cumsum(parts_of(items.flat.field(field)).lengths)
        sizes += before[items.offsets[1:]] - before[items.offsets[:-1]]
    return sizes


class Items(NamedTuple):
    """A column of lists: all items flattened, and the offsets where each list begins and ends."""

    flat: Any
    offsets: NDArray[np.int64]


def header_items(column: Any) -> Items:
    """Return the headers of a batch. A null list becomes an empty one."""
    flat = column.flatten()
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(column) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return Items(flat, offsets)
