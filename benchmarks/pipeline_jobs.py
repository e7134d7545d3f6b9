"""`python -m benchmarks.pipeline_jobs WORK`: one variant of one row, in a process of its own.

Started by benchmarks.pipeline; prints lines with results. Everything is run once before it is
timed, so that the JVM has compiled what it needs and the kernels are loaded.
"""

import itertools
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from benchmarks import pipeline_latency
from benchmarks.pipeline_data import PARTITIONS
from benchmarks.pipeline_quiet import Others
from benchmarks.pipeline_spark import (
    OURS,
    SINK_ID,
    FileSinkCommits,
    LedgerCommits,
    session,
    source,
    stream,
)
from benchmarks.pipeline_work import (
    BACKFILL,
    DEDUP_EVER,
    DEDUP_WINDOW,
    LATENCY,
    MARK,
    RECOVERY,
    RECOVERY_WINDOW,
    RESULT,
    WINDOW,
    Result,
    Work,
)
from holdfast.spark import pipeline

STREAM_SECONDS_MAX = 400
ROWS_PER_SECOND = "rows/s"


class Wrong(Exception):
    """A variant did something else than the others: its figure would compare nothing."""


def backfill(work: Work) -> None:
    """Batch queries over the whole topic, into nothing and into Parquet."""
    spark = session(work)
    output = f"{work.folder}/parquet"
    runs: list[str] = []

    def read(share: float) -> Any:
        name, options = source(work)
        if share < 1:
            options["endingOffsets"] = _ending(work, share)
        options["startingOffsets"] = "earliest"
        return spark.read.format(name).options(**options).load()

    def noop(share: float) -> None:
        read(share).write.format("noop").mode("overwrite").save()

    def parquet(share: float) -> None:
        read(share).write.mode("overwrite").parquet(output)

    def past_the_jvm(share: float) -> None:
        # A folder of its own for each run: workers keep a store open.
        shutil.rmtree(output, ignore_errors=True)
        runs.append(f"{output}/{len(runs)}")
        _backfill_command(spark, work, share, runs[-1])

    steps: dict[str, Callable[[float], None]] = {"to noop": noop, "to Parquet": parquet}
    if work.variant in OURS:
        steps["to Parquet, past the JVM"] = past_the_jvm
    for name, step in steps.items():
        step(work.warm_up / work.records)
        shutil.rmtree(output, ignore_errors=True)
        others = Others([os.getpid(), *work.brokers])
        begun = time.monotonic()
        step(1)
        rows_per_second = work.records / (time.monotonic() - begun)
        tell(work, f"{BACKFILL} {name}", ROWS_PER_SECOND, rows_per_second, others)
        if name != "to noop":
            written = sum(pq.read_metadata(p).num_rows for p in Path(output).rglob("*.parquet"))
            _check(written == work.records, f"{written} of {work.records} rows in Parquet")
            shutil.rmtree(output)


def _backfill_command(spark: Any, work: Work, share: float, output: str) -> None:
    """What `holdfast backfill` does: from record batches to files and a ledger, in the workers."""
    from holdfast.spark.ledger.backfill import Backfill
    from holdfast.spark.ledger.backfill_plan import SLICE_RECORDS, BackfillRequest
    from holdfast.spark.ledger.job import Output
    from holdfast.spark.source.data_source import open_input
    from holdfast.spark.source.options import parse_options

    asked = BackfillRequest(topic=work.topic, to_offset=_offset(work, share) if share < 1 else None)
    opened = open_input(parse_options(source(work)[1], streaming=False))
    job = Backfill(asked, Output(store=output, sink_id=SINK_ID), opened)
    job.run(spark, watch=lambda *_: None, slice_records=SLICE_RECORDS)


def _offset(work: Work, share: float) -> int:
    """Where each partition is cut; the smallest has a little less than its sixth."""
    return int(work.records * share) // PARTITIONS


def _ending(work: Work, share: float) -> str:
    cut = {str(partition): _offset(work, share) for partition in range(PARTITIONS)}
    return msgspec.json.encode({work.topic: cut}).decode()


