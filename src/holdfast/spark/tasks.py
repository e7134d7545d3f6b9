"""What tasks do with the rows of a micro-batch, and what they report to the driver.

Runs on executors. Owns the report. Nothing that a task writes counts by itself: its report is what
the driver publishes in one ledger entry, so a task that fails, is tried again or runs twice leaves
files that nothing names.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.columnar.arrow import pa
from holdfast.keyed_state.cache import StateCache
from holdfast.keyed_state.dedup import Bucket
from holdfast.keyed_state.dedup_task import DedupDone, run_dedup_task
from holdfast.keyed_state.pinned import TIME_MIN, Pinned, RunInfo
from holdfast.keyed_state.task_site import TaskSite
from holdfast.landing.ledger_entry import FileRole, OutputFile
from holdfast.spark.exchange import Piece, halves, opened, times, without_keys
from holdfast.spark.files import FileWriter
from holdfast.spark.job import Dedup, Job
from holdfast.spark.rows import records
from holdfast.spark.worker import Worker, worker

REPORT_TEXT = "report binary"
REPORT_SCHEMA: Any = pa.schema([("report", pa.binary())])
COUNTED: tuple[str, ...] = ("rows", "kept", "duplicates", "late", "diverted", "keyless")
BYTES_PER_FILE = 512 * 1024 * 1024
"""Of Arrow memory: a task without state writes a file when it holds so much."""

_dedup_cache: StateCache[Bucket] = StateCache()
"""Of this worker process; used only where it holds exactly the runs that the ledger names."""


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one task did."""

    files: list[OutputFile]
    runs: dict[int, list[RunInfo]] = {}
    """For each bucket that it had rows of, the runs that are its state from here on."""
    counts: dict[str, int] = {}
    event_time_max_ms: int | None = None


def encode_report(report: TaskReport) -> Any:
    body = msgspec.msgpack.encode(report)
    return pa.RecordBatch.from_arrays([pa.array([body], pa.binary())], schema=REPORT_SCHEMA)


def decode_report(body: bytes) -> TaskReport:
    return msgspec.msgpack.decode(body, type=TaskReport)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTask:
    """Rows straight into files."""

    job: Job
    number: int

    def run(self, batches: Iterable[Any], *, task: int) -> Iterator[Any]:
        here = worker()
        writer = _writer(here, self.job, self.number, task)
        files: list[OutputFile] = []
        rows = size = 0
        held: list[Any] = []
        for batch in records(batches):
            held.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if size >= BYTES_PER_FILE:
                files += here.run(writer.write(pa.Table.from_batches(held)))
                held, size = [], 0
        if held:
            files += here.run(writer.write(pa.Table.from_batches(held)))
        yield encode_report(TaskReport(files=files, counts={"rows": rows, "kept": rows}))


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupTask:
    """The rows of some buckets against what is remembered of them, and what is new into files."""

    job: Job
    dedup: Dedup
    number: int
    pinned: Pinned

    def run(self, batches: Iterable[Any], *, task: int) -> Iterator[Any]:
        here = worker()
        writer = _writer(here, self.job, self.number, task)
        by_bucket: dict[int, list[Piece]] = {}
        for piece in opened(batches):
            by_bucket.setdefault(piece.bucket, []).append(piece)
        kept: list[Any] = []
        late: list[Any] = []
        runs: dict[int, list[RunInfo]] = {}
        counts: dict[str, int] = dict.fromkeys(COUNTED, 0)
        latest: int | None = None
        for bucket in sorted(by_bucket):
            pieces = sorted(by_bucket.pop(bucket), key=lambda piece: piece.origin)
            keyless = [without_keys(piece.rows) for piece in pieces if piece.keyless]
            kept += keyless
            free = sum(rows.num_rows for rows in keyless)
            _add(counts, rows=free, kept=free, keyless=free)
            keyed = [piece.rows for piece in pieces if not piece.keyless]
            if not keyed:
                continue
            table = pa.concat_tables(keyed)
            done = self._judge(here, bucket, table, writer.attempt)
            judged = done.judged
            rows = without_keys(table)
            kept.append(rows.filter(pa.array(judged.keep)))
            if judged.diverted:
                late.append(rows.filter(pa.array(judged.late & ~judged.keep)))
            runs[bucket] = list(done.runs)
            latest = _later(latest, done.event_time_max_ms)
            _add(
                counts,
                rows=table.num_rows,
                kept=judged.kept,
                duplicates=judged.duplicates,
                late=judged.late_rows,
                diverted=judged.diverted,
            )
        files: list[OutputFile] = []
        if kept:
            files += here.run(writer.write(pa.concat_tables(kept)))
        if late:
            files += here.run(writer.write(pa.concat_tables(late), role=FileRole.LATE))
        yield encode_report(
            TaskReport(files=files, runs=runs, counts=counts, event_time_max_ms=latest)
        )

    def _judge(self, here: Worker, bucket: int, table: Any, attempt: str) -> DedupDone:
        site = TaskSite(
            store=here.writable(self.job.output.store),
            sink_id=self.job.output.sink_id,
            bucket=bucket,
            number=self.number,
            attempt=attempt,
            environment=here.environment,
        )
        return run_dedup_task(
            site,
            self.pinned,
            _dedup_cache,
            halves(table),
            times(table),
            None,
            settings=self.dedup.settings,
        )


def _writer(here: Worker, job: Job, number: int, task: int) -> FileWriter:
    return FileWriter(
        store=here.writable(job.output.store),
        output=job.output,
        number=number,
        attempt=here.environment.new_uuid().hex,
        task=task,
        environment=here.environment,
    )


def _later(left: int | None, right: int | None) -> int | None:
    known = [time for time in (left, right) if time is not None and time != TIME_MIN]
    return max(known, default=None)


def _add(counts: dict[str, int], **more: int) -> None:
    for name, number in more.items():
        counts[name] += number
