"""One run of a pipeline: a session, a query, its sink, and an end that leaves nothing half done.

Runs on the driver. Owns the start of the query, the watch over it, and stopping between two
micro-batches. Must never decide what is committed: the ledger and the chains do, so a run may be
killed at any time.
"""

import json
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from holdfast.environment import Environment
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.spark.ledger.chain_sink import ChainLanding, ChainSink
from holdfast.spark.ledger.checkpoint import available_offsets, open_checkpoint
from holdfast.spark.ledger.checkpoint_folder import CheckpointFolder
from holdfast.spark.ledger.job import Aggregation, Dedup, Job, Operation, Timers
from holdfast.spark.ledger.ledger_sink import LedgerSink, arrow_schema
from holdfast.spark.pipelines.columns import check_columns
from holdfast.spark.pipelines.file import STARTS, PipelineFile
from holdfast.spark.pipelines.lag import NewestOffsets, lag_behind, lag_of
from holdfast.spark.pipelines.preflight import PipelineReady, Resume, resume
from holdfast.spark.pipelines.progress import BatchDone, IdleTime, Reporter, RunTotals, running_line
from holdfast.spark.pipelines.query_failure import WorkerDidNotStart, failure_of
from holdfast.spark.pipelines.steps import name_of
from holdfast.spark.runtime.command_session import job_session
from holdfast.spark.source.inputs import Input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.2
WORKER_STARTS_MAX = 8
"""How often a query is started again without a micro-batch in between.

Spark waits 10 s for a Python worker to start. On a busy machine that may take longer.
"""
COMMIT_S_MAX = 5.0
"""How long a stop waits for Spark to note that the last micro-batch is done.

Nothing is lost without the note: the micro-batch is recognised when it runs again.
"""
PROGRESS_S_MAX = 2.0
"""How long the line of a micro-batch waits for Spark's progress, which has the lag."""
QUIET_S = 1.0
"""How long a micro-batch must run, or none must run, before that is shown."""
LOOK_S = 10.0
"""How often an idle run asks the source for its newest offsets; the query asks each second."""
WAITING = "Waiting"
"""How the status message begins of a query that has started and has nothing to do."""
SHOWN_MAX = 8


class _Stopping(Exception):
    """Raised instead of starting a micro-batch after a stop was requested."""


class StoppableSink:
    """A foreachBatch function around a sink: after a stop, no further micro-batch begins.

    The one that is running finishes.
    """

    def __init__(self, sink: LedgerSink | ChainSink, environment: Environment) -> None:
        self.failure: Exception | None = None
        self._sink = sink
        self._environment = environment
        self._changed = threading.Condition()
        self._is_stopping = False
        self._running: int | None = None
        self._begun_s = 0.0
        self._done: list[BatchDone] = []

    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        with self._changed:
            if self._is_stopping:
                raise _Stopping
            self._running = batch_id
            self._begun_s = self._environment.monotonic()
        try:
            done = self._run(frame, batch_id)
        except Exception as error:
            self.failure = error
            raise
        finally:
            with self._changed:
                self._running = None
                self._changed.notify_all()
        with self._changed:
            self._done.append(done)

    def _run(self, frame: "DataFrame", batch_id: int) -> BatchDone:
        sink = self._sink
        before = dict(sink.totals)
        number = sink.ledger().next_number if isinstance(sink, LedgerSink) else 0
        sink(frame, batch_id)
        seconds = self._environment.monotonic() - self._begun_s
        if isinstance(sink, ChainSink):
            more = {name: n - before.get(name, 0) for name, n in sink.totals.items()}
            counts = {"rows": more["records"], "kept": more["records"]}
            if more["unreadable"]:
                counts["unreadable"] = more["unreadable"]
            return BatchDone(
                batch_id=batch_id, seconds=seconds, counts=counts, files=more["objects"]
            )
        last = sink.last
        if last is None or last.n < number:
            return BatchDone(batch_id=batch_id, seconds=seconds, counts={}, files=0, was_known=True)
        return BatchDone(
            batch_id=batch_id, seconds=seconds, counts=last.counts, files=len(last.files)
        )

    def taken(self) -> list[BatchDone]:
        """Return what was done since the last call."""
        with self._changed:
            done, self._done = self._done, []
            return done

    def running(self) -> tuple[int, float] | None:
        """Return the micro-batch that runs now, and for how many seconds; or None."""
        with self._changed:
            if self._running is None:
                return None
            return self._running, self._environment.monotonic() - self._begun_s

    def stop(self) -> None:
        with self._changed:
            self._is_stopping = True

    @property
    def was_stopped(self) -> bool:
        return self._is_stopping


