"""Encode fetched bytes into sealed batches, by whole columns.

Pure. Owns the open batch: what is in it, which offsets it covers, and when it is full. Takes fetch
responses in the order of their offsets, and returns batches that follow one another without a gap.
A record that its format cannot hold is set aside with the reason, and the batch covers its offset
all the same. A record batch that cannot be read is set aside as a whole. Used by one thread at a
time. Must never put a record into two batches, or into none.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from holdfast.client.fetch import PartitionFetch
from holdfast.columnar.arrow import RecordBatch
from holdfast.columnar.decode import decode_rest
from holdfast.columnar.unreadable import Unreadable
from holdfast.errors import CallError, StopError
from holdfast.landing.arrow import offsets_of
from holdfast.landing.dead_letters import dead_batch, dead_record_batch
from holdfast.landing.formats.interface import Encoded, Format, RecordWriter, Unfit
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.sink.settings import BatchBounds

BYTES_PER_STEP = 4 * 1024 * 1024
"""Bytes of records that are decoded at once: a thread holds them beside the fetch response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How the records of a sink are encoded."""

    format: Format
    bounds: BatchBounds
    read_committed: bool
    fails_on_bad_records: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A closed batch: the bytes of its object, and the offsets that it covers."""

    encoded: Encoded
    first_offset: int
    last_offset: int
    records: int
    bad: tuple[RecordBatch, ...] = ()
    """Dead letters: records of the range that are not in the object."""
    unreadable: tuple[str, ...] = ()
    """Record batches of the range that cannot be read, each with its offsets and the reason."""

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def held_bytes(self) -> int:
        size = sum(len(buffer) for buffer in self.encoded.body) + len(self.encoded.after)
        return size + sum(batch.nbytes for batch in self.bad)


class _Open:
    """The batch that is being filled."""

    def __init__(self, writer: RecordWriter, first_offset: int) -> None:
        self.writer = writer
        self.first_offset = first_offset
        self.records = 0
        self.record_bytes = 0
        self.bad: list[RecordBatch] = []
        self.unreadable: list[str] = []

    @property
    def held_bytes(self) -> int:
        return self.writer.held_bytes + sum(batch.nbytes for batch in self.bad)


