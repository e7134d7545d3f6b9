"""One run of a pipeline: a session, a query, its sink, and an end that leaves nothing half done.

Runs on the driver. Owns the start of the query, the watch over it, and stopping between two
micro-batches. What is committed, and whether, is the ledger's and the chains' to say: a run may be
killed anywhere.
"""

import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from holdfast.environment import Environment
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.spark.chain_sink import ChainSink, Landing
from holdfast.spark.checkpoint import open_checkpoint
from holdfast.spark.checkpoint_folder import CheckpointFolder
from holdfast.spark.job import Aggregation, Dedup, Job, Operation, Timers
from holdfast.spark.ledger_sink import LedgerSink, arrow_schema
from holdfast.spark.pipeline_columns import check_columns
from holdfast.spark.pipeline_file import STARTS, PipelineFile
from holdfast.spark.pipeline_steps import name_of
from holdfast.spark.preflight import Ready, Resume, resume
from holdfast.spark.progress import BatchDone, Reporter, Totals, lag_of, running_line
from holdfast.spark.query_failure import failure_of
from holdfast.spark.session import is_local, package_zip, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.2
COMMIT_S_MAX = 5.0
"""How long a stop waits for Spark to note that the last micro-batch is done; a courtesy."""
SHOWN_MAX = 8
QUIET: Mapping[str, str] = {"spark.log.level": "FATAL"}
"""A failure is told in one line; Spark's own log would bury it."""


class _Stopping(Exception):
    """No micro-batch begins after a stop was asked for."""


class StoppableSink:
    """The function of foreachBatch around a sink: lets one finish, and none begin after a stop."""

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
        """What was done since this was asked last."""
        with self._changed:
            done, self._done = self._done, []
            return done

    def running(self) -> tuple[int, float] | None:
        """The micro-batch that runs now, and for how many seconds."""
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


def start_session(pipeline: PipelineFile, *, verbose: bool = False) -> "SparkSession":
    """A Spark for the pipeline; on a cluster its executors get this package with the job."""
    name = f"holdfast run {pipeline.origin.name}"
    return job_session(pipeline.master, name, pipeline.conf, verbose=verbose)


def job_session(
    master: str, name: str, conf: Mapping[str, str], *, verbose: bool = False
) -> "SparkSession":
    """A Spark for a command: quiet, out of its signals' reach, with this package on executors."""
    wanted = {**({} if verbose else QUIET), **conf}
    if not is_local(master) and "spark.submit.pyFiles" not in wanted:
        wanted["spark.submit.pyFiles"] = str(package_zip())
    return session(master, app_name=name, config=wanted, apart=True)


def where_to_begin(pipeline: PipelineFile, ready: Ready, folder: CheckpointFolder) -> Resume | None:
    """A new checkpoint goes on by what has landed; one that has begun knows by itself."""
    if isinstance(pipeline.sink, Job) and ready.head is None and folder.has_committed():
        output = pipeline.sink.output
        raise ConfigurationError(
            f"the checkpoint {folder.location} is of a query that has committed micro-batches, and"
            f" the ledger of sink {output.sink_id} in {output.store} is empty: what came before"
            " would be missing there. Put output and sink_id back as they were; or run it with"
            " --reset-checkpoint, which begins anew at the source's startingOffsets"
        )
    return None if folder.has_begun() else resume(pipeline, ready)


def begin_text(begin: Resume | None, folder: CheckpointFolder) -> str:
    """Where the run goes on, for a person."""
    if begin is not None:
        shown = sorted(begin.positions.items())[:SHOWN_MAX]
        places = ", ".join(f"{w} at {n if n >= 0 else 'its earliest'}" for w, n in shown)
        left = len(begin.positions) - len(shown)
        more = f" and {left} more" if left else ""
        return f"the checkpoint is new: going on after {begin.by}: {places}{more}"
    if folder.has_begun():
        return f"going on from the checkpoint {folder.location}"
    return f"a first run, with a new checkpoint in {folder.location}"


def described(
    pipeline: PipelineFile, ready: Ready, folder: CheckpointFolder | None
) -> list[tuple[str, str]]:
    """What a run would do, as lines of a name and a text."""
    sink, options = pipeline.sink, pipeline.options
    waiting = offsets_text(ready)
    lines = [("source", f"{pipeline.where}: {waiting}")]
    if pipeline.transform is not None:
        lines.append(("transform", str(pipeline.transform)))
    if isinstance(sink, Landing):
        lines.append(("output", f"{sink.store}: chains of {sink.template}, {sink.format}"))
    else:
        if sink.operation is not None:
            lines.append((name_of(sink.operation) or "", step_text(sink.operation)))
        output = sink.output
        folders = f", in folders of {', '.join(output.partition_by)}" if output.partition_by else ""
        lines.append(("output", f"{output.store}: sink {output.sink_id}, {output.format}{folders}"))
    lines += [("table", str(table)) for table in pipeline.tables]
    interval = pipeline.trigger.interval_ms
    when = "once" if interval is None else f"each {_seconds(interval)}"
    lines.append(("trigger", f"{when}, at most {options.offsets_per_trigger_max:,} records"))
    lines.append(("spark", pipeline.master))
    begin = "Spark has to look" if folder is None else ""
    if folder is not None:
        begin = begin_text(where_to_begin(pipeline, ready, folder), folder)
    lines.append(("begin", begin))
    return lines


