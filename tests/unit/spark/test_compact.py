"""Compaction: what is merged and what is not, and that each row counts once at every instant."""

import json
from collections import Counter
from pathlib import Path

import cramjam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.support.ledgered import Sink, SparkInThisProcess, rows

from holdfast.cli.compact import command
from holdfast.errors import ConfigurationError, CorruptObject, RetryError
from holdfast.inspect.output_survey import survey
from holdfast.keyed_state.pinned import Operator, RunInfo, encode_pinned, nothing_pinned, run_name
from holdfast.landing.data_files import checksum_of, data_key
from holdfast.landing.ledger_entry import FileRole, LedgerEntryKind, OutputFile
from holdfast.landing.sweep import sweep
from holdfast.spark.ledger.compact import TRIES, compact, dry_run, plan_groups, sweep_state
from holdfast.spark.runtime.worker import worker


def file(name: str, size: int, *, late: bool = False, **values: str) -> OutputFile:
    role = FileRole.LATE if late else FileRole.ROWS
    return OutputFile(
        path=f"data/s/{name}.parquet", rows=1, bytes=size, partition_values=values, role=role
    )


def names(files: list[OutputFile], target: int) -> list[list[str]]:
    return [[Path(one.path).stem for one in group.files] for group in plan_groups(files, target)]


def test_small_files_are_packed_in_order_up_to_the_target():
    files = [file(name, 400) for name in "abcde"]
    assert names(files, 1000) == [["a", "b"], ["c", "d"]]


def test_files_that_are_large_enough_and_lone_ones_are_left_alone():
    assert names([file("a", 800), file("b", 10)], 1000) == []
    assert names([file("a", 10)], 1000) == []


def test_partition_values_roles_and_formats_are_never_mixed():
    lines = OutputFile(path="data/s/l.jsonl.zst", rows=1, bytes=1)
    files = [
        file("a", 1, day="1"),
        file("b", 1, day="2"),
        file("c", 1, day="1"),
        file("d", 1, late=True, day="1"),
        lines,
    ]
    assert names(files, 1000) == [["a", "c"]]


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path / "lake")


def test_many_files_become_one_and_the_rows_stay_in_order(sink: Sink):
    for i in range(6):
        sink.commit(rows(f"r{i}"), late=rows(f"late{i}"))
    before = sink.ids()
    done = compact(SparkInThisProcess(), sink.url, "orders")
    assert (done.files_before, done.files_after, done.merged) == (12, 2, 12)
    (whole,) = sink.files()
    found = pq.read_table(sink.folder / whole.path)["id"].to_pylist()
    assert found == [f"r{i}" for i in range(6)]
    assert sink.ids() == before
    assert sink.ids(FileRole.LATE) == Counter({f"late{i}": 1 for i in range(6)})
    head = sink.ledger().head
    assert head is not None
    assert (head.kind, head.sources[0].end) == (LedgerEntryKind.REWRITE, "6")


def test_the_store_is_whole_after_it_and_after_the_sweep(sink: Sink):
    for i in range(4):
        sink.commit(rows(f"r{i}"))
    compact(SparkInThisProcess(), sink.url, "orders")
    here = worker()
    store = here.writable(sink.url)
    report = here.run(survey(store, environment=here.environment, verify=True))
    assert report.is_whole
    assert len(report.sinks[0].replaced) == 4
    swept = here.run(sweep(store, "orders", environment=here.environment, grace_ms=0))
    assert len(swept.deleted) == 4
    assert here.run(survey(store, environment=here.environment, verify=True)).is_whole
    assert sum(sink.ids().values()) == 4


def test_a_second_run_finds_nothing_to_do_and_starts_no_spark(sink: Sink):
    for i in range(3):
        sink.commit(rows(f"r{i}"))
    compact(SparkInThisProcess(), sink.url, "orders")

    def no_spark() -> None:
        raise AssertionError("Spark was started for nothing")

    done = compact(no_spark, sink.url, "orders")
    assert (done.merged, done.entries) == (0, ())


def test_files_with_other_columns_are_not_merged_into_their_neighbours(sink: Sink):
    other = pa.table({"id": ["other"], "more": [1]})
    sink.commit(rows("a"))
    sink.commit(rows("b"))
    sink.commit(other)
    sink.commit(rows("c"))
    sink.commit(rows("d"))
    compact(SparkInThisProcess(), sink.url, "orders")
    assert sorted(file.rows for file in sink.files()) == [1, 2, 2]
    assert sink.ids() == Counter("abcd") + Counter(["other"])


def test_partitions_keep_their_values_and_the_types_that_footers_tell(sink: Sink):
    fields = [pa.field("shard", pa.int32())]
    for i in range(2):
        n = sink.ledger().next_number
        shards = [
            sink.write(n, rows(f"r{i}{s}"), {"shard": s}, fields=fields) for s in ("0", "1", None)
        ]
        sink.publish(shards, n)
    before = pq.read_metadata(sink.folder / sink.files()[0].path).metadata
    compact(SparkInThisProcess(), sink.url, "orders")
    assert [file.partition_values["shard"] for file in sink.files()] == ["0", "1", None]
    key = b"holdfast.partition_columns"
    assert pq.read_metadata(sink.folder / sink.files()[0].path).metadata[key] == before[key]