def start_session(
    pipeline: PipelineFile,
    *,
    tell: Callable[[str], None],
    verbose: bool = False,
    stop: threading.Event | None = None,
) -> "SparkSession":
    """Start Spark for the pipeline; executors of a cluster get this package with the job."""
    name = f"holdfast run {pipeline.origin.name}"
    return job_session(pipeline.master, name, pipeline.conf, tell=tell, verbose=verbose, stop=stop)


def where_to_begin(
    pipeline: PipelineFile, ready: PipelineReady, folder: CheckpointFolder
) -> Resume | None:
    """Return where a new checkpoint continues, by what has landed; None for one that has begun."""
    if isinstance(pipeline.sink, Job) and ready.head is None and folder.has_committed():
        output = pipeline.sink.output
        raise ConfigurationError(
            f"the checkpoint {folder.location} belongs to a query that has already written output,"
            f" but the ledger of sink {output.sink_id} in {output.store} is empty: the earlier"
            " records would be missing there. Set `to` and `sink_id` back to what they were; or use"
            " --reset-checkpoint to start again at the source's startingOffsets"
        )
    return None if folder.has_begun() else resume(pipeline, ready)


def begin_text(begin: Resume | None, folder: CheckpointFolder) -> str:
    """Describe where the run continues, for a person."""
    if begin is not None:
        shown = sorted(begin.positions.items())[:SHOWN_MAX]
        places = ", ".join(f"{w} at {n if n >= 0 else 'its earliest'}" for w, n in shown)
        left = len(begin.positions) - len(shown)
        more = f" and {left} more" if left else ""
        return f"the checkpoint is new: continuing after {begin.by}: {places}{more}"
    if folder.has_begun():
        return f"continuing from the checkpoint {folder.location}"
    return f"a first run, with a new checkpoint in {folder.location}"


def described(
    pipeline: PipelineFile, ready: PipelineReady, folder: CheckpointFolder | None
) -> list[tuple[str, str]]:
    """Describe what a run would do, as pairs of a name and a text."""
    sink, options = pipeline.sink, pipeline.options
    waiting = offsets_text(ready)
    lines = [("source", f"{pipeline.where}: {waiting}")]
    if pipeline.transform is not None:
        lines.append(("transform", str(pipeline.transform)))
    if isinstance(sink, ChainLanding):
        lines.append(("output", f"{sink.store}: chains of {sink.template}, {sink.format}"))
    else:
        if sink.operation is not None:
            lines.append((name_of(sink.operation) or "", step_text(sink.operation)))
        output = sink.output
        folders = f", in folders of {', '.join(output.partition_by)}" if output.partition_by else ""
        lines.append(("output", f"{output.store}: sink {output.sink_id}, {output.format}{folders}"))
    lines += [("table", str(table)) for table in pipeline.tables]
    interval = pipeline.trigger.interval_ms
    when = "once" if interval is None else f"every {_seconds(interval)}"
    lines.append(("trigger", f"{when}, at most {options.offsets_per_trigger_max:,} records"))
    lines.append(("spark", pipeline.master))
    begin = "Spark has to read the checkpoint first" if folder is None else ""
    if folder is not None:
        begin = begin_text(where_to_begin(pipeline, ready, folder), folder)
    lines.append(("begin", begin))
    return lines


def step_text(operation: Operation) -> str:
    """Describe what a stateful step does, for a person."""
    by = ", ".join(operation.by)
    match operation:
        case Dedup(settings=settings):
            span = settings.within_ms
            return f"by {by}, {'for ever' if span is None else f'within {_seconds(span)}'}"
        case Aggregation(settings=settings):
            names = ", ".join(each.name for each in settings.aggregates)
            span = settings.idle_ms
            kept = "for ever" if span is None else f"forgotten after {_seconds(span)}"
            return f"{names} by {by}, {kept}"
        case Timers(settings=settings):
            return f"a row for each {by} without events for {_seconds(settings.after_ms)}"


