"""The option `where`: what a text means, which it refuses, and rows that no plan changes."""

import operator
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.columnar.arrow import RecordBatch, pa
from holdfast.columnar.schema import SCHEMA, TIMESTAMP
from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.errors import ConfigurationError
from holdfast.spark.source.inputs import (
    DEFAULT_PLAN,
    KafkaWhere,
    Offsets,
    PlanOptions,
    Range,
    SourcePartition,
    TopicInfo,
)
from holdfast.spark.source.kafka_options import ClientOptions
from holdfast.spark.source.options import parse_options
from holdfast.spark.source.planning import Planner
from holdfast.spark.source.where import INT64_MAX, INT64_MIN, Numbers, RowFilter, parse_where

MIDNIGHT = int(datetime(2026, 11, 16, tzinfo=UTC).timestamp() * 1_000_000)


def numbers(text: str, column: str) -> Numbers:
    return parse_where(text).numbers(column)


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("offset = 5", 5, 5),
        ("offset > 5 AND offset < 9", 6, 8),
        ("OFFSET>=5 and Offset<=+9 And `offset` > 2", 5, 9),
        ("offset BETWEEN 3 AND 5 AND offset between 4 and 9", 4, 5),
        ("offset >= -7", -7, INT64_MAX),
        ("partition = 1", INT64_MIN, INT64_MAX),
    ],
)
def test_comparisons_narrow_to_what_all_of_them_allow(text: str, least: int, most: int):
    assert numbers(text, "offset") == Numbers(least, most)


def test_values_of_in_are_those_that_all_conditions_allow():
    text = "offset IN (9, 1, 5, 7) AND offset IN (5, 7, 8) AND offset < 100"
    assert numbers(text, "offset") == Numbers(5, 7, frozenset({5, 7}))
    assert numbers("offset IN (5) AND offset > 5", "offset").is_empty
    assert numbers(f"offset > {2**63}", "offset").is_empty


