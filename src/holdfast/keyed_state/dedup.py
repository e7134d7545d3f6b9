"""Dedup by key hash: which records of a micro-batch are kept, and what is remembered of them.

Pure. Owns the meaning of a duplicate. With `within`, `lateness`, and the event-time watermark W
that was pinned before this micro-batch:

    remembered   every kept record of this micro-batch, and every kept record of earlier ones whose
                 event time is not before the horizon W - lateness - within
    duplicate    a record whose key has a remembered record at most `within` away in event time, on
                 either side, that was kept before it. Records are judged in the order of `order`
    late         a record that is no duplicate and is before W - lateness: the record that would
                 show it to be one may be forgotten. It is kept or diverted, and counted
    kept         every other record

A record must never be lost because it is out of order or late. Whatever is dropped has its twin in
the output. A diverted record is not in the output, and so makes no other record a duplicate. The
result depends only on the pinned state and the micro-batch, never on when runs were merged: an
entry before the horizon is ignored even if its bytes still exist. So a replay gives the same
result. `within=None` means for ever: nothing expires and nothing is late.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from holdfast.errors import CallError, CorruptObject
from holdfast.keyed_state import kernels
from holdfast.keyed_state.pinned import SPAN_MS_MAX, TIME_MIN, Hashes, Operator, RunInfo, Times
from holdfast.keyed_state.run_file import RunLayout, TimeSpan, decode_run, encode_run
from holdfast.store.interface import Buffers

KIND = "dedup"
ROW_BYTES = 24
_ROWS_PER_SLOT = 8
"""Entries per value of a run's index, so that a search ends within one or two cache lines."""

Mask = npt.NDArray[np.bool_]


class LatePolicy(enum.Enum):
    """The fate of a record that can no longer be judged."""

    KEEP = "keep"
    DIVERT = "divert"


class DedupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The time within which two records with one key are duplicates. None means any time."""

    within_ms: int | None = None
    lateness_ms: int | None = None
    """The time behind the watermark in which a record is still judged. None means `within_ms`."""
    late: LatePolicy = LatePolicy.KEEP

    def __post_init__(self) -> None:
        for name, span in (("within_ms", self.within_ms), ("lateness_ms", self.lateness_ms)):
            if span is not None and not 0 <= span <= SPAN_MS_MAX:
                raise CallError(f"dedup: {name} is {span}; use 0 to {SPAN_MS_MAX}")

    @property
    def _lateness_ms(self) -> int:
        return (self.within_ms or 0) if self.lateness_ms is None else self.lateness_ms

    def operator(self, **parameters: object) -> Operator:
        """Return the operator for the ledger to pin. The caller adds key columns and the like."""
        mine = {"within_ms": self.within_ms, "lateness_ms": self._lateness_ms}
        return Operator(kind=KIND, parameters={**parameters, **mine})

    def late_before_ms(self, watermark_ms: int | None) -> int:
        """Return the time before which a record is late, unless it is a duplicate."""
        if self.within_ms is None or watermark_ms is None:
            return TIME_MIN
        return max(TIME_MIN, watermark_ms - self._lateness_ms)

    def horizon_ms(self, watermark_ms: int | None) -> int:
        """Return the time before which entries are forgotten."""
        return max(TIME_MIN, self.late_before_ms(watermark_ms) - (self.within_ms or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class HashRun:
    """Entries sorted by hash, then by event time."""

    high: Hashes
    low: Hashes
    time: Times

    def __post_init__(self) -> None:
        for name in ("high", "low", "time"):
            object.__setattr__(self, name, kernels.read_only(getattr(self, name)))

    @property
    def rows(self) -> int:
        return self.high.size

    @property
    def nbytes(self) -> int:
        return self.rows * ROW_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedRun:
    """A run with an index: the first entry for each value of the top bits of the high half."""

    run: HashRun
    starts: npt.NDArray[np.int64]
    shift: np.uint64

    @property
    def nbytes(self) -> int:
        return self.run.nbytes + self.starts.nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Everything that is remembered of the keys of one state bucket."""

    runs: tuple[IndexedRun, ...] = ()

    @staticmethod
    def load(runs: Sequence[HashRun]) -> "Bucket":
        return Bucket(runs=tuple(index_run(run) for run in runs))

    @property
    def rows(self) -> int:
        return sum(indexed.run.rows for indexed in self.runs)

    @property
    def nbytes(self) -> int:
        return sum(indexed.nbytes for indexed in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupResult:
    """The fate of each row of a micro-batch."""

    keep: Mask
    late: Mask
    """Rows that could not be judged. They are kept if `keep` is true, otherwise diverted."""
    remembered: HashRun
    """The new entries. If there are none, no run is written."""

    @property
    def kept(self) -> int:
        return int(np.count_nonzero(self.keep))

    @property
    def late_rows(self) -> int:
        return int(np.count_nonzero(self.late))

    @property
    def diverted(self) -> int:
        return int(np.count_nonzero(self.late & ~self.keep))

    @property
    def duplicates(self) -> int:
        return self.keep.size - self.kept - self.diverted


def dedup(
    bucket: Bucket,
    hashes: tuple[Hashes, Hashes],
    event_times: Times,
    order: npt.NDArray[np.int64] | None = None,
    *,
    settings: DedupSettings,
    watermark_ms: int | None,
) -> DedupResult:
    """Judge the rows of one micro-batch against one bucket.

    `hashes` are the high and the low halves. The row with the lowest `order` is the first. If
    `order` is None, rows are in order. `watermark_ms` is the one pinned before this micro-batch.
    """
    high, low = (kernels.read_only(half.astype(np.uint64, copy=False)) for half in hashes)
    times = kernels.read_only(event_times.astype(np.int64, copy=False))
    rows = high.size
    if not rows == low.size == times.size or (order is not None and order.size != rows):
        raise CallError(
            f"dedup: {rows} high and {low.size} low halves of hashes and {times.size} event times:"
            " there must be as many of each"
        )
    horizon = settings.horizon_ms(watermark_ms)
    within = -1 if settings.within_ms is None else settings.within_ms
    seen = np.zeros(rows, np.bool_)
    for indexed in bucket.runs:
        run = indexed.run
        kernels.mark_seen(
            run.high,
            run.low,
            run.time,
            indexed.starts,
            indexed.shift,
            high,
            low,
            times,
            np.int64(within),
            np.int64(horizon),
            seen,
        )
    bits = max(4, (2 * rows - 1).bit_length())
    keep, late = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
    kernels.keep_first(
        high,
        low,
        times,
        np.empty(0, np.int64) if order is None else np.argsort(order, kind="stable"),
        seen,
        np.int64(within),
        np.int64(settings.late_before_ms(watermark_ms)),
        settings.late is LatePolicy.DIVERT,
        np.full(1 << bits, -1, np.int32 if rows < 2**31 else np.int64),
        np.uint64(64 - bits),
        keep,
        late,
    )
    new = keep if horizon == TIME_MIN else keep & (times >= horizon)
    return DedupResult(keep=keep, late=late, remembered=sorted_run(high[new], low[new], times[new]))


def sorted_run(high: Hashes, low: Hashes, time: Times) -> HashRun:
    """Return a run of entries that are given in any order."""
    by_high = np.argsort(high)
    ranked = high[by_high]
    if np.any(ranked[1:] == ranked[:-1]):
        by_high = np.lexsort((time, low, high))
        ranked = high[by_high]
    return HashRun(high=ranked, low=low[by_high], time=time[by_high])


def index_run(run: HashRun) -> IndexedRun:
    """Return the run with an index for searching."""
    bits = max(1, (run.rows // _ROWS_PER_SLOT).bit_length())
    shift = np.uint64(64 - bits)
    firsts = np.arange(1 << bits, dtype=np.uint64) << shift
    starts = np.empty((1 << bits) + 1, np.int64)
    starts[:-1] = np.searchsorted(run.high, firsts)
    starts[-1] = run.rows
    return IndexedRun(run=run, starts=starts, shift=shift)


def merge_runs(runs: Sequence[HashRun], *, horizon_ms: int) -> HashRun:
    """Merge all entries that are not before the horizon into one run, smallest runs first."""
    if not runs:
        raise CallError("dedup: there are no state runs to merge")
    queue = sorted(runs, key=lambda run: run.rows)
    while len(queue) > 1 or horizon_ms > TIME_MIN:
        first = queue.pop(0)
        second = (
            queue.pop(0)
            if queue
            else HashRun(high=first.high[:0], low=first.low[:0], time=first.time[:0])
        )
        rows = first.rows + second.rows
        high, low = np.empty(rows, np.uint64), np.empty(rows, np.uint64)
        time = np.empty(rows, np.int64)
        count = int(
            kernels.merge_two(
                first.high,
                first.low,
                first.time,
                second.high,
                second.low,
                second.time,
                np.int64(horizon_ms),
                high,
                low,
                time,
            )
        )
        if count < rows:
            high, low, time = high[:count].copy(), low[:count].copy(), time[:count].copy()
        merged = HashRun(high=high, low=low, time=time)
        if not queue:
            return merged
        queue.append(merged)
        queue.sort(key=lambda run: run.rows)
    return queue[0]


def encode_hash_run(run: HashRun, *, name: str, hash_seed: int) -> tuple[RunInfo, Buffers]:
    """Return the description of the run for the ledger, and its object."""
    if not run.rows:
        raise CallError(f"{name}: a state run must have at least one entry")
    middle = run.rows // 2
    times = TimeSpan(
        min_ms=int(run.time.min()),
        median_ms=int(np.partition(run.time, middle)[middle]),
        max_ms=int(run.time.max()),
    )
    body = [
        column.astype(kind, copy=False).view(np.uint8).data
        for column, kind in ((run.high, "<u8"), (run.low, "<u8"), (run.time, "<i8"))
    ]
    return encode_run(
        RunLayout.HASHES, body, name=name, hash_seed=hash_seed, rows=run.rows, times=times
    )


def decode_hash_run(data: bytes, *, info: RunInfo, hash_seed: int) -> HashRun:
    """Open the run that was pinned as `info`, without a copy."""
    body = decode_run(data, kind=RunLayout.HASHES, info=info, hash_seed=hash_seed)
    if len(body) != info.rows * ROW_BYTES:
        raise CorruptObject(
            f"{info.name}: its {len(body)} bytes of rows do not fit its {info.rows} rows"
        )
    return HashRun(
        high=np.frombuffer(body, "<u8", info.rows),
        low=np.frombuffer(body, "<u8", info.rows, info.rows * 8),
        time=np.frombuffer(body, "<i8", info.rows, info.rows * 16),
    )
