"""Positions and their text: equal iff equal, never back, the same ranges on each run."""

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import CorruptObject, InvariantViolation
from holdfast.spark.source import offsets
from holdfast.spark.source.inputs import SourcePartition
from holdfast.spark.source.offsets import OffsetRange, SourceOffset

ID, OTHER_ID = UUID(int=1), UUID(int=2)


def tp(partition: int = 0, topic: str = "orders", topic_id: UUID | None = ID) -> SourcePartition:
    return SourcePartition(topic, partition, topic_id)


partitions = st.builds(
    lambda topic, n: SourcePartition(topic, n, UUID(int=len(topic))),
    st.sampled_from(["a", "bb", "ccc"]),
    st.integers(0, 12),
)
positions = st.dictionaries(partitions, st.integers(0, 2**62), max_size=12)
source_offsets = st.builds(
    lambda now, n, tick: SourceOffset(now, dict(list(now.items())[:n]), tick),
    positions,
    st.integers(0, 12),
    st.none() | st.integers(0, 9),
)


@given(source_offsets, source_offsets)
def test_texts_are_equal_iff_the_offsets_are(one: SourceOffset, two: SourceOffset):
    assert (offsets.to_text(one) == offsets.to_text(two)) == (one == two)


@given(source_offsets)
def test_an_offset_survives_its_text_and_the_order_of_its_keys(offset: SourceOffset):
    text = offsets.to_text(offset)
    assert offsets.from_json(json.loads(text)) == offset
    assert json.dumps(offsets.to_json(offset)) == text
    backwards = SourceOffset(
        dict(reversed(offset.positions.items())),
        dict(reversed(offset.since.items())),
        offset.tick,
    )
    assert offsets.to_text(backwards) == text


def test_the_text_is_stable_over_releases():
    offset = SourceOffset({tp(2): 5, tp(10): 7}, {tp(10): 7})
    assert offsets.to_text(offset) == (
        '{"since": {"orders": {"id": "00000000-0000-0000-0000-000000000001", "partitions": '
        '{"10": 7}}}, "topics": {"orders": {"id": "00000000-0000-0000-0000-000000000001", '
        '"partitions": {"10": 7, "2": 5}}}, "version": 1}'
    )


def test_a_topic_without_an_id_survives_its_text():
    offset = SourceOffset({tp(topic_id=None): 5})
    assert offsets.from_json(json.loads(offsets.to_text(offset))) == offset


@pytest.mark.parametrize(
    "value", [None, [], {}, {"version": 1}, {"version": 1, "topics": {"t": 5}}, {"t": {"0": 5}}]
)
def test_the_offset_of_another_source_is_refused(value: object):
    with pytest.raises(CorruptObject):
        offsets.from_json(value)


def test_an_offset_of_a_newer_release_is_refused_with_the_remedy():
    with pytest.raises(CorruptObject, match="version 2"):
        offsets.from_json({"version": 2, "topics": {}})


def test_new_deleted_and_recreated_topics_are_told_apart():
    start = SourceOffset({tp(0): 5, tp(0, "gone"): 3, tp(0, "again"): 9})
    now = [tp(0), tp(1), tp(0, "again", OTHER_ID)]
    changed = offsets.changes(start, now)
    assert changed.appeared == [tp(0, "again", OTHER_ID), tp(1)]
    assert changed.deleted == [tp(0, "gone")]
    assert changed.recreated == [(tp(0, "again"), OTHER_ID)]


def test_a_missing_partition_of_a_topic_that_is_there_is_not_a_deletion():
    changed = offsets.changes(SourceOffset({tp(0): 5, tp(1): 5}), [tp(0)])
    assert not changed.deleted
    assert not changed.recreated


@given(positions, positions, positions)
def test_what_is_offered_is_never_below_what_was_served(
    start: dict[SourcePartition, int],
    latest: dict[SourcePartition, int],
    served: dict[SourcePartition, int],
):
    target = offsets.held(start, latest, served)
    assert set(target) == set(start)
    for where, offset in target.items():
        assert offset >= start[where]
        assert offset >= served.get(where, 0)
        assert offset >= latest.get(where, 0)
    for back in offsets.went_back(start, latest, served):
        assert latest[back.where] == back.start < back.end <= target[back.where]


@given(
    st.dictionaries(partitions, st.tuples(st.integers(0, 10**6), st.integers(0, 10**6))),
    st.integers(1, 10**6),
)
def test_a_limit_is_shared_out_exactly_and_starves_nobody(
    sizes: dict[SourcePartition, tuple[int, int]], most: int
):
    start = {where: first for where, (first, _) in sizes.items()}
    target = {where: first + size for where, (first, size) in sizes.items()}
    end = offsets.limited(start, target, most)
    moved = {where: end[where] - start[where] for where in start}
    waiting = {where: size for where, (_, size) in sizes.items() if size}
    assert sum(moved.values()) == min(sum(waiting.values()), max(most, len(waiting)))
    for where, size in waiting.items():
        assert 1 <= moved[where] <= size
    assert all(not moved[where] for where in sizes if where not in waiting)


def test_a_limit_is_shared_in_proportion():
    start = {tp(0): 0, tp(1): 0, tp(2): 10}
    target = {tp(0): 900, tp(1): 100, tp(2): 10}
    assert offsets.limited(start, target, 100) == {tp(0): 90, tp(1): 10, tp(2): 10}


