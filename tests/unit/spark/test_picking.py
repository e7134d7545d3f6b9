"""Dedup in two passes gives what one pass over all rows gives: each key once, nothing lost."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.keyed_state.dedup import DedupSettings, LatePolicy
from holdfast.keyed_state.pinned import Pinned, next_watermark, nothing_pinned
from holdfast.landing.ledger_entry import FileRole, OutputFile
from holdfast.spark.ledger.exchange import Cutter, received, sent
from holdfast.spark.ledger.job import Dedup, Job, Output
from holdfast.spark.ledger.keys_first import SENT
from holdfast.spark.ledger.picking import DedupVerdict, JudgeTask, PickTask

Record = tuple[str, int, int, bytes | None, int]
"""Topic, partition, offset, key, time."""


def batch(records: Iterable[Record]) -> Any:
    rows = list(records)
    columns = {
        "topic": pa.array([r[0] for r in rows], pa.string()),
        "partition": pa.array([r[1] for r in rows], pa.int32()),
        "offset": pa.array([r[2] for r in rows], pa.int64()),
        "key": pa.array([r[3] for r in rows], pa.binary()),
        "at": pa.array([r[4] for r in rows], pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)


class Passes:
    """Both passes of micro-batches one after the other, as tasks run them, without Spark."""

    def __init__(self, folder: Path, settings: DedupSettings, *, buckets: int = 3) -> None:
        self.folder = folder
        self.job = Job(output=Output(store=str(folder), sink_id="orders"))
        event_time = "at" if settings.within_ms is not None else None
        self.operation = Dedup(by=("key",), settings=settings, event_time=event_time)
        operator = self.operation.operator(None)
        self.pinned: Pinned = nothing_pinned(operator, buckets=buckets, hash_seed=5)
        self.number = 0

    def judged(self, batches: list[Any]) -> DedupVerdict:
        cutter = Cutter(
            by=("key",),
            event_time=self.operation.event_time,
            buckets=self.pinned.buckets,
            tasks=1,
            hash_seed=self.pinned.hash_seed,
            columns=SENT,
        )
        task = JudgeTask(
            job=self.job, operation=self.operation, number=self.number, pinned=self.pinned
        )
        pieces = [received(rest) for _, rest in sent(cutter.pieces(batches, task=0))]
        return DedupVerdict.of([task.run(pieces)])

    def run(self, batches: list[Any]) -> tuple[DedupVerdict, list[OutputFile]]:
        verdict = self.judged(batches)
        task = PickTask(job=self.job, number=self.number, verdict=verdict)
        report = task.run(batches, task=0)
        assert report.counts == {"found": sum(b.num_rows for b in batches)}
        watermark = next_watermark(
            self.pinned.event_time_watermark_ms,
            verdict.event_time_max_ms,
            now_ms=10**12,
            allowance_ms=0,
        )
        self.pinned = self.pinned.with_runs(verdict.runs, event_time_watermark_ms=watermark)
        self.number += 1
        return verdict, report.files

    def rows(self, files: list[OutputFile], role: FileRole = FileRole.ROWS) -> list[Record]:
        chosen = [pq.read_table(self.folder / f.path) for f in files if f.role is role]
        return [tuple(row.values()) for table in chosen for row in table.to_pylist()]


keys = st.none() | st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
micro_batches = st.lists(
    st.lists(st.tuples(st.sampled_from(["x", "yy"]), st.integers(0, 1), keys), max_size=20),
    min_size=1,
    max_size=4,
)


@given(drawn=micro_batches)
def test_each_key_comes_out_once_and_rows_without_a_key_always(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[list[tuple[str, int, bytes | None]]]
):
    passes = Passes(tmp_path_factory.mktemp("picked"), DedupSettings())
    ends: dict[tuple[str, int], int] = {}
    expected: list[Record] = []
    known: set[bytes] = set()
    found: list[Record] = []
    for rows in drawn:
        by_partition: dict[tuple[str, int], list[Record]] = {}
        for topic, partition, key in rows:
            offset = ends[topic, partition] = ends.get((topic, partition), -1) + 1
            by_partition.setdefault((topic, partition), []).append(
                (topic, partition, offset, key, 0)
            )
        for records in by_partition.values():
            for record in records:
                if record[3] is None or record[3] not in known:
                    expected.append(record)
                known |= {record[3]} - {None}
        verdict, files = passes.run([batch(records) for records in by_partition.values()])
        assert verdict.counts["rows"] == len(rows)
        found += passes.rows(files)
    assert sorted(r[:3] for r in found) == sorted(r[:3] for r in expected)


def test_what_is_too_late_to_judge_is_diverted_with_all_its_columns(tmp_path: Path):
    settings = DedupSettings(within_ms=10, lateness_ms=10, late=LatePolicy.DIVERT)
    passes = Passes(tmp_path, settings)
    passes.run([batch([("x", 0, 0, b"a", 1_000)])])
    verdict, files = passes.run([batch([("x", 0, 1, b"b", 5), ("x", 0, 2, b"a", 1_001)])])
    assert passes.rows(files, FileRole.LATE) == [("x", 0, 1, b"b", 5)]
    assert passes.rows(files) == []
    assert (verdict.counts["diverted"], verdict.counts["duplicates"]) == (1, 1)


def test_a_record_that_is_gone_in_the_second_pass_shows_in_the_count(tmp_path: Path):
    passes = Passes(tmp_path, DedupSettings())
    whole = batch([("x", 0, n, b"same", 0) for n in range(4)])
    verdict = passes.judged([whole])
    task = PickTask(job=passes.job, number=0, verdict=verdict)
    rest = whole.take(pa.array([0, 1, 3]))
    report = task.run([rest], task=0)
    assert report.counts == {"found": 3}
    assert [row[2] for row in passes.rows(report.files)] == [0]
    assert verdict.counts["rows"] == 4