def dedup(work: Work) -> None:
    """All of the topic by micro-batches; the first is the warm-up, commits are what is timed."""
    spark = session(work)
    within = WINDOW if work.row == DEDUP_WINDOW else None
    frame = stream(spark, work, {"maxOffsetsPerTrigger": str(work.per_trigger)})
    others = Others([os.getpid(), *work.brokers])
    query = _start_dedup(work, frame, within, {"availableNow": True})
    if not query.awaitTermination(STREAM_SECONDS_MAX):
        query.stop()
        raise Wrong(f"not done in {STREAM_SECONDS_MAX} s")
    commits = _commits(work).files()
    times = [at for at, _ in commits]
    kept = sum(pq.read_metadata(path).num_rows for _, paths in commits for path in paths)
    _check(kept == work.ids, f"{kept} rows came out, and there are {work.ids} ids")
    rows = work.records - work.per_trigger
    tell(work, work.row, ROWS_PER_SECOND, rows / (times[-1] - times[0]), others)
    for before, after in itertools.pairwise(times):
        print(f"micro-batch {after - before:.3f} s", flush=True)


def _start_dedup(work: Work, frame: Any, within: str | None, trigger: dict[str, Any]) -> Any:
    lake, checkpoint = f"{work.folder}/lake", f"{work.folder}/checkpoint"
    if work.variant in OURS:
        event_time = "timestamp" if within is not None else None
        made = pipeline(frame).dedup(by="key", within=within, event_time=event_time)
        return made.to(lake, sink_id=SINK_ID).start(checkpoint, trigger=trigger).query
    if within is None:
        once = frame.dropDuplicates(["key"])
    else:
        once = frame.withWatermark("timestamp", within).dropDuplicatesWithinWatermark(["key"])
    writer = once.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    return writer.trigger(**trigger).start(lake)


def _commits(work: Work) -> LedgerCommits | FileSinkCommits:
    lake = Path(work.folder) / "lake"
    return LedgerCommits(lake) if work.variant in OURS else FileSinkCommits(lake)


def recovery(work: Work) -> None:
    """Build state and go on, until somebody kills this process."""
    spark = session(work)
    tell_mark("session")
    frame = stream(spark, work, {"maxOffsetsPerTrigger": str(work.per_trigger)})
    query = _start_dedup(work, frame, RECOVERY_WINDOW, {"processingTime": "0 seconds"})
    tell_mark("query")
    commits = _commits(work)
    _wait(lambda: commits.count() * work.per_trigger >= work.warm_up, query)
    tell_mark("state")
    query.awaitTermination(STREAM_SECONDS_MAX)


def _wait(condition: Callable[[], bool], query: Any) -> None:
    deadline = time.monotonic() + STREAM_SECONDS_MAX
    while not condition():
        _check(time.monotonic() < deadline, f"not done in {STREAM_SECONDS_MAX} s")
        if not query.isActive:
            raise Wrong(f"the query ended: {query.exception()}")
        time.sleep(0.02)


def tell(work: Work, row: str, metric: str, value: float, others: Others) -> None:
    result = Result(row=row, metric=metric, value=value, other_cores=others.cores())
    print(RESULT + msgspec.json.encode(result).decode(), flush=True)


def tell_mark(what: str) -> None:
    print(f"{MARK}{what} {time.time():.3f}", flush=True)


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise Wrong(message)


def latency(work: Work) -> None:
    """Records at a steady rate, from produce to visible."""
    spark = session(work)
    others = Others([os.getpid(), *work.brokers])
    for metric, value in pipeline_latency.measure(spark, work).items():
        tell(work, work.row, metric, value, others)


JOBS = {
    BACKFILL: backfill,
    DEDUP_EVER: dedup,
    DEDUP_WINDOW: dedup,
    LATENCY: latency,
    RECOVERY: recovery,
}


def main() -> None:
    work = msgspec.json.decode(sys.argv[1], type=Work)
    JOBS[work.row](work)


if __name__ == "__main__":
    main()
