"""What tasks do with the rows of a micro-batch, and what they report to the driver.

Runs on executors. Owns the report. Nothing that a task writes counts by itself: the driver
publishes the task's report in one ledger entry. A task that fails, is tried again or runs twice
leaves files that no entry names.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.columnar.arrow import pa
from holdfast.keyed_state.pinned import TIME_MIN, Pinned, RunInfo
from holdfast.keyed_state.run_writes import RunWrites
from holdfast.keyed_state.task_site import TaskSite
from holdfast.landing.ledger_entry import FileRole, OutputFile
from holdfast.spark.ledger.buckets import work_on
from holdfast.spark.ledger.exchange import Piece, opened
from holdfast.spark.ledger.files import FileWriter
from holdfast.spark.ledger.job import Job, Operation, Timers
from holdfast.spark.runtime.worker import WorkerIO, worker
from holdfast.spark.source.inputs import LeftOut
from holdfast.spark.source.rows import records

REPORT_TEXT = "report binary"
REPORT_SCHEMA: Any = pa.schema([("report", pa.binary())])
BYTES_PER_FILE = 512 * 1024 * 1024
"""The Arrow memory at which a task without state writes a file."""


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one task did."""

    files: list[OutputFile]
    runs: dict[int, list[RunInfo]] = {}
    """For each bucket that it worked on, the state runs of the bucket from now on."""
    counts: dict[str, int] = {}
    event_time_max_ms: int | None = None


def encode_report(report: TaskReport) -> Any:
    return as_report(msgspec.msgpack.encode(report))


def as_report(body: bytes) -> Any:
    """Return the one row that a task gives to Spark."""
    return pa.RecordBatch.from_arrays([pa.array([body], pa.binary())], schema=REPORT_SCHEMA)


def decode_report(body: bytes) -> TaskReport:
    return msgspec.msgpack.decode(body, type=TaskReport)


class RowsToFiles:
    """Gathers rows, and writes them when there are enough."""

    def __init__(self, here: WorkerIO, writer: FileWriter, role: FileRole = FileRole.ROWS) -> None:
        self.rows = 0
        self._here, self._writer, self._role = here, writer, role
        self._files: list[OutputFile] = []
        self._held: list[Any] = []
        self._held_bytes = 0

    def add(self, batch: Any) -> None:
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._held_bytes >= BYTES_PER_FILE:
            self._write()

    def finished(self) -> list[OutputFile]:
        """Write the rest, and return all files."""
        if self._held:
            self._write()
        return self._files

    def _write(self) -> None:
        table = pa.Table.from_batches(self._held)
        self._files += self._here.run(self._writer.write(table, role=self._role))
        self._held, self._held_bytes = [], 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTask:
    """A task that writes rows straight to files."""

    job: Job
    number: int

    def run(self, batches: Iterable[Any], *, task: int) -> Iterator[Any]:
        here = worker()
        writer = file_writer(here, self.job, self.number, task)
        output = RowsToFiles(here, writer)
        left_out = LeftOut()
        for batch in records(batches, left_out=left_out):
            output.add(batch)
        counts = {"rows": output.rows, "kept": output.rows, **left_out.counts()}
        yield encode_report(TaskReport(files=output.finished(), counts=counts))


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulTask:
    """A task that applies the step to the rows of some buckets, and writes what comes out."""

    job: Job
    operation: Operation
    number: int
    pinned: Pinned
    tasks: int
    now_ms: int
    """The wall clock of the micro-batch. If it runs twice, the entry committed first decides."""

    def run(self, batches: Iterable[Any], *, task: int) -> Iterator[Any]:
        here = worker()
        writer = file_writer(here, self.job, self.number, task)
        by_bucket: dict[int, list[Piece]] = {}
        left_out = LeftOut()
        for piece in opened(batches, left_out):
            by_bucket.setdefault(piece.bucket, []).append(piece)
        if isinstance(self.operation, Timers):
            for bucket in range(task, self.pinned.buckets, self.tasks):
                by_bucket.setdefault(bucket, [])
        output: list[Any] = []
        late: list[Any] = []
        runs: dict[int, list[RunInfo]] = {}
        counts: dict[str, int] = {}
        latest: int | None = None
        writes = RunWrites()
        for bucket in sorted(by_bucket):
            pieces = sorted(by_bucket.pop(bucket), key=lambda piece: piece.origin)
            site = task_site(
                here,
                self.job,
                bucket,
                number=self.number,
                attempt=writer.attempt,
                writes=writes,
            )
            done = work_on(self.operation, site, self.pinned, pieces, now_ms=self.now_ms)
            output += done.output
            late += done.late
            if done.runs is not None:
                runs[bucket] = list(done.runs)
            latest = later(latest, done.event_time_max_ms)
            for name, count in done.counts.items():
                counts[name] = counts.get(name, 0) + count
        files: list[OutputFile] = []
        if output:
            files += here.run(writer.write(pa.concat_tables(output)))
        if late:
            files += here.run(writer.write(pa.concat_tables(late), role=FileRole.LATE))
        writes.wait()
        counts |= left_out.counts()
        yield encode_report(
            TaskReport(files=files, runs=runs, counts=counts, event_time_max_ms=latest)
        )


def task_site(
    here: WorkerIO, job: Job, bucket: int, *, number: int, attempt: str, writes: RunWrites
) -> TaskSite:
    """Return the site of one attempt at one bucket."""
    return TaskSite(
        store=here.writable(job.output.store),
        sink_id=job.output.sink_id,
        bucket=bucket,
        number=number,
        attempt=attempt,
        environment=here.environment,
        writes=writes,
    )


def file_writer(here: WorkerIO, job: Job, number: int, task: int) -> FileWriter:
    """Return the writer for the files of one attempt at one task."""
    return FileWriter(
        store=here.writable(job.output.store),
        output=job.output,
        number=number,
        attempt=here.environment.new_uuid().hex,
        task=task,
        environment=here.environment,
    )


def later(left: int | None, right: int | None) -> int | None:
    """Return the later of two event times, or None if there is none."""
    known = [time for time in (left, right) if time is not None and time != TIME_MIN]
    return max(known, default=None)
