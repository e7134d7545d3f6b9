"""One bucket of one micro-batch: from its rows to its output and its new state runs.

Runs on executors. Owns how each operation treats the rows that came through the exchange, and the
state that this worker process has loaded. Must never use loaded state that is not exactly what the
ledger names.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from holdfast.columnar.arrow import pa
from holdfast.keyed_state.cache import StateCache
from holdfast.keyed_state.dedup import Bucket
from holdfast.keyed_state.dedup_task import run_dedup_task
from holdfast.keyed_state.keyed_rows import KeyedBucket
from holdfast.keyed_state.keyed_task import (
    load_keyed_bucket,
    no_rows,
    run_aggregate_task,
    run_timer_task,
)
from holdfast.keyed_state.pinned import Pinned, RunInfo
from holdfast.keyed_state.task_site import TaskSite
from holdfast.keyed_state.timers import may_be_due
from holdfast.spark.ledger.exchange import Piece, halves, times, without_keys
from holdfast.spark.ledger.job import DEADLINE, ENTRY, Aggregation, Dedup, Operation, Timers

_hash_buckets: StateCache[Bucket] = StateCache()
_keyed_buckets: StateCache[KeyedBucket] = StateCache()


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketDone:
    """The result of a bucket, if this attempt is committed."""

    output: list[Any] = field(default_factory=list[Any])
    late: list[Any] = field(default_factory=list[Any])
    runs: Sequence[RunInfo] | None = None
    """The state runs of the bucket from now on; None if it stays as it is."""
    counts: dict[str, int] = field(default_factory=dict[str, int])
    event_time_max_ms: int | None = None


def work_on(
    operation: Operation, site: TaskSite, pinned: Pinned, pieces: list[Piece], *, now_ms: int
) -> BucketDone:
    """Apply the operation to the rows of one bucket."""
    match operation:
        case Dedup():
            return _dedup(operation, site, pinned, pieces)
        case Aggregation():
            return _aggregate(operation, site, pinned, pieces)
        case Timers():
            return _timers(operation, site, pinned, pieces, now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysJudged:
    """What dedup does with a bucket's rows; tables with the columns that were sent."""

    kept: list[Any]
    dropped: Any
    diverted: Any
    runs: Sequence[RunInfo] | None
    counts: dict[str, int]
    event_time_max_ms: int | None


def judge(operation: Dedup, site: TaskSite, pinned: Pinned, pieces: list[Piece]) -> KeysJudged:
    """Decide which rows of a bucket are kept. Rows without a key are: they cannot be compared."""
    free = [without_keys(piece.rows) for piece in pieces if piece.keyless]
    keyless = sum(rows.num_rows for rows in free)
    keyed = [piece.rows for piece in pieces if not piece.keyless]
    if not keyed:
        return KeysJudged(
            kept=free,
            dropped=free[0].slice(0, 0),
            diverted=free[0].slice(0, 0),
            runs=None,
            counts={"rows": keyless, "kept": keyless, "keyless": keyless},
            event_time_max_ms=None,
        )
    table = pa.concat_tables(keyed)
    done = run_dedup_task(
        site, pinned, _hash_buckets, halves(table), times(table), settings=operation.settings
    )
    judged = done.judged
    rows = without_keys(table)
    is_diverted = judged.late & ~judged.keep
    return KeysJudged(
        kept=[*free, rows.filter(pa.array(judged.keep))],
        dropped=rows.filter(pa.array(~judged.keep & ~is_diverted)),
        diverted=rows.filter(pa.array(is_diverted)),
        runs=done.runs,
        counts={
            "rows": table.num_rows + keyless,
            "kept": judged.kept + keyless,
            "keyless": keyless,
            "duplicates": judged.duplicates,
            "late": judged.late_rows,
            "diverted": judged.diverted,
        },
        event_time_max_ms=done.event_time_max_ms,
    )


def _dedup(operation: Dedup, site: TaskSite, pinned: Pinned, pieces: list[Piece]) -> BucketDone:
    judged = judge(operation, site, pinned, pieces)
    return BucketDone(
        output=judged.kept,
        late=[judged.diverted] if judged.diverted.num_rows else [],
        runs=judged.runs,
        counts=judged.counts,
        event_time_max_ms=judged.event_time_max_ms,
    )


def _aggregate(
    operation: Aggregation, site: TaskSite, pinned: Pinned, pieces: list[Piece]
) -> BucketDone:
    if not pieces:
        return BucketDone()
    table = pa.concat_tables([piece.rows for piece in pieces])
    done = run_aggregate_task(
        site,
        pinned,
        _keyed_buckets,
        halves(table),
        times(table),
        without_keys(table),
        settings=operation.settings,
    )
    aggregated = done.aggregated
    output = aggregated.output
    diverted = int(np.count_nonzero(aggregated.diverted))
    return BucketDone(
        output=[_stamped(output.columns, site.number)] if output is not None else [],
        late=[without_keys(table).filter(pa.array(aggregated.diverted))] if diverted else [],
        runs=done.runs,
        counts={
            "rows": table.num_rows,
            "updated": output.rows if output is not None else 0,
            "late": int(np.count_nonzero(aggregated.late)),
            "diverted": diverted,
        },
        event_time_max_ms=done.event_time_max_ms,
    )


def _timers(
    operation: Timers, site: TaskSite, pinned: Pinned, pieces: list[Piece], now_ms: int
) -> BucketDone:
    if not pieces:
        if not may_be_due(pinned, site.bucket, now_ms=now_ms):
            return BucketDone()
        known = load_keyed_bucket(site, pinned, _keyed_buckets).newest
        if known is None:
            return BucketDone()
        hashes, columns = no_rows(known.columns.schema)
    else:
        table = pa.concat_tables([piece.rows for piece in pieces])
        hashes, columns = halves(table), without_keys(table).select(list(operation.by))
    done = run_timer_task(
        site,
        pinned,
        _keyed_buckets,
        hashes,
        columns,
        settings=operation.settings,
        now_ms=now_ms,
    )
    due = done.fired.due
    output: list[Any] = []
    if due is not None:
        deadlines = pa.array(due.time).cast(pa.timestamp("ms", tz="UTC"))
        output.append(_stamped(due.columns, site.number).append_column(DEADLINE, deadlines))
    return BucketDone(
        output=output,
        runs=done.runs,
        counts={
            "rows": hashes[0].size,
            "fired": due.rows if due is not None else 0,
        },
    )


def _stamped(columns: Any, number: int) -> Any:
    entry = pa.array(np.full(columns.num_rows, number, np.int64))
    return columns.append_column(ENTRY, entry)
