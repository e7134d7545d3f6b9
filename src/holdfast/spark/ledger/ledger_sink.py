"""Commits one micro-batch to a ledger: source offsets, state and output become visible together.

Runs on the driver, as the foreachBatch function. Owns the order of steps: ask the ledger, run the
tasks on the state that its newest entry pins, publish one entry. That entry is the commit point.
Spark's own commit comes later and may be lost. Must never publish twice, nor on top of an entry
that it has not seen.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from holdfast.columnar.schema import SCHEMA_WITH_HEADERS
from holdfast.errors import StopError
from holdfast.keyed_state.dedup import LatePolicy
from holdfast.keyed_state.pinned import (
    Pinned,
    RunInfo,
    encode_pinned,
    next_watermark,
    nothing_pinned,
)
from holdfast.landing.ledger import Committed, Ledger
from holdfast.landing.ledger_entry import Effects, Entry, MicroBatch, OutputFile
from holdfast.landing.ledger_rules import AlreadyCommitted, CommitRefusal, CommitRefused
from holdfast.spark.ledger.checkpoint import Checkpoint
from holdfast.spark.ledger.exchange import SCHEMA_TEXT, TICK, Cutter
from holdfast.spark.ledger.job import CLOCK_ALLOWANCE_MS, Aggregation, Dedup, Job, Operation, Timers
from holdfast.spark.ledger.job_state import StateRefused, state_before
from holdfast.spark.ledger.keys_first import can_be_read_twice, dedup_reports, ranges_of, work_frame
from holdfast.spark.ledger.tasks import (
    REPORT_TEXT,
    StatefulTask,
    TaskReport,
    WriteTask,
    decode_report,
)
from holdfast.spark.runtime.worker import worker
from holdfast.spark.source.rows import RANGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOGGER = logging.getLogger("holdfast.spark.sink")
OVERTAKEN_TRIES = 3
SEED_BITS = 63


class SinkRefused(StopError):
    """The ledger does not take this micro-batch: going on would duplicate or skip records."""


class LedgerFollower(Protocol):
    """A table, or anything else that follows the ledger.

    `catch_up` is called again and again, until the follower has all committed entries.
    """

    def catch_up(self, ledger: Ledger) -> None: ...


class _Task(Protocol):
    def run(self, batches: Iterable[Any], *, task: int) -> Iterator[Any]: ...


class LedgerSink:
    """The foreachBatch function, with the totals of what it has done so far."""

    def __init__(
        self, job: Job, checkpoint: Checkpoint, *, followers: tuple[LedgerFollower, ...] = ()
    ) -> None:
        self.job = job
        self.last: Entry | None = None
        """The newest entry of the ledger, after each micro-batch."""
        self.totals: dict[str, int] = {}
        self._checkpoint = checkpoint
        self._followers = followers
        self._ledger: Ledger | None = None

    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        ledger = self.ledger()
        for _ in range(OVERTAKEN_TRIES):
            head = worker().run(ledger.refresh())
            known = tuple(source.end for source in head.sources) if head is not None else None
            batch = self._checkpoint.micro_batch(batch_id, known)
            outcome = self._run(frame, ledger, batch)
            if isinstance(outcome, CommitRefused):
                if outcome.refusal is CommitRefusal.OVERTAKEN:
                    continue  # a compaction came between: the same rows, on the newest entry
                raise SinkRefused(outcome.message)
            self._note(outcome)
            self.catch_up()
            return
        raise SinkRefused(
            f"sink {self.job.output.sink_id}: other entries came between {OVERTAKEN_TRIES} times;"
            " stop whatever else writes to this ledger, and start the query again"
        )

    def ledger(self) -> Ledger:
        """Return the ledger of the sink, which is opened once."""
        if self._ledger is None:
            here = worker()
            output = self.job.output
            self._ledger = here.run(
                Ledger.open(
                    here.writable(output.store), output.sink_id, environment=here.environment
                )
            )
        return self._ledger

    def catch_up(self) -> None:
        """Let the tables follow the ledger.

        Also called before the first micro-batch: a driver may have died between ledger and table,
        and the next record may be long in coming.
        """
        for follower in self._followers:
            follower.catch_up(self.ledger())

    def _run(
        self, frame: "DataFrame", ledger: Ledger, batch: MicroBatch
    ) -> Committed | AlreadyCommitted | CommitRefused:
        decision = worker().run(ledger.plan(batch))
        if isinstance(decision, AlreadyCommitted | CommitRefused):
            return decision
        pinned = self._pinned(ledger.head, frame)
        reports = _reports(frame, self.job, decision.n, pinned)
        effects = self._effects(reports, pinned)
        return worker().run(ledger.commit(batch, effects, n=decision.n))

    def _pinned(self, head: Entry | None, frame: "DataFrame") -> Pinned | None:
        """Return exactly the state that the newest entry names; refuse a job that does not fit."""
        schema = arrow_schema(frame)
        found = state_before(self.job, head, schema)
        if isinstance(found, StateRefused):
            raise SinkRefused(found.message)
        operation = self.job.operation
        if found is not None or operation is None:
            return found
        return nothing_pinned(
            operation.operator(schema),
            buckets=operation.buckets,
            hash_seed=worker().environment.random().getrandbits(SEED_BITS),
        )

    def _effects(self, reports: list[TaskReport], pinned: Pinned | None) -> Effects:
        files: list[OutputFile] = []
        runs: dict[int, list[RunInfo]] = {}
        counts: dict[str, int] = {}
        times: list[int] = []
        for report in reports:
            files += report.files
            runs.update(report.runs)
            for name, number in report.counts.items():
                counts[name] = counts.get(name, 0) + number
            if report.event_time_max_ms is not None:
                times.append(report.event_time_max_ms)
        if pinned is None:
            return Effects(files=tuple(files), counts=counts)
        watermark = next_watermark(
            pinned.event_time_watermark_ms,
            max(times, default=None),
            now_ms=worker().environment.now_ms(),
            allowance_ms=CLOCK_ALLOWANCE_MS,
        )
        after = pinned.with_runs(runs, event_time_watermark_ms=watermark)
        counts["state_rows"] = sum(run.rows for bucket in after.runs for run in bucket)
        counts["state_bytes"] = sum(run.bytes for bucket in after.runs for run in bucket)
        return Effects(
            files=tuple(files),
            state=encode_pinned(after),
            counts=counts,
            event_time_watermark_ms=watermark,
        )

    def _note(self, outcome: Committed | AlreadyCommitted) -> None:
        if isinstance(outcome, AlreadyCommitted):
            self.last = self.ledger().head
            LOGGER.info("micro_batch_known sink=%s n=%d", self.job.output.sink_id, outcome.n)
            return
        self.last = outcome.entry
        for name, number in outcome.entry.counts.items():
            is_gauge = name.startswith("state_")
            self.totals[name] = number if is_gauge else self.totals.get(name, 0) + number


def _reports(frame: "DataFrame", job: Job, number: int, pinned: Pinned | None) -> list[TaskReport]:
    """Run the tasks and return their reports."""
    operation = job.operation
    if operation is None or pinned is None:
        done = _mapped(frame, partial(_in_task, WriteTask(job=job, number=number)), REPORT_TEXT)
    elif isinstance(operation, Dedup) and frame.columns == [RANGE]:
        ranges = ranges_of(frame)
        if can_be_read_twice(ranges):
            return dedup_reports(
                frame.sparkSession, ranges, job, operation, number=number, pinned=pinned
            )
        done = _with_state(
            work_frame(frame.sparkSession, [[r] for r in ranges]), job, operation, number, pinned
        )
    else:
        done = _with_state(frame, job, operation, number, pinned)
    return [decode_report(bytes(row[0])) for row in done.collect()]


def _with_state(
    frame: "DataFrame", job: Job, operation: Operation, number: int, pinned: Pinned
) -> "DataFrame":
    tasks = max(1, min(pinned.buckets, frame.sparkSession.sparkContext.defaultParallelism))
    cutter = Cutter(
        by=operation.by,
        event_time=operation.event_time,
        buckets=pinned.buckets,
        tasks=tasks,
        hash_seed=pinned.hash_seed,
        columns=_columns_sent(operation),
    )
    task = StatefulTask(
        job=job,
        operation=operation,
        number=number,
        pinned=pinned,
        tasks=tasks,
        now_ms=worker().environment.now_ms(),
    )
    pieces = _mapped(frame, partial(_cut_in_task, cutter), SCHEMA_TEXT)
    if isinstance(operation, Timers):
        ticks = [(i, TICK, 0, False, b"") for i in range(tasks)]
        pieces = pieces.unionAll(cast(Any, frame.sparkSession).createDataFrame(ticks, SCHEMA_TEXT))
    return _mapped(pieces.repartitionById(tasks, "task"), partial(_in_task, task), REPORT_TEXT)


def _columns_sent(operation: Operation) -> tuple[str, ...] | None:
    match operation:
        case Aggregation(settings=settings) if settings.late is LatePolicy.KEEP:
            return tuple(settings.inputs())
        case Timers():
            return operation.by
        case _:
            return None


def arrow_schema(frame: "DataFrame") -> Any:
    """Return the Arrow schema of a DataFrame's rows."""
    from pyspark.sql.pandas import types

    if frame.columns == [RANGE]:
        return SCHEMA_WITH_HEADERS
    return cast(Any, types).to_arrow_schema(frame.schema, timezone="UTC")


def _mapped(frame: "DataFrame", run: Callable[[Iterable[Any]], Iterator[Any]], schema: str) -> Any:
    return cast(Any, frame).mapInArrow(run, schema)


def _in_task(task: _Task, batches: Iterable[Any]) -> Iterator[Any]:
    return task.run(batches, task=_partition_id())


def _cut_in_task(cutter: Cutter, batches: Iterable[Any]) -> Iterator[Any]:
    return cutter.pieces(batches, task=_partition_id())


def _partition_id() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context is not None else 0
