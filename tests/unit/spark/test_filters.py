"""Which filters narrow a batch read, and which are left to Spark."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from holdfast.spark.filters import bounds_of
from holdfast.spark.inputs import NO_BOUNDS, ReadBounds

OFFSET, TIME, PARTITION, TOPIC = ("offset",), ("timestamp",), ("partition",), ("topic",)
NOON = datetime(2026, 11, 15, 12, 0, 0, 500, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([EqualTo(OFFSET, 5)], ReadBounds(offset_min=5, offset_max=5)),
        ([GreaterThan(OFFSET, 5), LessThan(OFFSET, 9)], ReadBounds(offset_min=6, offset_max=8)),
        (
            [GreaterThanOrEqual(OFFSET, 5), GreaterThan(OFFSET, 2), LessThanOrEqual(OFFSET, 9)],
            ReadBounds(offset_min=5, offset_max=9),
        ),
        ([In(PARTITION, (1, 2)), EqualTo(PARTITION, 2)], ReadBounds(partitions=frozenset({2}))),
        ([EqualTo(TOPIC, "a"), IsNotNull(TOPIC)], ReadBounds(topics=frozenset({"a"}))),
    ],
)
def test_filters_that_bounds_decide_exactly_are_taken(filters: list[Filter], bounds: ReadBounds):
    assert bounds_of(filters) == (bounds, [])


@pytest.mark.parametrize("kind", [EqualTo, GreaterThan, GreaterThanOrEqual])
def test_a_lower_bound_of_time_narrows_and_is_still_applied_by_spark(kind: type[Filter]):
    one = kind(TIME, NOON)
    assert bounds_of([one]) == (ReadBounds(timestamp_min_ms=NOON_MS), [one])


def test_a_time_is_understood_in_its_own_zone():
    there = NOON.astimezone(timezone(timedelta(hours=5)))
    assert bounds_of([GreaterThan(TIME, there)])[0].timestamp_min_ms == NOON_MS
    assert bounds_of([GreaterThan(TIME, NOON.replace(tzinfo=None))])[0].timestamp_min_ms == NOON_MS


@pytest.mark.parametrize(
    "one",
    [
        LessThan(TIME, NOON),
        Not(EqualTo(OFFSET, 5)),
        In(OFFSET, (1, 2)),
        StringStartsWith(TOPIC, "a"),
        EqualTo(("key",), b"x"),
        IsNotNull(("key",)),
        EqualTo(("headers", "key"), "x"),
        EqualTo(PARTITION, None),
    ],
)
def test_other_filters_are_left_to_spark(one: Filter):
    assert bounds_of([one]) == (NO_BOUNDS, [one])
