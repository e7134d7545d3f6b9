"""The tasks of dedup in two passes: judge keys by their offsets, then write what is kept.

Runs on executors. Owns the verdict that travels between the passes: the offsets of each partition
that are dropped, and those that are diverted. All other offsets are kept.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from holdfast.columnar.arrow import pa
from holdfast.keyed_state.pinned import Pinned, RunInfo
from holdfast.keyed_state.run_writes import RunWrites
from holdfast.landing.ledger_entry import FileRole
from holdfast.spark.ledger.buckets import judge
from holdfast.spark.ledger.exchange import Piece
from holdfast.spark.ledger.job import Dedup, Job
from holdfast.spark.ledger.tasks import (
    RowsToFiles,
    TaskReport,
    file_writer,
    later,
    task_site,
)
from holdfast.spark.runtime.worker import worker
from holdfast.spark.source.inputs import LeftOut
from holdfast.spark.source.rows import records

Offsets = NDArray[np.int64]
Partition = tuple[str, int]
NONE: Offsets = np.zeros(0, np.int64)


class _Hidden(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The dropped and diverted offsets of one partition: sorted, as bytes of 64-bit numbers."""

    topic: str
    partition: int
    dropped: bytes
    diverted: bytes


class DedupVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of dedup for the keys of a micro-batch, or of a part of it."""

    hidden: list[_Hidden]
    runs: dict[int, list[RunInfo]]
    counts: dict[str, int]
    event_time_max_ms: int | None = None

    @classmethod
    def of(cls, parts: Sequence["DedupVerdict"]) -> "DedupVerdict":
        """Return the verdicts of all tasks as one."""
        runs: dict[int, list[RunInfo]] = {}
        counts = {"rows": 0}
        latest: int | None = None
        for part in parts:
            runs |= part.runs
            latest = later(latest, part.event_time_max_ms)
            for name, number in part.counts.items():
                counts[name] = counts.get(name, 0) + number
        hidden = [found for part in parts for found in part.hidden]
        where = sorted({(found.topic, found.partition) for found in hidden})
        return cls(
            hidden=[_merged(p, hidden) for p in where],
            runs=runs,
            counts=counts,
            event_time_max_ms=latest,
        )


def _merged(where: Partition, several: Sequence[_Hidden]) -> _Hidden:
    mine = [found for found in several if (found.topic, found.partition) == where]
    return _Hidden(
        topic=where[0],
        partition=where[1],
        dropped=_sorted_bytes([_numbers(found.dropped) for found in mine]),
        diverted=_sorted_bytes([_numbers(found.diverted) for found in mine]),
    )


def _sorted_bytes(several: Sequence[Offsets]) -> bytes:
    return np.sort(np.concatenate(several)).tobytes() if several else b""


def _numbers(data: bytes) -> Offsets:
    return np.frombuffer(data, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTask:
    """The first pass: compares the keys of some buckets with the remembered ones."""

    job: Job
    operation: Dedup
    number: int
    pinned: Pinned

    def run(self, pieces: Iterable[Piece]) -> DedupVerdict:
        here = worker()
        attempt = here.environment.new_uuid().hex
        by_bucket: dict[int, list[Piece]] = {}
        for piece in pieces:
            by_bucket.setdefault(piece.bucket, []).append(piece)
        parts: list[DedupVerdict] = []
        writes = RunWrites()
        for bucket in sorted(by_bucket):
            mine = sorted(by_bucket.pop(bucket), key=lambda piece: piece.origin)
            site = task_site(
                here, self.job, bucket, number=self.number, attempt=attempt, writes=writes
            )
            judged = judge(self.operation, site, self.pinned, mine)
            parts.append(
                DedupVerdict(
                    hidden=_hidden(judged.dropped, judged.diverted),
                    runs={} if judged.runs is None else {bucket: list(judged.runs)},
                    counts=judged.counts,
                    event_time_max_ms=judged.event_time_max_ms,
                )
            )
        writes.wait()
        return DedupVerdict.of(parts)


def _hidden(dropped: Any, diverted: Any) -> list[_Hidden]:
    """Return the offsets of each partition, from tables with topic, partition and offset."""
    found: dict[Partition, list[Offsets]] = {}
    for i, table in enumerate((dropped, diverted)):
        for where, offsets in _by_partition(table):
            found.setdefault(where, [NONE, NONE])[i] = offsets
    return [
        _Hidden(topic=topic, partition=partition, dropped=a.tobytes(), diverted=b.tobytes())
        for (topic, partition), (a, b) in found.items()
    ]


def _by_partition(table: Any) -> Iterator[tuple[Partition, Offsets]]:
    if not table.num_rows:
        return
    topics = table.column("topic").combine_chunks().dictionary_encode()
    names: list[str] = topics.dictionary.to_pylist()
    partitions = np.asarray(table.column("partition").to_numpy(), np.int64)
    codes = np.asarray(topics.indices.to_numpy(), np.int64) << 32 | partitions
    offsets = np.asarray(table.column("offset").to_numpy(), np.int64)
    for code in np.unique(codes).tolist():
        yield (names[code >> 32], code & 0xFFFFFFFF), offsets[codes == code]


@dataclass(frozen=True, slots=True, kw_only=True)
class PickTask:
    """The second pass: reads ranges again and writes what the verdict does not drop to files."""

    job: Job
    number: int
    verdict: DedupVerdict

    def run(self, batches: Iterable[Any], *, task: int) -> TaskReport:
        here = worker()
        writer = file_writer(here, self.job, self.number, task)
        hidden = {(h.topic, h.partition): h for h in self.verdict.hidden}
        kept, diverted = RowsToFiles(here, writer), RowsToFiles(here, writer, FileRole.LATE)
        found = 0
        left_out = LeftOut()
        for batch in records(batches, left_out=left_out):
            found += batch.num_rows
            where = batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()
            rest, away = picked(batch, hidden.get(where))
            kept.add(rest)
            if away is not None:
                diverted.add(away)
        files = kept.finished() + diverted.finished()
        return TaskReport(files=files, counts={"found": found, **left_out.counts()})


def picked(batch: Any, hidden: _Hidden | None) -> tuple[Any, Any | None]:
    """Return what is kept of a batch of one partition, and what of it is diverted."""
    if hidden is None or not batch.num_rows:
        return batch, None
    offsets = np.asarray(batch.column("offset").to_numpy(), np.int64)
    dropped = _rows_at(offsets, _numbers(hidden.dropped))
    diverted = _rows_at(offsets, _numbers(hidden.diverted))
    if not dropped.size and not diverted.size:
        return batch, None
    keep = np.ones(offsets.size, np.bool_)
    keep[dropped] = False
    keep[diverted] = False
    away = batch.take(pa.array(diverted)) if diverted.size else None
    return batch.filter(pa.array(keep)), away


def _rows_at(offsets: Offsets, wanted: Offsets) -> NDArray[np.int64]:
    """Return the rows that have these offsets. Both are sorted.

    Offsets outside the batch belong to another batch. Offsets that no longer exist are noticed by
    the count of rows that were found.
    """
    first, last = np.searchsorted(wanted, [offsets[0], offsets[-1] + 1])
    mine = wanted[first:last]
    rows = np.searchsorted(offsets, mine)
    return rows[offsets[rows] == mine]
