"""Dedup of ranges in two passes: keys go through Spark's shuffle, rows never do.

Runs on the driver. The first pass reads the ranges for their keys, sends hashes and offsets to the
buckets, and learns which offsets are dropped or diverted. The second pass reads the ranges again
and writes all other records, from the worker that has read them. Reading twice costs less than
sending all rows once through the JVM and its shuffle. This is for stores only: a Kafka cluster
would have to send everything twice.

Owns the order of the passes. Must never commit a micro-batch whose passes saw different records: a
key that the first pass remembers and the second does not find would never be written.
"""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import StopError
from holdfast.keyed_state.pinned import Pinned
from holdfast.spark.ledger.exchange import Cutter, Sent, received, sent
from holdfast.spark.ledger.job import Dedup, Job
from holdfast.spark.ledger.picking import DedupVerdict, JudgeTask, PickTask
from holdfast.spark.ledger.range_shares import shares
from holdfast.spark.ledger.tasks import TaskReport
from holdfast.spark.source.inputs import Range, StoreWhere
from holdfast.spark.source.rows import RANGE, range_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SENT = ("topic", "partition", "offset")
WORK_TEXT = "task int, range binary"
TRIES = 3


class RecordsVanished(StopError):
    """Records were deleted between the passes, in every try."""


def ranges_of(frame: "DataFrame") -> list[Range]:
    """Return the ranges that a micro-batch of ranges is to read."""
    return [pickle.loads(bytes(row[0])) for row in frame.collect()]


def can_be_read_twice(ranges: Sequence[Range]) -> bool:
    return all(isinstance(wanted.where, StoreWhere) for wanted in ranges)


def dedup_reports(
    spark: "SparkSession",
    ranges: Sequence[Range],
    job: Job,
    operation: Dedup,
    *,
    number: int,
    pinned: Pinned,
) -> list[TaskReport]:
    """Run both passes and return the reports; start again if records vanished in between."""
    if not ranges:
        return []
    context: Any = spark.sparkContext
    groups = shares(ranges, context.defaultParallelism)
    work = context.parallelize(groups, len(groups))
    judge = JudgeTask(job=job, operation=operation, number=number, pinned=pinned)
    tasks = max(1, min(pinned.buckets, context.defaultParallelism))
    for _ in range(TRIES):
        verdict = _judged(work, judge, tasks=tasks)
        pick = PickTask(job=job, number=number, verdict=verdict)
        reports: list[TaskReport] = work.mapPartitionsWithIndex(partial(_pick, pick)).collect()
        if sum(report.counts["found"] for report in reports) == verdict.counts["rows"]:
            unreadable = sum(report.counts.get("unreadable", 0) for report in reports)
            counts = verdict.counts | ({"unreadable": unreadable} if unreadable else {})
            return [
                TaskReport(
                    files=[file for report in reports for file in report.files],
                    runs=verdict.runs,
                    counts=counts,
                    event_time_max_ms=verdict.event_time_max_ms,
                )
            ]
    raise RecordsVanished(
        f"sink {job.output.sink_id}: in {TRIES} tries, records were deleted after their keys were"
        " read and before they were written. Nothing was published: start the query again when"
        " retention has caught up, or give the topic more of it"
    )


def _judged(work: Any, judge: JudgeTask, *, tasks: int) -> DedupVerdict:
    cutter = Cutter(
        by=judge.operation.by,
        event_time=judge.operation.event_time,
        buckets=judge.pinned.buckets,
        tasks=tasks,
        hash_seed=judge.pinned.hash_seed,
        columns=SENT,
        tells_left_out=False,
    )
    pieces = work.mapPartitionsWithIndex(partial(_cut, cutter))
    by_task = pieces.partitionBy(tasks, partitionFunc=int)
    return DedupVerdict.of(by_task.mapPartitions(partial(_judge, judge)).collect())


def _cut(cutter: Cutter, task: int, groups: Iterable[Sequence[Range]]) -> Iterator[Sent]:
    for group in groups:
        yield from sent(cutter.pieces([range_batch(group)], task=task))


def _judge(judge: JudgeTask, pieces: Iterable[Sent]) -> Iterator[DedupVerdict]:
    yield judge.run(received(piece) for _, piece in pieces)


def _pick(pick: PickTask, task: int, groups: Iterable[Sequence[Range]]) -> Iterator[TaskReport]:
    for group in groups:
        yield pick.run([range_batch(group)], task=task)


def work_frame(spark: "SparkSession", groups: Sequence[Sequence[Range]]) -> Any:
    """Return a row for each range. One task reads a group's ranges, in each query on the frame."""
    rows = [(i, pickle.dumps(wanted)) for i, group in enumerate(groups) for wanted in group]
    frame = cast(Any, spark).createDataFrame(rows, WORK_TEXT)
    return frame.repartitionById(max(1, len(groups)), "task").select(RANGE)