class PartitionEncoder:
    """The encoder of one partition, from one offset on."""

    def __init__(self, where: TopicPartition, first_offset: int, recipe: Recipe) -> None:
        self.where = where
        self.next_offset = first_offset
        """The offset below which everything was taken in."""
        self.bad_records = 0
        self._sealed_to = first_offset
        self._recipe = recipe
        self._open: _Open | None = None

    @property
    def open_records(self) -> int:
        """Number of records in the open batch, including bad ones."""
        return 0 if self._open is None else self._open.records

    @property
    def open_bytes(self) -> int:
        """Bytes of the records in the open batch, before compression."""
        return 0 if self._open is None else self._open.record_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that the open batch takes."""
        return 0 if self._open is None else self._open.held_bytes

    def absorb(self, fetched: PartitionFetch) -> list[Sealed]:
        """Take in one fetch response; return the batches that it filled."""
        if fetched.fetch_offset != self.next_offset:
            raise CallError(
                f"{self._name}: offset {self.next_offset} is next, not {fetched.fetch_offset}"
            )
        sealed: list[Sealed] = []
        end = fetched.next_offset
        for batch in self._decoded(fetched, end, columns=self._recipe.format.columns):
            if isinstance(batch, Unreadable):
                self._set_batch_aside(batch)
                if self._is_full():
                    sealed.append(self._seal(to=self.next_offset))
                continue
            for piece in self._pieces(batch):
                self._add(piece, fetched, end)
                if self._is_full():
                    sealed.append(self._seal(to=self.next_offset))
        self.next_offset = end
        return sealed

    def seal(self) -> Sealed | None:
        """Close and return the open batch; None if no record is in it."""
        return None if self._open is None else self._seal(to=self.next_offset)

    def _decoded(
        self, fetched: PartitionFetch, end: int, *, columns: tuple[str, ...] | None
    ) -> Iterator[RecordBatch | Unreadable]:
        aborted = [(row.producer_id, row.first_offset) for row in fetched.aborted]
        return decode_rest(
            [fetched.batches],
            topic=self.where.topic,
            partition=self.where.partition,
            start_offset=fetched.fetch_offset,
            end_offset=end,
            include_headers=columns is None or "headers" in columns,
            columns=columns,
            read_committed_aborted=aborted if self._recipe.read_committed else None,
            bytes_per_batch=BYTES_PER_STEP,
        )

    def _pieces(self, batch: RecordBatch) -> Iterator[RecordBatch]:
        """Yield the batch in pieces, cut where an object is full."""
        start = 0
        while start < batch.num_rows:
            rest: RecordBatch = batch.slice(start) if start else batch
            rows = self._rows_that_fit(rest)
            yield rest.slice(0, rows) if rows < rest.num_rows else rest
            start += rows

    def _rows_that_fit(self, batch: RecordBatch) -> int:
        bounds = self._recipe.bounds
        rows = min(batch.num_rows, bounds.records_max - self.open_records)
        room = bounds.bytes_max - self.open_bytes
        if batch.nbytes > room:
            rows = min(rows, -(-batch.num_rows * room // batch.nbytes))
        return max(1, rows)

    def _add(self, piece: RecordBatch, fetched: PartitionFetch, end: int) -> None:
        opened = self._opened()
        fit, unfit = self._recipe.format.sort_out(piece)
        if unfit:
            self._set_aside(unfit, fetched, end)
        if fit.num_rows:
            opened.writer.add(fit)
        opened.records += piece.num_rows
        opened.record_bytes += piece.nbytes
        self.next_offset = int(offsets_of(piece)[-1]) + 1

    def _opened(self) -> _Open:
        if self._open is None:
            self._open = _Open(self._recipe.format.writer(), self._sealed_to)
        return self._open

    def _set_batch_aside(self, found: Unreadable) -> None:
        """Set aside an unreadable record batch as one dead letter, and cover its offsets."""
        first, last = max(found.base_offset, self.next_offset), found.last_offset
        named = f"the record batch at offsets {first} to {last} cannot be read: {found.problem}"
        if self._recipe.fails_on_bad_records:
            raise StopError(
                f"{self._name}: {named}. To set such batches aside and continue, set"
                " bad_records = 'dead-letter' below [output]"
            )
        opened = self._opened()
        opened.bad.append(
            dead_record_batch(
                found,
                topic=self.where.topic,
                partition=self.where.partition,
                first_offset=first,
            )
        )
        opened.unreadable.append(named)
        opened.records += 1
        opened.record_bytes += len(found.batch)
        self.bad_records += 1
        self.next_offset = last + 1

    def _set_aside(self, unfit: list[Unfit], fetched: PartitionFetch, end: int) -> None:
        """Set bad records aside, whole.

        They are decoded again: the first time, only the columns that the format needs were decoded.
        """
        if self._recipe.fails_on_bad_records:
            first = unfit[0]
            raise StopError(
                f"{self._name}: the record at offset {first.offset} cannot be written:"
                f" {first.problem}. To set such records aside and continue, set"
                " bad_records = 'dead-letter' below [output]"
            )
        opened = self._open
        if opened is None:
            raise CallError(f"{self._name}: no batch is open")
        offsets = np.array([row.offset for row in unfit], dtype=np.int64)
        for batch in self._decoded(fetched, end, columns=None):
            if isinstance(batch, Unreadable):
                continue
            found = offsets_of(batch)
            rows = np.flatnonzero((offsets >= found[0]) & (offsets <= found[-1]))
            if len(rows):
                opened.bad.append(dead_batch(batch, [unfit[row] for row in rows]))
        self.bad_records += len(unfit)

    def _is_full(self) -> bool:
        bounds = self._recipe.bounds
        return self.open_records >= bounds.records_max or self.open_bytes >= bounds.bytes_max

    def _seal(self, *, to: int) -> Sealed:
        opened, self._open = self._open, None
        if opened is None:
            raise CallError(f"{self._name}: no batch is open")
        self._sealed_to = to
        good = opened.writer.rows
        described = {
            "holdfast.topic": self.where.topic,
            "holdfast.partition": str(self.where.partition),
            "holdfast.first_offset": str(opened.first_offset),
            "holdfast.last_offset": str(to - 1),
            "holdfast.records": str(good),
        }
        return Sealed(
            encoded=opened.writer.finish(described),
            first_offset=opened.first_offset,
            last_offset=to - 1,
            records=good,
            bad=tuple(opened.bad),
            unreadable=tuple(opened.unreadable),
        )

    @property
    def _name(self) -> str:
        return f"{self.where.topic}-{self.where.partition}"
