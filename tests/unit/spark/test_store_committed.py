"""Committed records straight from a store: no open, aborted or control record comes out."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.spark.stores import TOPIC, change, made, offsets_in, rows_of
from tests.unit.spark.transactions import FUTURE, goes_on, transactions

from holdfast.spark.source.data_source import open_input
from holdfast.spark.source.inputs import DataLoss, PlanOptions, Range, SourcePartition
from holdfast.spark.source.options import parse_options
from holdfast.spark.source.store_input import StoreInput
from holdfast.spark.source.where import parse_where

COMMITTED = [0, 1, 4, 7, 10]
UNCOMMITTED = [0, 1, 2, 3, 4, 7, 8, 10, 12, 13]


def source_of(url: str, *, read_committed: bool) -> tuple[StoreInput, SourcePartition]:
    source = StoreInput(url, read_committed=read_committed)
    return source, source.topics()[TOPIC].all_partitions()[0]


def planned(url: str, *, read_committed: bool = True, **options: Any) -> list[Range]:
    source, where = source_of(url, read_committed=read_committed)
    start, end = source.earliest([where]), source.latest([where])
    return source.plan(start, end, PlanOptions(**options))


@pytest.mark.parametrize("rewritten", [None, 1 << 20, 100])
def test_each_isolation_level_sees_its_records_in_lane_objects_and_in_segments(
    tmp_path: Path, rewritten: int | None
):
    more = [lambda b: b.rewrite(rewritten)] if rewritten else []
    url = made(tmp_path, transactions, *more, goes_on, *more)
    assert offsets_in(rows_of(planned(url))) == COMMITTED
    assert offsets_in(rows_of(planned(url, read_committed=False))) == UNCOMMITTED


@pytest.mark.parametrize("first", range(12))
def test_a_plan_that_starts_inside_a_transaction_leaves_the_rest_of_it_out(
    tmp_path: Path, first: int
):
    url = made(tmp_path, transactions, lambda b: b.rewrite(), goes_on)
    source, where = source_of(url, read_committed=True)
    ranges = source.plan({where: first}, {where: 12})
    assert offsets_in(rows_of(ranges)) == [offset for offset in COMMITTED if offset >= first]


def test_the_latest_offset_is_the_last_stable_one_and_nothing_past_it_can_be_planned(
    tmp_path: Path,
):
    url = made(tmp_path, transactions, goes_on)
    source, where = source_of(url, read_committed=True)
    assert source.latest([where]) == {where: 12}
    assert source.by_timestamp({where: FUTURE}) == {where: 0}
    with pytest.raises(DataLoss, match=r"offsets 12 to 13 are not there: the log ends at 12"):
        source.plan({where: 0}, {where: 14})
    change(tmp_path, lambda b: b.end(1, committed=True))
    assert source.latest([where]) == {where: 12}
    ranges = source.plan({where: 0}, {where: 14})
    assert offsets_in(rows_of(ranges)) == [*COMMITTED, 12, 13]


def test_a_filter_that_leaves_the_marker_unread_hides_no_later_record(tmp_path: Path):
    url = made(tmp_path, transactions, goes_on)
    ranges = planned(url, row_filter=parse_where(f"timestamp >= {FUTURE}"))
    assert offsets_in(rows_of(ranges)) == COMMITTED


def test_a_range_that_is_placed_anew_filters_as_it_was_planned(tmp_path: Path):
    url = made(tmp_path, transactions, goes_on)
    ranges = planned(url)
    change(tmp_path, lambda b: b.rewrite(100), lambda b: b.rewrite())
    assert offsets_in(rows_of(ranges)) == COMMITTED


@pytest.mark.parametrize(("level", "latest"), [("read_committed", 12), ("read_uncommitted", 14)])
def test_the_option_of_the_source_reaches_the_store(tmp_path: Path, level: str, latest: int):
    url = made(tmp_path, transactions, goes_on)
    options = parse_options(
        {"store": url, "subscribe": TOPIC, "kafka.isolation.level": level}, streaming=True
    )
    source = open_input(options)
    (where,) = source.topics()[TOPIC].all_partitions()
    assert source.latest([where]) == {where: latest}