def test_files_of_lines_are_joined(sink: Sink):
    here = worker()
    for i in range(3):
        path = data_key("orders", i, attempt="a", task=0, extension=".jsonl.zst")
        body = bytes(cramjam.zstd.compress(b'{"id":%d}\n' % i))
        here.run(here.writable(sink.url).create(path, (body,)))
        file = OutputFile(path=path, rows=1, bytes=len(body), checksum=checksum_of(body))
        sink.publish([file], i)
    compact(SparkInThisProcess(), sink.url, "orders")
    (whole,) = sink.files()
    joined = bytes(cramjam.zstd.decompress((sink.folder / whole.path).read_bytes()))
    assert joined == b'{"id":0}\n{"id":1}\n{"id":2}\n'
    assert whole.rows == 3


def test_a_micro_batch_that_comes_between_wins_and_the_rest_is_planned_again(sink: Sink):
    for i in range(8):
        sink.commit(rows(f"r{i}"))
    overtakers = iter(["x", "y"])

    def between() -> None:
        name = next(overtakers, None)
        if name is not None:
            sink.commit(rows(name))

    done = compact(SparkInThisProcess(between), sink.url, "orders")
    assert done.lost == 2
    assert sink.ids() == Counter([f"r{i}" for i in range(8)] + ["x", "y"])
    assert len(sink.files()) == 3


def test_beside_a_pipeline_that_never_rests_it_gives_up_and_harms_nothing(sink: Sink):
    for i in range(3):
        sink.commit(rows(f"r{i}"))
    came: list[str] = []

    def between() -> None:
        came.append(f"x{len(came)}")
        sink.commit(rows(came[-1]))

    with pytest.raises(RetryError, match="came between"):
        compact(SparkInThisProcess(between), sink.url, "orders")
    assert len(came) == TRIES
    assert sink.ids() == Counter([f"r{i}" for i in range(3)] + came)


def test_a_crash_between_writing_and_publishing_leaves_orphans_that_never_count(sink: Sink):
    for i in range(3):
        sink.commit(rows(f"r{i}"))

    def crash() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact(SparkInThisProcess(crash), sink.url, "orders")
    assert len(sink.files()) == 3
    compact(SparkInThisProcess(), sink.url, "orders")
    assert sink.ids() == Counter([f"r{i}" for i in range(3)])
    here = worker()
    swept = here.run(sweep(here.writable(sink.url), "orders", environment=here.environment))
    assert len(swept.deleted) == 1


def test_a_harmed_file_is_named_and_nothing_is_published(sink: Sink):
    for i in range(3):
        sink.commit(rows(f"r{i}"))
    harmed = sink.files()[1]
    body = bytearray((sink.folder / harmed.path).read_bytes())
    body[20] ^= 1
    (sink.folder / harmed.path).write_bytes(bytes(body))
    with pytest.raises(CorruptObject, match=harmed.path):
        compact(SparkInThisProcess(), sink.url, "orders")
    assert sink.ledger().next_number == 3


def test_a_dry_run_tells_and_changes_nothing(sink: Sink):
    for i in range(4):
        sink.commit(rows(f"r{i}"))
    told = dry_run(sink.url, "orders")
    assert (told.files_before, told.files_after, told.merged) == (4, 1, 4)
    assert sink.ledger().next_number == 4
    result = CliRunner().invoke(command, [sink.url, "--sink-id", "orders", "--dry-run"])
    assert result.exit_code == 0, result.output
    assert "would merge 4 files" in result.output


def test_a_compaction_tells_its_numbers_in_json(sink: Sink):
    def told(*words: str) -> dict[str, object]:
        result = CliRunner().invoke(command, [sink.url, "--sink-id", "orders", "--json", *words])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    for i in range(4):
        sink.commit(rows(f"r{i}"))
    planned = told("--dry-run")
    assert (planned["dry_run"], planned["files_before"], planned["merged"]) == (True, 4, 4)
    compact(SparkInThisProcess(), sink.url, "orders")
    # With nothing left to merge it needs no Spark.
    done = told()
    assert (done["dry_run"], done["files_before"], done["files_after"]) == (False, 1, 1)
    assert (done["merged"], done["entries"]) == (0, [])


def test_a_sink_that_is_not_there_is_refused_and_no_folder_is_made(tmp_path: Path, sink: Sink):
    sink.commit(rows("a"))
    with pytest.raises(ConfigurationError, match="no sink 'order'"):
        compact(SparkInThisProcess(), sink.url, "order")
    with pytest.raises(ConfigurationError):
        compact(SparkInThisProcess(), str(tmp_path / "elsewhere"), "orders")
    assert not (tmp_path / "elsewhere").exists()


def test_runs_of_state_that_the_newest_entry_does_not_pin_are_deleted(sink: Sink):
    here = worker()
    store = here.writable(sink.url)

    def run(number: int, attempt: str) -> str:
        name = run_name("orders", 0, number, attempt)
        here.run(store.create(name, (b"run",)))
        return name

    def pinned(name: str) -> bytes:
        info = RunInfo(
            name=name, rows=1, bytes=3, crc=0, time_min_ms=0, time_median_ms=0, time_max_ms=0
        )
        empty = nothing_pinned(Operator(kind="dedup", parameters={}), buckets=1, hash_seed=1)
        return encode_pinned(empty.with_runs({0: [info]}, event_time_watermark_ms=None))

    old, lost, new, coming = run(0, "a"), run(1, "lost"), run(1, "won"), run(2, "coming")
    other = run_name("others", 0, 0, "a")
    here.run(store.create(other, (b"run",)))
    sink.publish([], 0, state=pinned(old))
    sink.publish([], 1, state=pinned(new))
    assert here.run(sweep_state(store, "orders", environment=here.environment)) == 2
    left = {row.key for row in here.run(store.list("state/"))}
    assert left == {new, coming, other}
    assert lost not in left