def step_text(operation: Operation) -> str:
    """What a stateful step does, for a person."""
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


def offsets_text(ready: Ready) -> str:
    """How much there is in the source now."""
    topics = sorted({where.topic for where in ready.partitions})
    earliest = ready.source.earliest(ready.partitions)
    latest = ready.source.latest(ready.partitions)
    records = sum(latest[where] - earliest[where] for where in ready.partitions)
    return (
        f"{', '.join(topics[:SHOWN_MAX]) or 'no topic yet'}, {len(ready.partitions)} partitions,"
        f" {records:,} records"
    )


class Run:
    """A query that runs, and what watches it."""

    def __init__(
        self,
        spark: "SparkSession",
        pipeline: PipelineFile,
        *,
        begin: Resume | None,
        environment: Environment,
    ) -> None:
        self.totals = Totals()
        self._pipeline = pipeline
        self._environment = environment
        frame = _frame(spark, pipeline, begin)
        sink: LedgerSink | ChainSink
        if isinstance(pipeline.sink, Landing):
            sink = ChainSink(pipeline.sink)
        else:
            checkpoint = open_checkpoint(spark, pipeline.checkpoint)
            sink = LedgerSink(pipeline.sink, checkpoint, followers=pipeline.tables)
            sink.catch_up()
        self._sink = StoppableSink(sink, environment)
        writer = frame.writeStream.foreachBatch(self._sink)
        writer = writer.option("checkpointLocation", pipeline.checkpoint)
        writer = cast(Any, writer).trigger(**pipeline.trigger.for_spark())
        self._query: StreamingQuery = writer.start()

    def watch(self, stop: threading.Event, reporter: Reporter) -> bool:
        """Until the query ends or a stop was asked for and done; whether it was stopped.

        Raises the error that the query ended with.
        """
        ended = False
        while not ended:
            if stop.is_set():
                self._stop(reporter)
                return True
            ended = self._await(POLL_S)
            self._report(reporter)
        return False

    def _await(self, seconds: float) -> bool:
        try:
            return bool(cast(Any, self._query).awaitTermination(seconds))
        except Exception as error:
            if self._sink.was_stopped and isinstance(self._sink.failure, _Stopping | None):
                return True
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> HoldfastError:
        found = failure_of(self._sink.failure or error)
        if "checkpoint folder" not in str(found):
            return found
        return type(found)(
            f"{found} `holdfast run {self._pipeline.origin.name} --reset-checkpoint` sets this"
            " checkpoint aside and goes on at the ledger's position."
        )

    def _report(self, reporter: Reporter) -> None:
        done = self._sink.taken()
        if done:
            self.totals.lag = self._lag()
        for batch in done:
            self.totals.add(batch)
            reporter.batch(batch, self.totals)
        running = self._sink.running()
        if running is not None and not done and running[1] >= 1:
            reporter.show(running_line(*running, self.totals))

    def _lag(self) -> int | None:
        progress = cast("Mapping[str, Any] | None", self._progress())
        return None if progress is None else lag_of(progress)

    def _progress(self) -> object:
        newest = cast(Any, self._query)._jsq.lastProgress()
        return None if newest is None else json.loads(newest.json())

    def _stop(self, reporter: Reporter) -> None:
        """Let the micro-batch that runs finish, then end the query."""
        self._sink.stop()
        last: int | None = None
        while (running := self._sink.running()) is not None:
            last = running[0]
            reporter.show(f"stopping after batch {running[0]} ({running[1]:.0f} s)")
            if self._await(POLL_S):
                break
        deadline = self._environment.monotonic() + COMMIT_S_MAX
        while last is not None and self._environment.monotonic() < deadline:
            progress = cast("Mapping[str, Any] | None", self._progress())
            if (progress is not None and progress.get("batchId") == last) or self._await(POLL_S):
                break
        self._query.stop()
        self._report(reporter)


def _frame(spark: "SparkSession", pipeline: PipelineFile, begin: Resume | None) -> "DataFrame":
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
    try:
        frame = pipeline.transform(frame)
    except HoldfastError:
        raise
    except Exception as wrong:
        raise ConfigurationError(
            f"{pipeline.transform}: {type(wrong).__name__}: {str(wrong).splitlines()[0]}"
        ) from wrong
    if isinstance(pipeline.sink, Job):
        check_columns(pipeline.sink, arrow_schema(frame), pipeline.origin)
    return frame
