"""A store as an input: plans that tile what is asked, and reads that survive what happens since."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from tests.unit.spark.stores import TOPIC, Filler, change, made, offsets_in, rows_of, value_of

from holdfast.columnar.schema import SCHEMA, SCHEMA_WITH_HEADERS
from holdfast.errors import CorruptObject
from holdfast.lane.entry import parse_header
from holdfast.records.compression import Codec
from holdfast.spark.source.inputs import (
    DataLoss,
    PlanOptions,
    Range,
    SourcePartition,
    StoreWhere,
    read_range,
)
from holdfast.spark.source.store_input import StoreInput
from holdfast.spark.source.where import parse_where


def partition_of(source: StoreInput, partition: int = 0) -> SourcePartition:
    return source.topics()[TOPIC].all_partitions()[partition]


def planned(url: str, *, partition: int = 0, **options: Any) -> list[Range]:
    source = StoreInput(url)
    where = partition_of(source, partition)
    start, end = source.earliest([where]), source.latest([where])
    return source.plan(start, end, PlanOptions(**options))


def test_all_records_come_once_in_order_with_their_fields(tmp_path: Path):
    async def several(builder: Filler) -> None:
        for i, codec in enumerate(Codec):
            builder.append_next(10, timestamp=5_000 + i, codec=codec)
            await builder.flush()

    url = made(tmp_path, several, lambda b: b.rewrite(), lambda b: b.fill(5))
    rows = rows_of(planned(url))
    assert offsets_in(rows) == list(range(150))
    assert [row["value"] for row in rows] == [value_of(i) for i in range(150)]
    assert [row["key"] for row in rows] == [b"k%d" % i for i in range(150)]
    assert {row["topic"] for row in rows} == {TOPIC}
    assert rows[0]["timestamp"].timestamp() == 5.0
    assert {row["timestampType"] for row in rows} == {0}


def test_the_columns_are_those_of_sparks_kafka_source(tmp_path: Path):
    async def with_headers(builder: Filler) -> None:
        builder.append_next(2, headers=(("a", b"1"), ("b", None)))
        await builder.flush()

    url = made(tmp_path, with_headers)
    (plain,) = planned(url)
    assert all(batch.schema.equals(SCHEMA) for batch in read_range(plain))
    (headed,) = planned(url, include_headers=True)
    (batch,) = read_range(headed)
    assert batch.schema.equals(SCHEMA_WITH_HEADERS)
    expected = [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert batch.to_pylist()[0]["headers"] == expected


@pytest.mark.parametrize(("start", "end"), [(0, 1), (7, 133), (19, 21), (199, 200), (50, 50)])
def test_a_part_of_a_partition_is_cut_to_the_record(tmp_path: Path, start: int, end: int):
    url = made(tmp_path, lambda b: b.fill(6), lambda b: b.rewrite(500), lambda b: b.fill(4))
    source = StoreInput(url)
    where = partition_of(source)
    assert offsets_in(rows_of(source.plan({where: start}, {where: end}))) == list(range(start, end))


def test_a_large_partition_is_split_and_a_small_one_is_not(tmp_path: Path):
    big = 4 * 1024 * 1024 // 100

    async def fill(builder: Filler) -> None:
        for _ in range(40):
            builder.append_next(big // 8)
            await builder.flush()
        builder.append_next(5, partition=1)
        await builder.flush()

    url = made(tmp_path, fill, partitions=2)
    source = StoreInput(url)
    partitions = source.topics()[TOPIC].all_partitions()
    start, end = source.earliest(partitions), source.latest(partitions)
    one_each = source.plan(start, end)
    assert [r.partition for r in one_each] == [0, 1]
    ranges = source.plan(start, end, PlanOptions(min_partitions=4))
    several = [r for r in ranges if r.partition == 0]
    assert len(several) in (3, 4)
    assert len(ranges) == len(several) + 1
    assert max(r.size_bytes for r in several) < 1.5 * min(r.size_bytes for r in several)
    for before, after in itertools.pairwise(several):
        assert before.end_offset == after.start_offset
    assert [r["offset"] for r in rows_of(several)] == list(range(end[partitions[0]]))


def test_side_by_side_blocks_of_a_segment_are_one_read(tmp_path: Path):
    async def fill(builder: Filler) -> None:
        for _ in range(30):
            builder.append_next(2_000)
        await builder.flush()

    url = made(tmp_path, fill, lambda b: b.rewrite(64 << 20))
    (one,) = planned(url)
    assert isinstance(one.where, StoreWhere)
    assert one.size_bytes > 2 << 20
    assert len(one.where.stretches) == 1


def test_objects_that_were_rewritten_since_the_plan_are_found_anew(tmp_path: Path):
    url = made(tmp_path, lambda b: b.fill(30))
    ranges = planned(url)
    change(tmp_path, lambda b: b.rewrite(700), lambda b: b.fill(3))
    assert offsets_in(rows_of(ranges)) == list(range(600))


def test_objects_that_go_in_the_middle_of_a_read_are_found_anew(tmp_path: Path):
    url = made(tmp_path, lambda b: b.fill(200, 300))
    (one,) = planned(url)
    batches = read_range(one)
    first = next(batches)
    change(tmp_path, lambda b: b.rewrite(1 << 20))
    change(tmp_path, lambda b: b.fill(3), lambda b: b.rewrite(64 << 20))
    found = first.to_pylist()
    for batch in batches:
        found.extend(batch.to_pylist())
    assert offsets_in(found) == list(range(60_000))


def test_records_below_the_log_start_are_a_loss_that_is_named(tmp_path: Path):
    url = made(tmp_path, lambda b: b.fill(30))
    ranges = planned(url)
    change(tmp_path, lambda b: b.delete_records(0, 110))
    with pytest.raises(DataLoss, match=r"t-0: offsets 0 to 109 are gone: the log starts at 110"):
        rows_of(ranges)
    source = StoreInput(url)
    where = partition_of(source)
    assert source.earliest([where]) == {where: 110}
    with pytest.raises(DataLoss, match=r"offsets 100 to 109 are gone"):
        source.plan({where: 100}, {where: 300})


def test_what_is_gone_is_skipped_where_that_is_wanted(tmp_path: Path):
    url = made(tmp_path, lambda b: b.fill(30))
    ranges = planned(url, fail_on_data_loss=False)
    change(tmp_path, lambda b: b.delete_records(0, 110))
    assert offsets_in(rows_of(ranges)) == list(range(110, 600))
    source = StoreInput(url)
    where = partition_of(source)
    lax = PlanOptions(fail_on_data_loss=False)
    assert offsets_in(rows_of(source.plan({where: 0}, {where: 120}, lax))) == [*range(110, 120)]


def test_a_deleted_topic_is_a_loss_also_where_another_has_its_name(tmp_path: Path):
    url = made(tmp_path, lambda b: b.fill(10))
    source = StoreInput(url)
    where = partition_of(source)
    ranges = source.plan({where: 0}, {where: 200})
    change(tmp_path, Filler.remove_topic, lambda b: b.topic(TOPIC, 1), lambda b: b.fill(20))
    with pytest.raises(DataLoss, match=r"offsets 0 to 199 of t-0: the topic with id"):
        rows_of(ranges)
    assert partition_of(source) != where
    with pytest.raises(DataLoss, match="is deleted"):
        source.latest([where])


def test_offsets_that_are_not_there_yet_cannot_be_planned(tmp_path: Path):
    url = made(tmp_path, lambda b: b.fill(3))
    source = StoreInput(url)
    where = partition_of(source)
    with pytest.raises(DataLoss, match=r"offsets 60 to 69 are not there: the log ends at 60"):
        source.plan({where: 50}, {where: 70})
    change(tmp_path, lambda b: b.fill(1))
    assert offsets_in(rows_of(source.plan({where: 50}, {where: 70}))) == list(range(50, 70))


TIMES = (1_000, 1_900, 1_100, 1_200, 1_800, 1_050, 1_700)
"""Of batches of ten records; they go up and down, as a producer's clock may."""