def _seconds(ms: int) -> str:
    return f"{ms / 1000:,.0f} s" if ms >= 10_000 else f"{ms / 1000:,.3g} s"


def offsets_text(ready: PipelineReady) -> str:
    """Describe how much is in the source now."""
    topics = sorted({where.topic for where in ready.partitions})
    earliest = ready.source.earliest(ready.partitions)
    latest = ready.source.latest(ready.partitions)
    records = sum(latest[where] - earliest[where] for where in ready.partitions)
    return (
        f"{', '.join(topics[:SHOWN_MAX]) or 'no topic yet'}, {len(ready.partitions)} partitions,"
        f" {records:,} records"
    )


class RunningPipeline:
    """A query that runs, with its sink and its progress."""

    def __init__(
        self,
        spark: "SparkSession",
        pipeline: PipelineFile,
        *,
        begin: Resume | None,
        source: Input,
        environment: Environment,
    ) -> None:
        self.totals = RunTotals()
        self._pipeline = pipeline
        self._environment = environment
        self._untold: list[BatchDone] = []
        self._untold_s = 0.0
        self._idle: tuple[int, float] | None = None
        """Since when no micro-batch has run: wall clock (ms), monotonic clock (s)."""
        self._looked_s = 0.0
        frame = build_frame(spark, pipeline, begin)
        sink: LedgerSink | ChainSink
        if isinstance(pipeline.sink, ChainLanding):
            sink = ChainSink(pipeline.sink)
        else:
            checkpoint = open_checkpoint(spark, pipeline.checkpoint)
            sink = LedgerSink(pipeline.sink, checkpoint, followers=pipeline.tables)
            sink.catch_up()
        self._sink = StoppableSink(sink, environment)
        writer = frame.writeStream.foreachBatch(self._sink)
        writer = writer.option("checkpointLocation", pipeline.checkpoint)
        self._writer: Any = cast(Any, writer).trigger(**pipeline.trigger.for_spark())
        self._query: StreamingQuery = self._writer.start()
        self._starts_left = WORKER_STARTS_MAX
        self._newest = NewestOffsets(source, pipeline.options)

    def watch(self, stop: threading.Event, reporter: Reporter) -> bool:
        """Report until the query ends, or until a requested stop is done. True if it was stopped.

        Raises the error that the query ended with.
        """
        ended = False
        try:
            while not ended:
                if stop.is_set():
                    self._stop(reporter)
                    return True
                ended = self._await(POLL_S, reporter)
                self._report(reporter, is_final=ended)
            return False
        except HoldfastError:
            self._report(reporter, is_final=True)
            raise
        finally:
            self._newest.close()

    def _await(self, seconds: float, reporter: Reporter) -> bool:
        try:
            return bool(cast(Any, self._query).awaitTermination(seconds))
        except Exception as error:
            if self._sink.was_stopped and isinstance(self._sink.failure, _Stopping | None):
                return True
            found = self._failure(error)
            if not isinstance(found, WorkerDidNotStart) or not self._starts_left:
                raise found from error
            # Checkpoint and ledger say where it continues, as after any restart.
            reporter.tell("a Python worker did not start within 10 s: starting the query again")
            self._starts_left -= 1
            self._sink.failure = None
            self._query = self._writer.start()
            return False

    def _failure(self, error: Exception) -> HoldfastError:
        transform = self._pipeline.transform
        file = None if transform is None else str(transform.path)
        found = failure_of(self._sink.failure or error, file)
        if "checkpoint folder" not in str(found):
            return found
        return type(found)(
            f"{found} `holdfast run {self._pipeline.origin.name} --reset-checkpoint` renames this"
            " checkpoint and continues after the last entry of the ledger."
        )

    def _report(self, reporter: Reporter, *, is_final: bool = False) -> None:
        """Report what was done since the last call or, if nothing was, what is going on now."""
        done = self._sink.taken()
        if done:
            self._starts_left = WORKER_STARTS_MAX
            now_s = self._environment.monotonic()
            self._untold_s = self._untold_s if self._untold else now_s
            self._idle = (self._environment.now_ms(), now_s)
            self._untold += done
        running = self._sink.running()
        news = self._newest.news()
        if news is not None:
            reporter.tell(news)
        if self._untold:
            self._tell_done(reporter, is_final=is_final)
        elif running is not None:
            self._idle = None
            if running[1] >= QUIET_S:
                reporter.show(running_line(*running, self.totals))
            if running[1] >= LOOK_S:  # perhaps the source is why it takes so long
                self._look(since_s=0.0)
                self._newest.take()
        elif not is_final:
            self._tell_idle(reporter)

    def _tell_done(self, reporter: Reporter, *, is_final: bool) -> None:
        """Report micro-batches with the lag, which Spark knows a moment after they are done."""
        progress = self._progress()
        is_known = progress is not None and progress["batchId"] >= self._untold[-1].batch_id
        waited_s = self._environment.monotonic() - self._untold_s
        if not (is_known or is_final or waited_s >= PROGRESS_S_MAX):
            return
        self.totals.lag = None if progress is None else lag_of(progress)
        for batch in self._untold:
            self.totals.add(batch)
            reporter.batch(batch, self.totals)
        self._untold = []

    def _tell_idle(self, reporter: Reporter) -> None:
        query = cast(Any, self._query)._jsq
        now_s = self._environment.monotonic()
        if self._idle is None:
            if not str(query.status().message()).startswith(WAITING):
                return
            self._idle = (self._environment.now_ms(), now_s)
        since_ms, since_s = self._idle
        if now_s - since_s < QUIET_S:
            return
        self._look(since_s=since_s)
        newest = self._newest.take()
        if newest is not None:
            self.totals.lag = lag_behind(available_offsets(query), newest)
        reporter.idle(IdleTime(since_ms=since_ms, seconds=now_s - since_s), self.totals)

    def _look(self, *, since_s: float) -> None:
        """Ask for the source's newest offsets if the last look is old, or before `since_s`."""
        now_s = self._environment.monotonic()
        is_old = now_s - self._looked_s >= LOOK_S
        if self._looked_s < since_s or is_old:
            self._looked_s = now_s
            if not self._newest.ask():
                self.totals.lag = None
                if is_old:
                    self._newest.note_silence()

    def _progress(self) -> Mapping[str, Any] | None:
        newest = cast(Any, self._query)._jsq.lastProgress()
        return None if newest is None else json.loads(newest.json())

    def _stop(self, reporter: Reporter) -> None:
        """Let the running micro-batch finish, then end the query."""
        self._sink.stop()
        last: int | None = None
        while (running := self._sink.running()) is not None:
            last = running[0]
            reporter.show(f"stopping after batch {running[0]} ({running[1]:.0f} s)")
            if self._await(POLL_S, reporter):
                break
        deadline = self._environment.monotonic() + COMMIT_S_MAX
        while last is not None and self._environment.monotonic() < deadline:
            progress = self._progress()
            is_noted = progress is not None and progress["batchId"] == last
            if is_noted or self._await(POLL_S, reporter):
                break
        self._query.stop()
        self._report(reporter, is_final=True)


def check_transform(spark: "SparkSession", pipeline: PipelineFile) -> None:
    """Let Spark analyse the plan of the transform, without starting a query."""
    build_frame(spark, pipeline, None)


def build_frame(spark: "SparkSession", pipeline: PipelineFile, begin: Resume | None) -> "DataFrame":
    options = dict(pipeline.source)
    names = {name.lower() for name in options}
    if begin is not None:
        options = {name: v for name, v in options.items() if name.lower() not in STARTS}
        options["startingOffsets"] = begin.starting_offsets()
    if isinstance(pipeline.sink, Job) and "minpartitions" not in names:
        options["minPartitions"] = str(spark.sparkContext.defaultParallelism)
    frame = spark.readStream.format("holdfast").options(**cast(Any, options)).load()
    if pipeline.transform is None:
        return frame
    frame = pipeline.transform(frame)
    if isinstance(pipeline.sink, Job):
        check_columns(pipeline.sink, arrow_schema(frame), pipeline.origin)
    return frame
