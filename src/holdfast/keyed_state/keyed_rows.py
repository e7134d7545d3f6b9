"""Rows by key: immutable runs sorted by key hash. A later run's row replaces an earlier one.

Pure. Owns runs with Arrow columns, tombstones, and the overlay of runs. A tombstone says that a key
is gone although an older run has it. It must never be dropped while an older run is left. Rows
before a horizon have expired and may be dropped in any merge: a key's time never goes back while
the key lives, so the older rows under an expired row have expired as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.columnar.arrow import pa
from holdfast.errors import CallError, CorruptObject
from holdfast.keyed_state import kernels
from holdfast.keyed_state.pinned import TIME_MAX, TIME_MIN, Hashes, RunInfo, Times
from holdfast.keyed_state.run_file import RunLayout, TimeSpan, decode_run, encode_run
from holdfast.store.interface import Buffers

HIGH, LOW, TIME, DELETED = "#high", "#low", "#time", "#deleted"
_OWN_COLUMNS = (HIGH, LOW, TIME, DELETED)

Table = Any
"""A pyarrow.Table, which has no type."""
Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRun:
    """A state run that has each key once, sorted by its hash."""

    high: Hashes
    low: Hashes
    time: Times
    """Event time of the latest record of an aggregate, or deadline of a timer."""
    deleted: Mask
    columns: Table
    """The columns of the rows, all null in a deleted row."""

    def __post_init__(self) -> None:
        for name in ("high", "low", "time", "deleted"):
            object.__setattr__(self, name, kernels.read_only(getattr(self, name)))

    @property
    def rows(self) -> int:
        return self.high.size

    @property
    def nbytes(self) -> int:
        return self.rows * 25 + int(self.columns.nbytes)

    def where(self, chosen: Mask) -> "KeyedRun":
        """Return the chosen rows."""
        return self if bool(chosen.all()) else self.take(np.flatnonzero(chosen))

    def take(self, positions: Positions) -> "KeyedRun":
        """Return the rows at these positions, which must keep them sorted."""
        return KeyedRun(
            high=self.high[positions],
            low=self.low[positions],
            time=self.time[positions],
            deleted=self.deleted[positions],
            columns=self.columns.take(pa.array(positions)).combine_chunks(),
        )

    def find(self, high: Hashes, low: Hashes) -> Positions:
        """Return the row of each key, or -1."""
        found = np.empty(high.size, np.int64)
        kernels.find_rows(
            self.high, self.low, kernels.read_only(high), kernels.read_only(low), found
        )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedBucket:
    """The pinned runs of a bucket, and the newest row of each key, which follows from them."""

    runs: tuple[KeyedRun, ...] = ()
    newest: KeyedRun | None = None
    """The newest rows without tombstones. May be None if there are none."""

    @staticmethod
    def load(runs: Sequence[KeyedRun]) -> "KeyedBucket":
        newest = overlay(runs, horizon_ms=TIME_MIN, all_of_them=True) if runs else None
        return KeyedBucket(runs=tuple(runs), newest=newest)

    @property
    def nbytes(self) -> int:
        shared = self.newest is None or any(self.newest is run for run in self.runs)
        newest = 0 if shared or self.newest is None else self.newest.nbytes
        return sum(run.nbytes for run in self.runs) + newest

    def live(self, horizon_ms: int) -> KeyedRun | None:
        """Return the newest row of each key that has not expired."""
        if self.newest is None or horizon_ms == TIME_MIN:
            return self.newest
        return self.newest.where(self.newest.time >= horizon_ms)


def overlay(runs: Sequence[KeyedRun], *, horizon_ms: int, all_of_them: bool) -> KeyedRun:
    """Return the newest row of each key of adjacent runs, oldest first, without expired rows.

    Tombstones stay, unless these are all the runs of the bucket.
    """
    if not runs:
        raise CallError("keyed rows: there are no state runs to overlay")
    result = runs[-1]
    for older in reversed(runs[:-1]):
        result = _overlay_two(older, result)
    if horizon_ms > TIME_MIN:
        result = result.where((result.time >= horizon_ms) | result.deleted)
    return result.where(~result.deleted) if all_of_them else result


def _overlay_two(older: KeyedRun, newer: KeyedRun) -> KeyedRun:
    taken = np.empty(older.rows + newer.rows, np.int64)
    count = int(kernels.overlay_order(older.high, older.low, newer.high, newer.low, taken))
    both = KeyedRun(
        high=np.concatenate([older.high, newer.high]),
        low=np.concatenate([older.low, newer.low]),
        time=np.concatenate([older.time, newer.time]),
        deleted=np.concatenate([older.deleted, newer.deleted]),
        columns=pa.concat_tables([older.columns, newer.columns]),
    )
    return both.take(taken[:count])


def tombstones(rows: KeyedRun) -> KeyedRun:
    """Return the same keys as deleted rows."""
    columns = rows.columns
    nulls = [pa.nulls(rows.rows, field.type) for field in columns.schema]
    return KeyedRun(
        high=rows.high,
        low=rows.low,
        time=rows.time,
        deleted=np.ones(rows.rows, np.bool_),
        columns=pa.table(nulls, schema=columns.schema),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The rows of a micro-batch by key: keys sorted by hash, rows of a key in order."""

    high: Hashes
    low: Hashes
    sequence: Positions
    starts: Positions
    """The position in `sequence` at which each key begins."""
    ends: Positions