@pytest.mark.parametrize(
    ("written", "expected_us"),
    [
        ("'2026-11-16'", MIDNIGHT),
        ("'2026-11-16 00:00'", MIDNIGHT),
        ('"2026-11-16T00:00:00Z"', MIDNIGHT),
        ("TIMESTAMP '2026-11-16 01:30:00+01:30'", MIDNIGHT),
        ("timestamp'2026-11-15T22:00:00.5-0200'", MIDNIGHT + 500_000),
        ("'2026-11-16 00:00:00.000001'", MIDNIGHT + 1),
        (str(MIDNIGHT // 1000), MIDNIGHT),
        ("-1", -1_000),
    ],
)
def test_times_are_utc_unless_they_say_a_zone_and_numbers_are_milliseconds(
    written: str, expected_us: int
):
    assert numbers(f"timestamp = {written}", "timestamp") == Numbers(expected_us, expected_us)


def test_a_lower_bound_of_time_is_rounded_to_the_millisecond_above():
    assert parse_where("timestamp >= 1000").timestamp_min_ms == 1_000
    assert parse_where("timestamp > 1000").timestamp_min_ms == 1_001
    assert parse_where("timestamp >= '1970-01-01 00:00:00.0001'").timestamp_min_ms == 1
    assert parse_where("timestamp IN (70, 50)").timestamp_min_ms == 50


@pytest.mark.parametrize("text", ["timestamp >= -1", "timestamp < 5", "offset > 5"])
def test_without_a_lower_bound_no_time_is_asked_for(text: str):
    """-1 and below mean other things than times, to a broker."""
    assert parse_where(text).timestamp_min_ms is None


def test_topics_and_partitions_are_left_out_as_a_whole():
    both = parse_where("topic >= 'b' AND topic < \"d\" AND partition IN (0, 2)")
    clipped = {(t, p): both.clip(t, p, 5, 9) for t in "abcd" for p in range(3)}
    assert [where for where, (start, end) in clipped.items() if start < end] == [
        *(("b", 0), ("b", 2), ("c", 0), ("c", 2)),
    ]
    assert clipped["b", 0] == (5, 9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("offset < 5 OR offset > 7", "OR at character 12, where AND or the end should be"),
        ("NOT offset < 5", "NOT at character 1, where the name of a column"),
        ("offset NOT IN (5)", "NOT at character 8"),
        ("value = 'x'", "the column value at character 1 cannot be used"),
        ("ofset = 3", "did you mean offset"),
        ("hour(timestamp) = 3", "the function hour at character 1 cannot be used"),
        ("(offset = 3)", r"\( at character 1"),
        ("5 < offset", "5 at character 1, where the name of a column"),
        ("offset <> 3", "<> at character 8, where a comparison of offset"),
        ("offset == 3", "== at character 8"),
        ("offset LIKE 3", "LIKE at character 8"),
        ("offset IS NULL", "IS at character 8"),
        ("offset = 1.5", "1.5 at character 10, but offset is compared with whole numbers"),
        ("offset = 5L", "5L at character 10"),
        ("offset = '5'", "'5' at character 10, but offset is compared with whole numbers"),
        ("offset = partition", "partition at character 10"),
        ("topic = orders", "orders at character 9, but topic is compared with text in quotes"),
        ("topic = 'orders", "' at character 9"),
        ("timestamp > 'yesterday'", "'yesterday' at character 13, but timestamp is compared"),
        ("timestamp > '2026-13-01'", "'2026-13-01' at character 13"),
        ("timestamp > '2026-11-16 00:00:00.1234567'", "character 13"),
        ("timestamp > '2026-11-16 00:00:00 Europe/Oslo'", "character 13"),
        ("offset IN 3", "3 at character 11, where IN needs its values in parentheses"),
        ("offset IN ()", r"\) at character 12"),
        ("offset IN (3", "the end of the text, where a comma"),
        ("offset BETWEEN 3, 4", ", at character 17, where BETWEEN needs AND"),
        ("offset = 3 partition = 2", "partition at character 12"),
        ("offset = 3 AND", "the end of the text, where the name of a column"),
        ("offset", "the end of the text, where a comparison"),
        ("", "the end of the text"),
        ("offset = 3; offset = 4", "; at character 11"),
    ],
)
def test_what_is_not_understood_is_named_with_what_is_allowed_and_the_remedy(
    text: str, message: str
):
    with pytest.raises(ConfigurationError, match=message) as refused:
        parse_where(text)
    said = str(refused.value)
    assert said.startswith("where: ")
    assert "joined by AND; for all else use DataFrame.where" in said


class Record(NamedTuple):
    """One record; the timestamp is in milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int


def batch_of(records: Sequence[Record]) -> RecordBatch:
    times = [record.timestamp * 1_000 for record in records]
    columns = [
        pa.nulls(len(records), pa.binary()),
        pa.nulls(len(records), pa.binary()),
        pa.array([record.topic for record in records], pa.string()),
        pa.array([record.partition for record in records], pa.int32()),
        pa.array([record.offset for record in records], pa.int64()),
        pa.array(times, TIMESTAMP),
        pa.nulls(len(records), pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class RecordsInput:
    """Partitions of one topic in memory, each a list of timestamps; offsets begin at `first`."""

    def __init__(self, logs: list[list[int]], *, first: int) -> None:
        self.topic_id = UUID(int=1)
        self.records = {
            SourcePartition("t", p, self.topic_id): [
                Record("t", p, first + i, timestamp) for i, timestamp in enumerate(log)
            ]
            for p, log in enumerate(logs)
        }
        self.first = first

    def topics(self) -> dict[str, TopicInfo]:
        return {"t": TopicInfo("t", self.topic_id, len(self.records))}

    def earliest(self, partitions: Sequence[SourcePartition]) -> dict[SourcePartition, int]:
        return dict.fromkeys(partitions, self.first)

    def latest(self, partitions: Sequence[SourcePartition]) -> dict[SourcePartition, int]:
        return {where: self.first + len(self.records[where]) for where in partitions}

    def by_timestamp(self, at_ms: Offsets) -> dict[SourcePartition, int | None]:
        assert all(timestamp >= 0 for timestamp in at_ms.values())
        return {
            where: next((r.offset for r in self.records[where] if r.timestamp >= at), None)
            for where, at in at_ms.items()
        }

    def plan(
        self, start: Offsets, end: Offsets, options: PlanOptions = DEFAULT_PLAN
    ) -> list[Range]:
        return [
            Range(
                topic=where.topic,
                topic_id=where.topic_id,
                partition=where.partition,
                start_offset=start[where],
                end_offset=last,
                where=KafkaWhere(client=ClientOptions(bootstrap="h:1")),
                row_filter=options.row_filter,
            )
            for where, last in end.items()
        ]

    def close(self) -> None:
        pass

    def read(self, wanted: Range) -> list[tuple[Any, ...]]:
        log = self.records[wanted.topic_partition]
        span = [r for r in log if wanted.start_offset <= r.offset < wanted.end_offset]
        halves = [batch_of(span[: len(span) // 2]), batch_of(span[len(span) // 2 :])]
        return [
            (row["topic"], row["partition"], row["offset"])
            for batch in wanted.row_filter.matching(halves)
            for row in batch.to_pylist()
        ]


class Drawn(NamedTuple):
    """A condition as text, and what it means by itself."""

    text: str
    holds: Callable[[Record], bool]


COMPARISONS = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
TIMES = st.integers(-2, 9)


@st.composite
def conditions(draw: st.DrawFn) -> Drawn:
    columns = ["offset", "timestamp", "offset", "timestamp", "partition", "topic"]
    column = draw(st.sampled_from(columns))
    drawn = {
        "topic": st.sampled_from(["t", "s", "u"]),
        "partition": st.integers(0, 2),
        "offset": st.integers(-1, 14),
        "timestamp": TIMES,
    }[column]
    values: list[Any] = draw(st.lists(drawn, min_size=2, max_size=4))
    said = [_written(column, value, draw) for value in values]
    how = draw(st.sampled_from([*COMPARISONS, "IN", "BETWEEN"]))

    def value_of(record: Record) -> Any:
        return getattr(record, column)

    if how == "IN":
        return Drawn(f"{column} IN ({', '.join(said)})", lambda r: value_of(r) in values)
    if how == "BETWEEN":
        text = f"{column} BETWEEN {said[0]} AND {said[1]}"
        return Drawn(text, lambda r: values[0] <= value_of(r) <= values[1])
    return Drawn(f"{column} {how} {said[0]}", lambda r: COMPARISONS[how](value_of(r), values[0]))


def _written(column: str, value: Any, draw: st.DrawFn) -> str:
    if column == "topic":
        return f"'{value}'"
    if column == "timestamp" and draw(st.booleans()):
        moment = datetime(1970, 1, 1) + timedelta(milliseconds=value)
        return f"'{moment.isoformat(sep=' ', timespec='milliseconds')}'"
    return str(value)


@settings(max_examples=500)
@given(
    logs=st.lists(st.lists(TIMES, min_size=4, max_size=12), min_size=1, max_size=2),
    first=st.integers(0, 3),
    drawn=st.lists(conditions(), min_size=1, max_size=3),
    starting=st.none() | st.integers(0, 12),
)
def test_a_narrowed_plan_and_the_rest_of_the_filter_give_the_rows_of_the_plain_filter(
    logs: list[list[int]], first: int, drawn: list[Drawn], starting: int | None
):
    source = RecordsInput(logs, first=first)
    options = {"store": "/d", "subscribe": "t", "where": " AND ".join(d.text for d in drawn)}
    starts = {p: min(max(starting or 0, first), first + len(log)) for p, log in enumerate(logs)}
    if starting is not None:
        by_partition = ",".join(f'"{p}":{start}' for p, start in starts.items())
        options["startingOffsets"] = f'{{"t":{{{by_partition}}}}}'
    planner = Planner(
        options=parse_options(options, streaming=False),
        source=source,
        environment=SeededEnvironment(seed=1, clock=VirtualClock()),
    )
    found = [row for wanted in planner.batch_ranges() for row in source.read(wanted)]
    assert sorted(found) == sorted(
        (r.topic, r.partition, r.offset)
        for log in source.records.values()
        for r in log
        if r.offset >= starts[r.partition] and all(d.holds(r) for d in drawn)
    )


def test_times_at_the_ends_of_their_column_are_compared_as_they_are():
    far = [Record("t", 0, 0, INT64_MAX // 1000), Record("t", 0, 1, INT64_MIN // 1000 + 1)]
    for text, expected in (
        (f"timestamp >= {INT64_MAX // 1000}", [0]),
        (f"timestamp < {2**70}", [0, 1]),
        (f"timestamp > {2**70}", []),
        (f"timestamp < {-(2**40)}", [1]),
    ):
        kept = parse_where(text).matching([batch_of(far)])
        assert [n for batch in kept for n in batch.column("offset").to_pylist()] == expected


def test_without_conditions_every_row_is_kept():
    records = [Record("t", 0, i, 5 - i) for i in range(4)]
    (kept,) = RowFilter().matching([batch_of(records)])
    assert kept.num_rows == 4
