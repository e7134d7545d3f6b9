"""Writes an old range of a topic to files, as a Spark batch job: in slices, one ledger entry each.

Runs on the driver. Owns the loop over slices. Tasks read ranges and write files, in parallel inside
partitions. A slice counts when its entry is published, so the job may be killed at any time, and
the next run continues after the newest entry. Must never publish a slice that does not begin there.
"""

import concurrent.futures
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import ConfigurationError
from holdfast.landing.ledger import Committed, Ledger, read_entry
from holdfast.landing.ledger_entry import Effects, Entry, OutputFile
from holdfast.landing.ledger_rules import AlreadyCommitted, Commit, CommitRefusal, CommitRefused
from holdfast.spark.ledger.backfill_plan import (
    SLICE_RECORDS,
    BackfillPlan,
    BackfillRequest,
    Slice,
    known_plan,
    new_plan,
    next_slice,
    span,
)
from holdfast.spark.ledger.job import Job, Output
from holdfast.spark.ledger.keys_first import work_frame
from holdfast.spark.ledger.ledger_sink import SinkRefused
from holdfast.spark.ledger.tasks import REPORT_TEXT, TaskReport, WriteTask, decode_report
from holdfast.spark.pipelines.query_failure import failure_of
from holdfast.spark.runtime.worker import worker
from holdfast.spark.source.inputs import Input, PlanOptions, Range

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.5
TASKS_PER_CORE = 3
"""More than one, so that the last tasks of a slice do not leave cores idle for long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillProgress:
    """The progress of a backfill."""

    done: int
    """Offsets of all committed slices, of this run and of earlier ones."""
    total: int
    before: int
    """The value of `done` when this run began."""
    rows: int
    files: int
    seconds: float
    unreadable: int = 0
    """Offsets of record batches that could not be read and are in quarantine."""

    @property
    def share(self) -> float:
        return self.done / self.total if self.total else 1.0

    def eta_s(self) -> float | None:
        """Return the seconds to the end at the rate of this run; None while there is no rate."""
        gained = self.done - self.before
        if gained <= 0 or self.seconds <= 0:
            return None
        return (self.total - self.done) * self.seconds / gained


Watch = Callable[[BackfillProgress, int, int], None]
"""A function that gets the progress, and how many tasks of the slice are done and exist."""


class Backfill:
    """One backfill: its request, its ledger and its plan."""

    def __init__(self, asked: BackfillRequest, output: Output, source: Input) -> None:
        self._asked = asked
        self._output = output
        self._source = source
        here = worker()
        store = here.writable(output.store)
        environment = here.environment
        self._ledger = here.run(Ledger.open(store, output.sink_id, environment=environment))
        first = here.run(read_entry(store, output.sink_id, 0, environment=environment))
        known = known_plan(None if first is None else first.entry, asked)
        self.is_new = known is None
        self.plan = self._checked(known) if known is not None else self._new_plan()
        self._rows = self._files = self._unreadable = 0
        self._begun_s = environment.monotonic()
        self._before = self._done()

    def _new_plan(self) -> BackfillPlan:
        topics = self._source.topics()
        return new_plan(self._asked, self._source, topics[self._asked.topic].all_partitions())

    def _checked(self, plan: BackfillPlan) -> BackfillPlan:
        _, end = plan.positions()
        topic = self._source.topics()[self._asked.topic]
        ids = {where.topic_id for where in end}
        if ids and ids != {topic.topic_id}:
            raise ConfigurationError(
                f"topic {topic.name!r} was deleted and created again since this backfill began (its"
                f" id was {next(iter(ids))}): choose another --sink-id"
            )
        return plan

    @property
    def topic(self) -> str:
        return self._asked.topic

    @property
    def head(self) -> Entry | None:
        return self._ledger.head

    def standing(self) -> BackfillProgress:
        start, end = self.plan.positions()
        return BackfillProgress(
            done=self._done(),
            total=span(start, end),
            before=self._before,
            rows=self._rows,
            files=self._files,
            unreadable=self._unreadable,
            seconds=worker().environment.monotonic() - self._begun_s,
        )

    def _done(self) -> int:
        start, end = self.plan.positions()
        left = next_slice(self.plan, self._ledger.head, span(start, end) or 1)
        return span(start, end) - (left.records if left is not None else 0)

    def is_done(self) -> bool:
        return next_slice(self.plan, self._ledger.head, SLICE_RECORDS) is None

    def run(self, spark: "SparkSession", *, watch: Watch, slice_records: int) -> None:
        """Run all slices that are left."""
        while True:
            worker().run(self._ledger.refresh())
            wanted = next_slice(self.plan, self._ledger.head, slice_records)
            if wanted is None:
                return
            self._run_slice(spark, wanted, watch)

    def _run_slice(self, spark: "SparkSession", wanted: Slice, watch: Watch) -> None:
        batch = wanted.micro_batch(self._asked.topic)
        decision = worker().run(self._ledger.plan(batch))
        if isinstance(decision, AlreadyCommitted):
            return
        if not isinstance(decision, Commit):
            raise SinkRefused(decision.message)
        ranges = self._ranges(spark, wanted)
        job = Job(output=self._output)
        reports = self._watched(spark, WriteTask(job=job, number=decision.n), ranges, watch)
        files: list[OutputFile] = [file for report in reports for file in report.files]
        rows = sum(report.counts.get("rows", 0) for report in reports)
        unreadable = sum(report.counts.get("unreadable", 0) for report in reports)
        effects = Effects(
            files=tuple(files),
            counts={"rows": rows, "kept": rows}
            | ({"unreadable": unreadable} if unreadable else {}),
            metadata=self.plan.metadata() if decision.n == 0 else {},
        )
        outcome = worker().run(self._ledger.commit(batch, effects, n=decision.n))
        # If another run was faster, or a compaction came in between, the ledger counts, and the
        # next look at it says what is left.
        if isinstance(outcome, CommitRefused) and outcome.refusal is not CommitRefusal.OVERTAKEN:
            raise SinkRefused(outcome.message)
        if isinstance(outcome, Committed):
            self._rows += rows
            self._files += len(files)
            self._unreadable += unreadable
        watch(self.standing(), len(ranges), len(ranges))

    def _ranges(self, spark: "SparkSession", wanted: Slice) -> list[Range]:
        options = PlanOptions(
            min_partitions=spark.sparkContext.defaultParallelism * TASKS_PER_CORE,
            include_headers=self._asked.include_headers,
            fail_on_unreadable=False,
            quarantine_store=self._output.store,
        )
        return self._source.plan(wanted.start, wanted.end, options)

    def _watched(
        self, spark: "SparkSession", task: WriteTask, ranges: Sequence[Range], watch: Watch
    ) -> list[TaskReport]:
        """Run the tasks in another thread, so that this one can report their progress."""
        if not ranges:
            return []
        with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
            future = pool.submit(run_tasks, spark, task, ranges)
            try:
                while not concurrent.futures.wait([future], timeout=POLL_S).done:
                    watch(self.standing(), tasks_done(spark), len(ranges))
                return future.result()
            except Exception as error:
                raise failure_of(error) from error
            finally:
                if not future.done():
                    spark.sparkContext.cancelAllJobs()


def run_tasks(spark: "SparkSession", task: WriteTask, ranges: Sequence[Range]) -> list[TaskReport]:
    """Run one task for each range and return their reports."""
    work = work_frame(spark, [[wanted] for wanted in ranges])
    done = work.mapInArrow(partial(_in_task, task), REPORT_TEXT).collect()
    return [decode_report(bytes(row[0])) for row in done]


def tasks_done(spark: "SparkSession") -> int:
    """Return how many tasks of the running stage are done."""
    tracker = cast(Any, spark.sparkContext.statusTracker())
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return max((stage.numCompletedTasks for stage in stages if stage is not None), default=0)


def _in_task(task: WriteTask, batches: Iterable[Any]) -> Iterator[Any]:
    from pyspark import TaskContext

    context = TaskContext.get()
    return task.run(batches, task=context.partitionId() if context is not None else 0)
