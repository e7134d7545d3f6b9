"""Packing of record batches into objects: checks order, drops what has landed, keeps the bounds.

Pure. Owns where one object ends. Must never let an offset pass twice or out of order: its cuts
cover a range without gaps from the position on.
"""

from dataclasses import dataclass

import numpy as np

from holdfast.columnar.arrow import RecordBatch
from holdfast.errors import CallError
from holdfast.landing.arrow import offsets_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectBounds:
    """The bounds of an object: it is full when the first one is reached."""

    bytes_max: int = 64 * 1024 * 1024
    """Bytes of Arrow memory, before compression."""
    rows_max: int = 5_000_000

    def __post_init__(self) -> None:
        if self.bytes_max < 1 or self.rows_max < 1:
            raise CallError(f"an object must hold at least one record: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedObject:
    """The content of one object, and the range that it covers."""

    batches: tuple[RecordBatch, ...]
    first_offset: int
    last_offset: int
    rows: int


class Packer:
    """Records of [position, end_offset) that were read and have not landed."""

    def __init__(self, *, position: int, end_offset: int, bounds: ObjectBounds) -> None:
        self.position = position
        self._end_offset = end_offset
        self._bounds = bounds
        self._batches: list[RecordBatch] = []
        self._last_seen = -1
        self._rows = 0
        self._bytes = 0

    def add(self, batch: RecordBatch) -> None:
        """Add the next batch. Its offsets must increase and stay below the end."""
        if batch.num_rows == 0:
            return
        offsets = offsets_of(batch)
        first, last = int(offsets[0]), int(offsets[-1])
        if first <= self._last_seen or bool(np.any(np.diff(offsets) <= 0)):
            raise CallError(f"offsets must increase, but {first}..{last} follow {self._last_seen}")
        if last >= self._end_offset:
            raise CallError(f"offset {last} is not below the end of the range, {self._end_offset}")
        self._last_seen = last
        kept = _from(batch, self.position)
        if kept is not None:
            self._keep(kept)

    def move_to(self, position: int) -> None:
        """Drop everything below a position, which we or another writer have landed."""
        batches, self._batches = self._batches, []
        self.position = position
        self._rows = self._bytes = 0
        for batch in batches:
            kept = _from(batch, position)
            if kept is not None:
                self._keep(kept)

    def full(self) -> PackedObject | None:
        """Return the next object if there is more than one holds. It ends at its last record.

        Records that fit into one object wait: it may be the last, which covers the range to its
        end.
        """
        if self._rows <= self._bounds.rows_max and self._bytes <= self._bounds.bytes_max:
            return None
        taken: list[RecordBatch] = []
        rows = size = 0
        for batch in self._batches:
            fits = self._rows_that_fit(batch, rows, size)
            if fits == 0 and taken:
                break
            piece = batch if fits >= batch.num_rows else batch.slice(0, max(1, fits))
            taken.append(piece)
            rows += piece.num_rows
            size += piece.nbytes
            if piece.num_rows < batch.num_rows:
                break
        if rows == self._rows:
            return None
        return self._cut(taken, rows, int(offsets_of(taken[-1])[-1]))

    def rest(self) -> PackedObject:
        """Return everything that is left. It covers the range to its end, including holes."""
        return self._cut(self._batches, self._rows, self._end_offset - 1)

    def _rows_that_fit(self, batch: RecordBatch, rows: int, size: int) -> int:
        by_rows = self._bounds.rows_max - rows
        room = self._bounds.bytes_max - size
        by_bytes = batch.num_rows
        if batch.nbytes > room:
            by_bytes = batch.num_rows * max(0, room) // batch.nbytes
        return min(batch.num_rows, by_rows, by_bytes)

    def _cut(self, batches: list[RecordBatch], rows: int, last_offset: int) -> PackedObject:
        return PackedObject(
            batches=tuple(batches), first_offset=self.position, last_offset=last_offset, rows=rows
        )

    def _keep(self, batch: RecordBatch) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes


def _from(batch: RecordBatch, position: int) -> RecordBatch | None:
    """Return the part of a batch at or after a position, or None if it is empty."""
    skipped = int(np.searchsorted(offsets_of(batch), position))
    if skipped == 0:
        return batch
    return None if skipped >= batch.num_rows else batch.slice(skipped)
