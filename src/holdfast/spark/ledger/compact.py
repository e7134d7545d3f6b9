"""Compaction of a sink: merges many small committed files into few, exactly once, as a Spark job.

Owns the order of steps: read the ledger, let tasks write merged files for the next number, publish
one rewrite entry. That entry is the commit point. If a micro-batch takes the number first, the
merged files become orphans, which a sweep removes, and a smaller part is planned. Rows of different
partition values, roles or schemas are never mixed. Must never delete a data file.

Deletes state runs that the newest entry does not pin: see `sweep_state`.
"""

import logging
import shlex
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from holdfast.columnar.arrow import pa
from holdfast.environment import Environment
from holdfast.errors import ConfigurationError, InvariantViolation, RetryError
from holdfast.keyed_state.pinned import decode_pinned, unpinned
from holdfast.landing.arrow import pq
from holdfast.landing.data_files import data_key
from holdfast.landing.formats.parquet import writer_of
from holdfast.landing.landed import committed_files
from holdfast.landing.ledger import Committed, Ledger
from holdfast.landing.ledger_entry import FileRole, OutputFile
from holdfast.landing.output_files import read_output, write_output
from holdfast.spark.ledger.compact_plan import (
    TARGET_BYTES,
    TARGET_BYTES_MIN,
    Compacted,
    MergeGroup,
    plan_groups,
)
from holdfast.spark.runtime.worker import WorkerIO, worker
from holdfast.store.interface import Store
from holdfast.store.patience import patiently

LOGGER = logging.getLogger("holdfast.spark.ledger.compact")

TRIES = 8
DELETE_AT_ONCE = 500
ROW_GROUP_BYTES = 64 * 1024 * 1024
"""The Arrow memory that a task holds besides the files themselves."""
WORK_TEXT = "task int, work binary"
REPORT_TEXT = "report binary"
REPORT_SCHEMA: Any = pa.schema([("report", pa.binary())])
COMPACTED = {"holdfast.rewrite": "compact"}


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """What a task made of a group. A file whose schema differs from its neighbours' stays."""

    removed: list[str]
    files: list[OutputFile]


