"""What a query reads next, against an input in memory that can grow, shrink, vanish and lie."""

import logging
from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.errors import ConfigurationError
from holdfast.spark.source import offsets
from holdfast.spark.source.inputs import (
    DEFAULT_PLAN,
    DataLoss,
    KafkaWhere,
    Offsets,
    PlanOptions,
    Range,
    SourcePartition,
    TopicInfo,
)
from holdfast.spark.source.kafka_options import ClientOptions
from holdfast.spark.source.offsets import SourceOffset
from holdfast.spark.source.options import parse_options
from holdfast.spark.source.planning import Planner


class MemoryInput:
    """Logs as pairs of numbers. A record's timestamp is its offset times ten."""

    def __init__(self) -> None:
        self.logs: dict[str, tuple[UUID, list[list[int]]]] = {}
        self.plans: list[PlanOptions] = []

    def create(self, topic: str, *bounds: tuple[int, int], topic_id: int = 1) -> None:
        self.logs[topic] = (UUID(int=topic_id), [list(pair) for pair in bounds])

    def at(self, topic: str, partition: int = 0) -> SourcePartition:
        return SourcePartition(topic, partition, self.logs[topic][0])

    def topics(self) -> dict[str, TopicInfo]:
        return {n: TopicInfo(n, topic_id, len(p)) for n, (topic_id, p) in self.logs.items()}

    def _log(self, where: SourcePartition) -> list[int]:
        topic_id, logs = self.logs.get(where.topic, (None, []))
        if topic_id != where.topic_id:
            raise DataLoss(f"{where} is gone")
        return logs[where.partition]

    def earliest(self, partitions: Sequence[SourcePartition]) -> dict[SourcePartition, int]:
        return {where: self._log(where)[0] for where in partitions}

    def latest(self, partitions: Sequence[SourcePartition]) -> dict[SourcePartition, int]:
        return {where: self._log(where)[1] for where in partitions}

    def by_timestamp(self, at_ms: Offsets) -> dict[SourcePartition, int | None]:
        found: dict[SourcePartition, int | None] = {}
        for where, timestamp in at_ms.items():
            first, last = self._log(where)
            offset = max(first, -(-timestamp // 10))
            found[where] = offset if offset < last else None
        return found

    def plan(
        self, start: Offsets, end: Offsets, options: PlanOptions = DEFAULT_PLAN
    ) -> list[Range]:
        self.plans.append(options)
        where = KafkaWhere(client=ClientOptions(bootstrap="h:1"))
        return [
            Range(
                topic=p.topic,
                topic_id=p.topic_id,
                partition=p.partition,
                start_offset=start[p],
                end_offset=last,
                where=where,
            )
            for p, last in end.items()
        ]

    def close(self) -> None:
        pass


class Query:
    """A planner on a virtual clock, whose pauses move that clock."""

    def __init__(self, source: MemoryInput, *, streaming: bool = True, **options: str) -> None:
        self.clock = VirtualClock()
        raw = {"store": "/d", **({} if "subscribePattern" in options else {"subscribe": "t"})}
        self.planner = Planner(
            options=parse_options({**raw, **options}, streaming=streaming),
            source=source,
            environment=SeededEnvironment(seed=1, clock=self.clock),
            pause=self.pause,
        )

    def pause(self, seconds: float) -> None:
        self.clock.seconds += seconds

    def next(
        self, start: SourceOffset, *, most: int | None = None, least: int | None = None
    ) -> SourceOffset:
        return self.planner.next_offset(start, most=most, least=least)

    def read(self, start: SourceOffset, end: SourceOffset) -> list[tuple[str, int, int, int]]:
        return spans(self.planner.stream_ranges(start, end))


def spans(ranges: list[Range]) -> list[tuple[str, int, int, int]]:
    return [(r.topic, r.partition, r.start_offset, r.end_offset) for r in ranges]


@pytest.fixture
def source() -> MemoryInput:
    made = MemoryInput()
    made.create("t", (0, 10), (5, 8))
    return made


def test_a_stream_starts_at_the_end_and_reads_what_comes(source: MemoryInput):
    query = Query(source)
    start = query.planner.initial_offset()
    assert query.next(start) == start
    source.logs["t"][1][0][1] = 12
    end = query.next(start)
    assert query.read(start, end) == [("t", 0, 10, 12)]
    assert query.next(end) is end


def test_batch_zero_reads_the_same_when_it_is_run_again_after_the_log_grew(source: MemoryInput):
    first = Query(source)
    start = first.planner.initial_offset()
    source.logs["t"][1][0][1] = 12
    end = first.next(start)
    source.logs["t"][1][0][1] = 20
    again = Query(source)
    assert again.read(again.planner.initial_offset(), end) == [("t", 0, 10, 12)]


def test_an_empty_batch_zero_can_be_run_again(source: MemoryInput):
    start = Query(source).planner.initial_offset()
    source.logs["t"][1][0][1] = 20
    again = Query(source)
    assert again.read(again.planner.initial_offset(), start) == []
    end = again.next(start)
    assert again.read(start, end) == [("t", 0, 10, 20)]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 9)),
        st.tuples(st.just("grow"), st.just(0), st.integers(1, 2)),
        st.tuples(st.just("lie"), st.integers(0, 3), st.integers(1, 9)),
        st.tuples(st.just("micro_batch"), st.sampled_from([0, 1, 3, 100]), st.just(0)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@given(steps, st.sampled_from(["earliest", "latest"]))
def test_every_record_is_read_once_through_growth_lies_and_restarts(
    todo: list[tuple[str, int, int]], starting: str
):
    """Each micro-batch is also planned anew by a second planner, as Spark does after a crash."""
    source, read = MemoryInput(), list[tuple[int, int]]()
    source.create("t", (0, 3))
    logs = source.logs["t"][1]
    query = Query(source, startingOffsets=starting)
    at = first = query.planner.initial_offset()

    def micro_batch(most: int | None) -> bool:
        nonlocal at
        end = query.next(at, most=most)
        if offsets.to_text(end) == offsets.to_text(at):
            return False
        again = Query(source, startingOffsets=starting)
        start = again.planner.initial_offset() if at is first else at
        planned = query.read(at, end)
        assert again.read(start, end) == planned
        read.extend((p, offset) for _, p, a, b in planned for offset in range(a, b))
        at = end
        return True

    for what, which, number in todo:
        match what:
            case "append" if which < len(logs):
                logs[which][1] += number
            case "grow":
                logs.extend([0, 0] for _ in range(number))
            case "lie" if which < len(logs):
                truth = logs[which][1]
                logs[which][1] = max(0, truth - number)
                assert offsets.went_back(at.positions, query.next(at).positions, {}) == []
                logs[which][1] = truth
            case "micro_batch":
                micro_batch(which or None)
            case "restart" if at is not first:
                query = Query(source, startingOffsets=starting)
            case _:
                pass
    while micro_batch(2):
        pass
    begun = {0: 3 if starting == "latest" else 0}
    assert sorted(read) == [
        (p, offset) for p, (_, last) in enumerate(logs) for offset in range(begun.get(p, 0), last)
    ]


def test_a_newest_offset_that_goes_back_is_held_and_never_offered(
    source: MemoryInput, caplog: pytest.LogCaptureFixture
):
    query = Query(source, startingOffsets="earliest")
    start = query.planner.initial_offset()
    end = query.next(start)
    source.logs["t"][1][0][1] = 4
    with caplog.at_level(logging.WARNING):
        assert query.next(end) is end
        assert query.next(end) is end
    assert caplog.text.count("went_back") == 1
    assert "t-0 offsets 4 to 9 (6 records)" in caplog.text
    source.logs["t"][1][0][1] = 11
    assert query.read(end, query.next(end)) == [("t", 0, 10, 11)]


def test_a_log_that_ends_before_the_promise_is_waited_for_then_named(source: MemoryInput):
    query = Query(source, startingOffsets="earliest")
    start = query.planner.initial_offset()
    end = query.next(start)
    source.logs["t"][1][0][1] = 4
    with pytest.raises(DataLoss, match=r"6 records are past the end.*t-0 offsets 4 to 9"):
        query.read(start, end)
    assert query.clock.seconds >= 30
    skipping = Query(source, startingOffsets="earliest", failOnDataLoss="false")
    assert skipping.read(start, end) == [("t", 0, 0, 4), ("t", 1, 5, 8)]


def test_a_log_that_is_short_only_for_a_while_loses_nothing(source: MemoryInput):
    query = Query(source, startingOffsets="earliest")
    start = query.planner.initial_offset()
    end = query.next(start)
    source.logs["t"][1][0][1] = 4

    def recover(seconds: float) -> None:
        query.clock.seconds += seconds
        source.logs["t"][1][0][1] = 10

    query.planner.pause = recover
    assert query.read(start, end) == [("t", 0, 0, 10), ("t", 1, 5, 8)]


def test_a_new_partition_is_read_from_its_earliest_record(source: MemoryInput):
    query = Query(source)
    start = query.planner.initial_offset()
    source.logs["t"][1].append([2, 6])
    end = query.next(start)
    assert query.read(start, end) == [("t", 2, 2, 6)]
    source.logs["t"][1][2][0] = 4
    with pytest.raises(DataLoss, match=r"2 records are gone.*t-2 offsets 2 to 3"):
        query.read(start, end)


def test_a_new_topic_of_a_pattern_is_read_from_its_start(source: MemoryInput):
    query = Query(source, subscribePattern="t.*")
    start = query.planner.initial_offset()
    source.create("t-more", (0, 3), topic_id=7)
    source.create("other", (0, 3), topic_id=8)
    assert query.read(start, query.next(start)) == [("t-more", 0, 0, 3)]


def test_a_topic_that_was_created_again_is_an_error_even_if_it_outgrew_the_old_one(
    source: MemoryInput,
):
    query = Query(source)
    start = query.planner.initial_offset()
    source.create("t", (0, 100), (0, 100), topic_id=2)
    with pytest.raises(DataLoss, match=r"t-0 was deleted and created again.*offset 10 of the old"):
        query.next(start)


def test_a_topic_that_was_created_again_can_be_read_from_its_start(source: MemoryInput):
    query = Query(source, failOnDataLoss="false")
    start = query.planner.initial_offset()
    source.create("t", (0, 100), topic_id=2)
    end = query.next(start)
    assert query.read(start, end) == [("t", 0, 0, 100)]
    assert list(end.positions) == [source.at("t")]


def test_a_deleted_topic_is_an_error_and_names_how_far_it_was_read(source: MemoryInput):
    query = Query(source)
    start = query.planner.initial_offset()
    del source.logs["t"]
    with pytest.raises(DataLoss, match=r"t-0 .* was deleted.*offset 10"):
        query.next(start)
    skipping = Query(source, failOnDataLoss="false")
    assert skipping.next(start).positions == {}


def test_a_topic_that_is_missing_for_one_look_is_not_deleted(source: MemoryInput):
    query = Query(source)
    start = query.planner.initial_offset()
    hidden = source.logs.pop("t")

    def show_again(_: float) -> None:
        source.logs["t"] = hidden

    query.planner.pause = show_again
    assert query.next(start) is start


def test_records_that_retention_took_are_named_exactly_or_skipped_and_counted(
    source: MemoryInput, caplog: pytest.LogCaptureFixture
):
    query = Query(source, startingOffsets="earliest")
    start = query.planner.initial_offset()
    end = query.next(start)
    source.logs["t"][1][0][0] = 7
    with pytest.raises(DataLoss, match=r"7 records are gone.*: t-0 offsets 0 to 6 \(7 records\)"):
        query.read(start, end)
    skipping = Query(source, startingOffsets="earliest", failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert skipping.read(start, end) == [("t", 0, 7, 10), ("t", 1, 5, 8)]
    assert "7 records are gone from the log: t-0 offsets 0 to 6 (7 records)" in caplog.text


def test_available_now_ends_at_what_was_there_at_its_first_look(source: MemoryInput):
    query = Query(source, startingOffsets="earliest")
    query.planner.prepare_for_available_now()
    start = query.planner.initial_offset()
    at = query.next(start, most=4)
    source.logs["t"][1][0][1] = 50
    source.logs["t"][1].append([0, 9])
    seen = 0
    while (after := query.next(at, most=4)) != at:
        at, seen = after, seen + 1
    assert at.positions == {source.at("t", 0): 10, source.at("t", 1): 8}
    assert seen == 3


def test_available_now_makes_no_micro_batch_of_nothing_after_the_first_one(source: MemoryInput):
    query = Query(source, startingOffsets="earliest")
    query.planner.prepare_for_available_now()
    end = query.next(query.planner.initial_offset())
    assert end.since
    assert query.next(end) is end


def test_available_now_ends_although_fewer_than_the_minimum_are_left(source: MemoryInput):
    query = Query(source, startingOffsets="earliest")
    query.planner.prepare_for_available_now()
    start = query.planner.initial_offset()
    query.next(start, least=1000)
    end = query.next(start, least=1000)
    assert end.positions == {source.at("t", 0): 10, source.at("t", 1): 8}


def test_a_minimum_waits_for_records_or_for_its_delay(source: MemoryInput):
    query = Query(source, startingOffsets="earliest", maxTriggerDelay="10s")
    start = query.planner.initial_offset()
    end = query.next(start, least=5)
    assert end != start
    source.logs["t"][1][0][1] = 12
    assert query.next(end, least=5) is end
    query.clock.seconds += 10
    assert query.next(end, least=5).positions[source.at("t")] == 12


def test_a_limit_bounds_each_micro_batch(source: MemoryInput):
    query = Query(source, startingOffsets="earliest")
    at, sizes = query.planner.initial_offset(), []
    while (after := query.next(at, most=5)) != at:
        sizes.append(sum(last - first for _, _, first, last in query.read(at, after)))
        at = after
    assert sizes == [5, 5, 3]


def test_tasks_are_cut_by_the_most_records_that_one_may_have(source: MemoryInput):
    query = Query(source, startingOffsets="earliest", maxRecordsPerPartition="4", minPartitions="6")
    start = query.planner.initial_offset()
    found = sorted(query.read(start, query.next(start)))
    assert found == [("t", 0, 0, 4), ("t", 0, 4, 8), ("t", 0, 8, 10), ("t", 1, 5, 8)]
    assert {plan.min_partitions for plan in source.plans} == {2}


def test_a_batch_reads_between_its_bounds(source: MemoryInput):
    def batch(**options: str) -> list[tuple[str, int, int, int]]:
        return spans(Query(source, streaming=False, **options).planner.batch_ranges())

    assert batch() == [("t", 0, 0, 10), ("t", 1, 5, 8)]
    given = {"startingOffsets": '{"t":{"0":3,"1":-2}}', "endingOffsets": '{"t":{"0":-1,"1":6}}'}
    assert batch(**given) == [("t", 0, 3, 10), ("t", 1, 5, 6)]
    assert batch(startingTimestamp="31", endingTimestamp="70") == [("t", 0, 4, 7), ("t", 1, 5, 7)]
    by_time = '{"t":{"0":50,"1":60}}'
    assert batch(startingOffsetsByTimestamp=by_time) == [("t", 0, 5, 10), ("t", 1, 6, 8)]


def test_a_timestamp_past_all_records_is_an_error_or_the_end(source: MemoryInput):
    query = Query(source, startingTimestamp="1000")
    with pytest.raises(ConfigurationError, match="startingOffsetsByTimestampStrategy"):
        query.planner.initial_offset()
    ended = Query(source, startingTimestamp="1000", startingOffsetsByTimestampStrategy="latest")
    assert ended.planner.initial_offset().positions[source.at("t")] == 10


def test_a_batch_past_the_end_or_before_the_start_of_the_log_is_named(source: MemoryInput):
    ends = {"startingOffsets": '{"t":{"0":0,"1":0}}', "endingOffsets": '{"t":{"0":12,"1":8}}'}
    with pytest.raises(DataLoss, match=r"5 records are gone.*t-1 offsets 0 to 4"):
        Query(source, streaming=False, **ends).planner.batch_ranges()
    source.logs["t"][1][1][0] = 0
    with pytest.raises(DataLoss, match=r"2 records are past the end.*t-0 offsets 10 to 11"):
        Query(source, streaming=False, **ends).planner.batch_ranges()
    assert source.plans == []


def test_where_narrows_a_batch_within_its_other_bounds(source: MemoryInput):
    def batch(where: str, **options: str) -> list[tuple[str, int, int, int]]:
        return spans(Query(source, streaming=False, where=where, **options).planner.batch_ranges())

    assert batch("offset BETWEEN 6 AND 8 AND timestamp >= 70") == [("t", 0, 7, 9), ("t", 1, 7, 8)]
    assert batch("partition = 5") == []
    assert batch("partition = 1 AND topic = 't'") == [("t", 1, 5, 8)]
    assert batch("timestamp > 90") == []
    ends = '{"t":{"0":9,"1":6}}'
    assert batch("offset >= 2", endingOffsets=ends) == [("t", 0, 2, 9), ("t", 1, 5, 6)]
    assert batch("offset IN (7, 3)", startingTimestamp="50") == [("t", 0, 5, 8), ("t", 1, 5, 8)]


def test_what_where_leaves_out_may_be_gone_and_what_it_may_want_may_not(source: MemoryInput):
    starts = {"startingOffsets": '{"t":{"0":0,"1":0}}'}

    def batch(where: str) -> list[tuple[str, int, int, int]]:
        return spans(Query(source, streaming=False, where=where, **starts).planner.batch_ranges())

    assert batch("offset >= 5") == [("t", 0, 5, 10), ("t", 1, 5, 8)]
    with pytest.raises(DataLoss, match="t-1 offsets 0 to 4"):
        batch("timestamp >= 70")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "orders"}, "no 'orders'; existing topics: 't'"),
        ({"startingOffsets": '{"t":{"0":1}}'}, "t-1 has no number"),
        ({"startingOffsets": '{"t":{"0":1,"1":5,"2":5}}'}, "t-2 is not among"),
        ({"startingOffsets": '{"t":{"0":11,"1":5}}'}, "ends at 10"),
    ],
)
def test_a_start_that_cannot_be_is_refused(
    source: MemoryInput, options: dict[str, str], message: str
):
    with pytest.raises(ConfigurationError, match=message):
        Query(source, **options).planner.initial_offset()


def test_an_assigned_partition_must_be_there(source: MemoryInput):
    options = parse_options({"store": "/d", "assign": '{"t":[1,7]}'}, streaming=True)
    query = Query(source)
    query.planner.options = options
    with pytest.raises(ConfigurationError, match="there is no t-7"):
        query.planner.initial_offset()


def test_the_newest_offsets_are_reported(source: MemoryInput):
    query = Query(source, startingOffsets="earliest")
    assert query.planner.newest_offset() is None
    query.next(query.planner.initial_offset(), most=1)
    newest = query.planner.newest_offset()
    assert newest == SourceOffset({source.at("t", 0): 10, source.at("t", 1): 8})
    assert "since" not in offsets.to_text(newest)