def test_a_small_micro_batch_waits_until_its_delay_is_over():
    def waits(available: int, waited_ms: int) -> bool:
        return offsets.waits_for_more(
            {tp(): 5}, {tp(): 5 + available}, least=10, since_trigger_ms=waited_ms, delay_ms_max=100
        )

    assert waits(9, 50)
    assert not waits(10, 50)
    assert not waits(9, 100)


def test_an_initial_offset_reads_nothing_and_is_pinned_by_the_end_that_follows():
    start = offsets.initial({tp(): 5})
    assert offsets.ranges(start, start) == []
    end = offsets.moved(start, {tp(): 9})
    assert offsets.ranges(start, end) == [OffsetRange(tp(), 5, 9)]
    # Spark asks for the initial offset again when batch 0 is run again, and "latest" has moved.
    assert offsets.ranges(offsets.initial({tp(): 8}), end) == [OffsetRange(tp(), 5, 9)]
    after = offsets.moved(end, {tp(): 12})
    assert after.since == {}
    assert offsets.ranges(end, after) == [OffsetRange(tp(), 9, 12)]


def test_a_partition_that_appears_begins_at_the_same_record_on_each_run():
    start = SourceOffset({tp(0): 5})
    joined = offsets.joined(start, {tp(1): 3})
    end = offsets.moved(joined, {tp(0): 6, tp(1): 8})
    assert offsets.ranges(start, end) == [OffsetRange(tp(0), 5, 6), OffsetRange(tp(1), 3, 8)]


def test_a_partition_that_appears_alone_makes_no_other_one_begin_again():
    start = offsets.moved(offsets.initial({tp(0): 0}), {tp(0): 2})
    assert start.since == {tp(0): 0}
    grown = offsets.moved(offsets.joined(start, {tp(1): 0}), {tp(0): 2, tp(1): 0})
    assert offsets.ranges(start, grown) == []
    shrunk = offsets.without(offsets.joined(start, {tp(1): 0}), [tp(1)])
    assert offsets.ranges(start, shrunk) == []


def test_a_move_to_the_same_positions_is_the_same_offset():
    start = SourceOffset({tp(): 9}, {tp(): 5})
    assert offsets.moved(start, {tp(): 9}) is start


def test_a_tick_alone_makes_no_partition_begin_again():
    first = offsets.moved(offsets.initial({tp(): 0}), {tp(): 1}, tick=7)
    later = offsets.moved(first, {tp(): 1}, tick=8)
    assert later != first
    assert offsets.ranges(first, later) == []
    assert offsets.moved(later, {tp(): 1}, tick=3) is later, "clocks go back, ticks do not"


steps = st.lists(
    st.tuples(
        st.lists(st.integers(0, 3), min_size=4, max_size=4), st.integers(0, 2), st.integers(1, 4)
    ),
    max_size=8,
)


@given(steps)
def test_micro_batches_read_each_record_once_whatever_grows_appears_or_ticks(
    steps: list[tuple[list[int], int, int]],
):
    offset = offsets.initial({tp(0): 2})
    read: dict[SourcePartition, list[int]] = {tp(0): []}
    for grown, tick, there in steps:
        appeared = {tp(n): n for n in range(there) if tp(n) not in offset.positions}
        begun = offsets.joined(offset, appeared) if appeared else offset
        read |= {where: [] for where in appeared}
        end = {where: at + grown[where.partition] for where, at in begun.positions.items()}
        after = offsets.moved(begun, end, tick)
        for found in offsets.ranges(offset, after) if after != offset else []:
            read[found.where] += range(found.start, found.end)
        offset = after
    began = {where: 2 if where == tp(0) else where.partition for where in read}
    assert read == {where: list(range(began[where], offset.positions[where])) for where in read}


def test_going_back_is_a_violation():
    with pytest.raises(InvariantViolation, match="orders-0 would go back"):
        offsets.moved(SourceOffset({tp(): 9}), {tp(): 8})
    with pytest.raises(InvariantViolation, match="checkpoint"):
        offsets.ranges(SourceOffset({tp(): 9}), SourceOffset({tp(): 8}))
    with pytest.raises(InvariantViolation):
        offsets.ranges(SourceOffset({}), SourceOffset({tp(): 8}))


ends = st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))


@given(ends)
def test_what_is_lost_and_what_remains_make_the_whole(numbers: tuple[int, int, int, int]):
    first, last, earliest, latest = numbers
    wanted = [OffsetRange(tp(), first, last)] if first < last else []
    gone = offsets.lost(wanted, {tp(): earliest})
    left = offsets.remaining(wanted, gone)
    beyond = offsets.past_the_end(left, {tp(): latest})
    left = offsets.remaining(left, beyond)
    pieces = sorted(n for r in [*gone, *beyond, *left] for n in range(r.start, r.end))
    assert pieces == [*range(first, last)]
    assert all(earliest <= r.start and r.end <= latest for r in left)


def test_a_topic_that_is_gone_loses_its_whole_range():
    wanted = [OffsetRange(tp(), 5, 9)]
    assert offsets.lost(wanted, {}) == wanted
    assert offsets.listed(wanted) == "orders-0 offsets 5 to 8 (4 records)"


def test_a_long_list_is_cut_and_still_counts_all():
    many = [OffsetRange(tp(i), 0, 10) for i in range(25)]
    assert "50 records of 5 more partitions" in offsets.listed(many)
    assert offsets.count(many) == 250