def compact(spark: Any, store: str, sink_id: str, *, target_bytes: int = TARGET_BYTES) -> Compacted:
    """Compact a sink. `spark` is a session, or a function that returns one when it is needed."""
    if target_bytes < TARGET_BYTES_MIN:
        raise ConfigurationError(
            f"no target of {target_bytes} bytes: use {TARGET_BYTES_MIN} or more"
        )
    here = worker()
    ledger = open_ledger(here, store, sink_id)
    before = _committed(here, store, sink_id)
    entries: list[int] = []
    lost, share, merged = 0, 1, 0
    # Files committed from now on wait for the next compaction: beside a busy pipeline, this one
    # must end.
    left = {file.path for file in before}
    while lost < TRIES:
        here.run(ledger.refresh())
        n = ledger.next_number
        candidates = (file for file in _committed(here, store, sink_id) if file.path in left)
        groups = plan_groups(candidates, target_bytes)
        if not groups:
            break
        part = groups[: max(1, len(groups) // share)]
        session = spark() if callable(spark) else spark
        reports = run_groups(session, store, sink_id, n, part)
        removed = [path for report in reports for path in report.removed]
        files = [file for report in reports for file in report.files]
        looked_at = {file.path for group in part for file in group.files}
        if not removed:
            left -= looked_at
            continue
        _check_rows(part, removed, files)
        outcome = here.run(ledger.rewrite(removed=removed, files=files, n=n, metadata=COMPACTED))
        if isinstance(outcome, Committed):
            left -= looked_at
            entries.append(n)
            merged += len(removed)
            LOGGER.info("compacted sink=%s n=%d files=%d", sink_id, n, len(removed))
            continue
        # A smaller part takes less time, and so is less likely to be overtaken again.
        lost, share = lost + 1, share * 2
    else:
        raise RetryError(
            f"sink {sink_id}: micro-batches came between {TRIES} times, and {len(entries)} parts"
            " were compacted; nothing is harmed: run it again when the pipeline is less busy, with"
            " a smaller --target-bytes, or while it is stopped"
        )
    after = _committed(here, store, sink_id)
    return Compacted(
        files_before=len(before),
        files_after=len(after),
        bytes_before=sum(file.bytes for file in before),
        bytes_after=sum(file.bytes for file in after),
        merged=merged,
        entries=tuple(entries),
        lost=lost,
        state_runs_deleted=here.run(
            sweep_state(here.writable(store), sink_id, environment=here.environment)
        ),
    )


def dry_run(store: str, sink_id: str, *, target_bytes: int = TARGET_BYTES) -> Compacted:
    """Return what a compaction would do. Writes nothing and needs no Spark."""
    here = worker()
    open_ledger(here, store, sink_id, is_dry=True)
    files = _committed(here, store, sink_id, is_dry=True)
    groups = plan_groups(files, target_bytes)
    merged = sum(len(group.files) for group in groups)
    size = sum(file.bytes for file in files)
    return Compacted(
        files_before=len(files),
        files_after=len(files) - merged + len(groups),
        bytes_before=size,
        bytes_after=size,
        merged=merged,
    )


def open_ledger(here: WorkerIO, store: str, sink_id: str, *, is_dry: bool = False) -> Ledger:
    """Open the ledger of a sink that exists. A wrong address creates nothing."""
    ledger = here.run(Ledger.open(here.store(store), sink_id, environment=here.environment))
    if ledger.head is None:
        raise ConfigurationError(
            f"there is no sink {sink_id!r} in {store}: see `holdfast landed {shlex.quote(store)}`"
        )
    if is_dry:
        return ledger
    return here.run(Ledger.open(here.writable(store), sink_id, environment=here.environment))


def _committed(
    here: WorkerIO, store: str, sink_id: str, *, is_dry: bool = False
) -> tuple[OutputFile, ...]:
    where = here.store(store) if is_dry else here.writable(store)
    return here.run(committed_files(where, sink_id, environment=here.environment)).files


def _check_rows(
    groups: Sequence[MergeGroup], removed: Sequence[str], files: Sequence[OutputFile]
) -> None:
    """Check before publishing that no row is lost and none is added."""
    known = {file.path: file for group in groups for file in group.files}
    if len(set(removed)) != len(removed):
        raise InvariantViolation("a file was merged twice: the rewrite was not published")
    before: dict[FileRole, int] = {}
    for path in removed:
        before[known[path].role] = before.get(known[path].role, 0) + known[path].rows
    after: dict[FileRole, int] = {}
    for file in files:
        after[file.role] = after.get(file.role, 0) + file.rows
    if before != after:
        raise InvariantViolation(f"{before} rows became {after}: the rewrite was not published")


def run_groups(
    spark: Any, store: str, sink_id: str, n: int, groups: Sequence[MergeGroup]
) -> list[Merged]:
    """Merge groups with one task each. Their files count only once entry n names them."""
    rows = [(i, msgspec.msgpack.encode(group)) for i, group in enumerate(groups)]
    work = spark.createDataFrame(rows, WORK_TEXT).repartitionById(len(rows), "task")
    run = partial(_merge_in_task, store, sink_id, n)
    done = work.mapInArrow(run, REPORT_TEXT).collect()
    return [msgspec.msgpack.decode(bytes(row[0]), type=Merged) for row in done]


def _merge_in_task(store: str, sink_id: str, n: int, batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        for task, work in zip(
            batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True
        ):
            here = worker()
            group = msgspec.msgpack.decode(work, type=MergeGroup)
            done = here.run(merge_group(here.writable(store), sink_id, n, task, group, here))
            body = msgspec.msgpack.encode(done)
            yield pa.RecordBatch.from_arrays([pa.array([body], pa.binary())], schema=REPORT_SCHEMA)


async def merge_group(
    store: Store, sink_id: str, n: int, task: int, group: MergeGroup, here: WorkerIO
) -> Merged:
    """Write one file for neighbours with equal columns; a file without such a neighbour stays."""
    removed: list[str] = []
    files: list[OutputFile] = []
    attempt = here.environment.new_uuid().hex
    async for merger in _stretches(store, group, here.environment):
        if len(merger.taken) < 2:
            continue
        first = merger.taken[0]
        key = data_key(
            sink_id,
            n,
            attempt=attempt,
            task=task,
            part=len(files),
            extension=merger.extension,
            partition_values=first.partition_values,
            is_late=first.role is FileRole.LATE,
        )
        written = await write_output(
            store,
            key,
            merger.finish(),
            rows=sum(file.rows for file in merger.taken),
            partition_values=first.partition_values,
            role=first.role,
            environment=here.environment,
        )
        removed += [file.path for file in merger.taken]
        files.append(written)
    return Merged(removed=removed, files=files)


async def _stretches(
    store: Store, group: MergeGroup, environment: Environment
) -> "AsyncIterator[_Lines | _Columns]":
    """Yield mergers, each when it is complete. One file's bytes are held at a time."""
    merger: _Lines | _Columns | None = None
    for file in group.files:
        body = await read_output(store, file, environment=environment)
        if merger is not None and merger.takes(file, body):
            continue
        if merger is not None:
            yield merger
        merger = _Columns() if file.path.endswith(".parquet") else _Lines()
        if not merger.takes(file, body):
            raise InvariantViolation(f"{file.path}: a new file took nothing in")
    if merger is not None:
        yield merger


class _Lines:
    """Merges jsonl.zst files: zstd frames in a row are a zstd file, so nothing is recompressed."""

    extension = ".jsonl.zst"

    def __init__(self) -> None:
        self.taken: list[OutputFile] = []
        self._frames: list[bytes] = []

    def takes(self, file: OutputFile, body: bytes) -> bool:
        self.taken.append(file)
        self._frames.append(body)
        return True

    def finish(self) -> memoryview:
        return memoryview(b"".join(self._frames))


class _Columns:
    """Merges Parquet files with equal columns and equal Holdfast metadata, as row groups of one."""

    extension = ".parquet"

    def __init__(self) -> None:
        self.taken: list[OutputFile] = []
        self._sink: Any = pa.BufferOutputStream()
        self._schema: Any = None
        self._told: dict[bytes, bytes] = {}
        self._writer: Any = None
        self._held: list[Any] = []
        self._held_bytes = 0

    def takes(self, file: OutputFile, body: bytes) -> bool:
        opened = pq.ParquetFile(pa.BufferReader(body))
        schema = opened.schema_arrow.remove_metadata()
        told = _told(opened.metadata.metadata)
        if self._writer is None:
            self._schema, self._told = schema, told
            self._writer = writer_of(self._sink, schema)
        elif told != self._told or not schema.equals(self._schema, check_metadata=True):
            return False
        for batch in opened.iter_batches():
            self._held.append(batch.replace_schema_metadata(None))
            self._held_bytes += batch.nbytes
            if self._held_bytes >= ROW_GROUP_BYTES:
                self._flush()
        self.taken.append(file)
        return True

    def finish(self) -> memoryview:
        self._flush()
        self._writer.add_key_value_metadata(self._told)
        self._writer.close()
        return memoryview(self._sink.getvalue()).cast("B")

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, schema=self._schema))
        self._held, self._held_bytes = [], 0


def _told(footer: Any) -> dict[bytes, bytes]:
    """Return Holdfast's own metadata in a footer. The rest (the Arrow schema) is written again."""
    found: dict[bytes, bytes] = footer or {}
    return {name: text for name, text in found.items() if name.startswith(b"holdfast.")}


async def sweep_state(store: Store, sink_id: str, *, environment: Environment) -> int:
    """Delete state runs that no reader needs, and return how many.

    Such a state run is named for an entry that exists, and the newest entry does not pin it. Later
    entries pin only new state runs and those of the newest entry, so it never comes back. The
    listing comes before the look at the ledger, so a state run that is pinned in between is seen as
    pinned. A driver that was overtaken and still reads a deleted state run finds it gone, and
    stops.
    """
    prefix = f"state/{sink_id}/"
    rows = await patiently(lambda: store.list(prefix), environment=environment)
    ledger = await Ledger.open(store, sink_id, environment=environment)
    head = ledger.head
    if head is None or not head.state:
        return 0
    names = [row.key for row in rows]
    gone = unpinned(names, decode_pinned(head.state), before_number=head.n + 1)
    for start in range(0, len(gone), DELETE_AT_ONCE):
        part = gone[start : start + DELETE_AT_ONCE]
        await patiently(lambda part=part: store.delete(part), environment=environment)
    return len(gone)
