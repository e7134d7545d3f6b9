"""Carries rows to their bucket: as few large binary rows through Spark's shuffle.

Runs on executors. Owns the columns of the exchange. A Spark row costs about a microsecond on each
side of a shuffle, whatever is in it. So a batch is cut by bucket here, and each piece is one row
whose content Spark never looks at.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.columnar.arrow import RecordBatch, pa
from holdfast.keyed_state.pinned import bucket_of
from holdfast.spark.source.inputs import LeftOut
from holdfast.spark.source.rows import Keys, columns_read, event_times, key_column, records

SCHEMA_TEXT = "task int, bucket int, origin bigint, keyless boolean, piece binary"
SCHEMA: Any = pa.schema(
    [
        ("task", pa.int32()),
        ("bucket", pa.int32()),
        ("origin", pa.int64()),
        ("keyless", pa.bool_()),
        ("piece", pa.binary()),
    ]
)
TICK = -1
"""The bucket of a row that only makes a task run: timers are due without records, too."""
LEFT_OUT = -2
"""The bucket of a row whose origin is the number of records that could not be read."""
LOW, HIGH, TIME, KEYLESS = "__low", "__high", "__time", "__keyless"
ROWS_PER_CUT = 200_000
"""Small batches are joined before they are cut: a piece costs a kilobyte besides its rows."""
BYTES_PER_CUT = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutter:
    """Cuts the rows of one task by bucket."""

    by: tuple[str, ...]
    event_time: str | None
    buckets: int
    tasks: int
    hash_seed: int
    columns: tuple[str, ...] | None = None
    """The columns that are sent; None for all."""
    tells_left_out: bool = True
    """True to send the number of unreadable records in a separate row."""

    def pieces(self, batches: Iterable[Any], *, task: int) -> Iterator[RecordBatch]:
        """Yield the exchange rows of one task; `task` keeps the order of rows across tasks."""
        looked_at = None if self.columns is None else columns_read(self._expressions(self.columns))
        left_out = LeftOut()
        rows = records(batches, looked_at, left_out)
        keyed = (self._with_keys(batch) for batch in rows if batch.num_rows)
        for number, joined in enumerate(_joined(keyed)):
            yield self._cut(joined, (task << 32) | number)
        if self.tells_left_out and left_out.offsets:
            row = {"task": 0, "bucket": LEFT_OUT, "origin": left_out.offsets}
            yield pa.RecordBatch.from_pylist([{**row, "keyless": False, "piece": b""}], SCHEMA)

    def _expressions(self, columns: tuple[str, ...]) -> list[str]:
        return [*columns, *self.by, *((self.event_time,) if self.event_time else ())]

    def _with_keys(self, batch: RecordBatch) -> RecordBatch:
        """Return the columns that are sent, and those by which the rows are judged."""
        keys = Keys(batch, self.by, self.hash_seed)
        names = list(self.columns or batch.schema.names)
        columns = [key_column(batch, name) for name in names]
        columns += [pa.array(keys.low), pa.array(keys.high)]
        columns += [pa.array(event_times(batch, self.event_time)), pa.array(keys.keyless)]
        return pa.RecordBatch.from_arrays(columns, names=[*names, LOW, HIGH, TIME, KEYLESS])

    def _cut(self, batch: Any, origin: int) -> RecordBatch:
        buckets = bucket_of(batch.column(LOW).to_numpy(), self.buckets)
        buckets[batch.column(KEYLESS).to_numpy(zero_copy_only=False)] += self.buckets
        # numpy sorts 16-bit numbers with a radix sort, in an eighth of the time.
        narrow = np.uint16 if 2 * self.buckets <= 1 << 16 else np.int64
        order = np.argsort(buckets.astype(narrow, copy=False), kind="stable")
        ranked = buckets[order]
        starts = np.flatnonzero(np.concatenate(([True], ranked[1:] != ranked[:-1])))
        ends = np.append(starts[1:], ranked.size)
        sorted_rows = batch.drop_columns([KEYLESS]).take(pa.array(order))
        pieces = [
            sorted_rows.slice(start, end - start)
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        return self._exchange(ranked[starts], origin, in_one_buffer(pieces))

    def _exchange(self, ranks: NDArray[np.int64], origin: int, pieces: Any) -> RecordBatch:
        buckets = ranks % self.buckets
        columns = [
            pa.array(buckets % self.tasks, pa.int32()),
            pa.array(buckets, pa.int32()),
            pa.array(np.full(len(ranks), origin), pa.int64()),
            pa.array(ranks >= self.buckets),
            pieces,
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _joined(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    waiting: list[RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= ROWS_PER_CUT or size >= BYTES_PER_CUT:
            yield _one(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _one(waiting)


def _one(batches: list[RecordBatch]) -> RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def in_one_buffer(batches: list[Any]) -> Any:
    """Return a binary array with one batch and its schema per value, written once, never copied."""
    sink = pa.BufferOutputStream()
    ends = [0]
    for batch in batches:
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        ends.append(sink.tell())
    # Offsets of a binary array have 32 bits. A cut is far smaller, unless it has a huge record.
    bounds = pa.array(ends, pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), len(batches), [None, bounds, sink.getvalue()])


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A row of the exchange, decoded."""

    bucket: int
    origin: int
    keyless: bool
    rows: Any
    """A table whose last columns are those of keys and time."""


def opened(batches: Iterable[Any], left_out: LeftOut | None = None) -> Iterator[Piece]:
    """Yield the pieces that came to a task, in no order; count records that could not be read."""
    for batch in batches:
        for row in range(batch.num_rows):
            bucket = batch.column(1)[row].as_py()
            if bucket == LEFT_OUT and left_out is not None:
                left_out.offsets += batch.column(2)[row].as_py()
            if bucket in (TICK, LEFT_OUT):
                continue
            yield _piece(
                batch.column(1)[row].as_py(),
                batch.column(2)[row].as_py(),
                batch.column(3)[row].as_py(),
                batch.column(4)[row].as_buffer(),
            )


def _piece(bucket: int, origin: int, keyless: bool, body: Any) -> Piece:
    with pa.ipc.open_stream(body) as reader:
        table = reader.read_all()
    return Piece(bucket=bucket, origin=origin, keyless=keyless, rows=table)


Sent = tuple[int, tuple[int, int, bool, bytes]]
"""A row of the exchange as a pair for an RDD: its task, and all the rest."""


def sent(batches: Iterable[Any]) -> Iterator[Sent]:
    for batch in batches:
        for task, *rest in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield task, tuple(rest)


def received(rest: tuple[int, int, bool, bytes]) -> Piece:
    return _piece(*rest)


def halves(table: Any) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the high and the low half of each row's hash."""
    return _numbers(table, HIGH).view(np.uint64), _numbers(table, LOW).view(np.uint64)


def times(table: Any) -> NDArray[np.int64]:
    return _numbers(table, TIME)


def _numbers(table: Any, name: str) -> Any:
    return table.column(name).to_numpy()


def without_keys(table: Any) -> Any:
    return table.drop_columns([LOW, HIGH, TIME])