async def fill_by_times(builder: Filler) -> None:
    for timestamp in TIMES:
        builder.append_next(10, timestamp=timestamp)
        await builder.flush()


@pytest.mark.parametrize("is_rewritten", [False, True])
@pytest.mark.parametrize("least", [0, 1_001, 1_150, 1_750, 1_900, 1_901])
def test_stretches_with_older_records_only_are_not_read_and_no_row_is_missed(
    tmp_path: Path, least: int, is_rewritten: bool
):
    more = [lambda b: b.rewrite(900)] if is_rewritten else []
    url = made(tmp_path, fill_by_times, *more)
    expected = [i for i in range(70) if TIMES[i // 10] >= least and i % 10 < 9]
    text = f"timestamp >= {least} AND offset IN ({', '.join(str(i) for i in expected or [0])})"
    wanted = parse_where(text)
    ranges = planned(url, row_filter=wanted)
    assert offsets_in(rows_of(ranges)) == expected
    assert sum(r.size_bytes for r in ranges) <= sum(r.size_bytes for r in planned(url))
    if least > 1_001 and not is_rewritten:
        stretches = [
            s for r in ranges if isinstance(r.where, StoreWhere) for s in r.where.stretches
        ]
        assert [s.max_timestamp for s in stretches] == [t for t in TIMES if t >= least]


def test_rows_of_a_filter_are_found_anew_where_objects_were_rewritten(tmp_path: Path):
    url = made(tmp_path, fill_by_times)
    ranges = planned(url, row_filter=parse_where("timestamp BETWEEN 1150 AND 1850"))
    change(tmp_path, lambda b: b.rewrite(1 << 20))
    assert offsets_in(rows_of(ranges)) == [*range(30, 50), *range(60, 70)]


def test_the_first_record_at_or_after_a_time_is_found(tmp_path: Path):
    url = made(tmp_path, lambda b: b.fill(10))
    source = StoreInput(url)
    where = partition_of(source)
    assert source.by_timestamp({where: 1_005}) == {where: 100}
    assert source.by_timestamp({where: 0}) == {where: 0}
    assert source.by_timestamp({where: 2_000}) == {where: None}


@pytest.mark.parametrize("where", ["value", "leader epoch"])
def test_a_harmed_object_stops_the_read_and_is_named(tmp_path: Path, where: str):
    url = made(tmp_path, lambda b: b.fill(5))
    (one,) = planned(url)
    assert isinstance(one.where, StoreWhere)
    stretch = one.where.stretches[2]
    path = tmp_path / stretch.key
    body = bytearray(path.read_bytes())
    assert stretch.is_in_payload
    payload_start = parse_header(bytes(body), key=stretch.key).payload_start
    body[-3 if where == "value" else payload_start + stretch.position + 15] ^= 0x10
    path.unlink()
    path.write_bytes(body)
    with pytest.raises(CorruptObject, match=stretch.key):
        rows_of([one])


def test_planning_and_reading_change_nothing_in_the_directory(tmp_path: Path):
    url = made(tmp_path, lambda b: b.fill(10), lambda b: b.rewrite(500), lambda b: b.fill(2))
    before = sorted((str(p), p.stat().st_mtime_ns) for p in tmp_path.rglob("*"))
    assert len(rows_of(planned(url))) == 240
    assert sorted((str(p), p.stat().st_mtime_ns) for p in tmp_path.rglob("*")) == before