def group_rows(hashes: tuple[Hashes, Hashes], order: npt.NDArray[np.int64] | None) -> Groups:
    """Group rows by key."""
    high, low = (half.astype(np.uint64, copy=False) for half in hashes)
    sequence = np.lexsort((low, high) if order is None else (order, low, high))
    ranked_high, ranked_low = high[sequence], low[sequence]
    is_first = np.ones(sequence.size, np.bool_)
    is_first[1:] = (ranked_high[1:] != ranked_high[:-1]) | (ranked_low[1:] != ranked_low[:-1])
    starts = np.flatnonzero(is_first)
    return Groups(
        high=ranked_high[starts],
        low=ranked_low[starts],
        sequence=sequence,
        starts=starts,
        ends=np.append(starts[1:], sequence.size),
    )


def check_columns(columns: Table, wanted: Sequence[str], rows: int) -> None:
    """Raise CallError unless the table has the columns, and a row for each hash."""
    missing = [name for name in wanted if name not in columns.schema.names]
    if missing:
        raise CallError(f"there is no column {missing[0]!r} among {columns.schema.names}")
    if columns.num_rows != rows:
        raise CallError(f"{columns.num_rows} rows and {rows} hashes: there must be as many of each")


def encode_keyed_run(run: KeyedRun, *, name: str, hash_seed: int) -> tuple[RunInfo, Buffers]:
    """Return the description of the run for the ledger, and its object."""
    if not run.rows:
        raise CallError(f"{name}: a state run must have at least one row")
    table = run.columns
    for column, values in zip(
        _OWN_COLUMNS, (run.high, run.low, run.time, run.deleted), strict=True
    ):
        table = table.append_column(column, pa.array(values))
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table.combine_chunks())
    body = [memoryview(sink.getvalue())]
    live = run.time[~run.deleted]
    middle = live.size // 2
    times = (
        TimeSpan(
            min_ms=int(live.min()),
            median_ms=int(np.partition(live, middle)[middle]),
            max_ms=int(live.max()),
        )
        if live.size
        else TimeSpan(min_ms=TIME_MAX, median_ms=TIME_MAX, max_ms=TIME_MAX)
    )
    return encode_run(
        RunLayout.ROWS, body, name=name, hash_seed=hash_seed, rows=run.rows, times=times
    )


def decode_keyed_run(data: bytes, *, info: RunInfo, hash_seed: int) -> KeyedRun:
    """Open the run that was pinned as `info`."""
    body = decode_run(data, kind=RunLayout.ROWS, info=info, hash_seed=hash_seed)
    try:
        table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
        own = [table.column(name).to_numpy() for name in _OWN_COLUMNS]
    except (pa.ArrowException, KeyError) as error:
        raise CorruptObject(f"{info.name}: its rows cannot be read: {error}") from error
    high, low, time, deleted = own
    if table.num_rows != info.rows:
        raise CorruptObject(
            f"{info.name}: it has {table.num_rows} rows; the ledger says {info.rows}"
        )
    return KeyedRun(
        high=high,
        low=low,
        time=time,
        deleted=deleted.astype(np.bool_),
        columns=table.drop_columns(list(_OWN_COLUMNS)),
    )
