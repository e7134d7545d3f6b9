"""Ranges shared out to tasks: every offset once, in order, about equal bytes."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from holdfast.log.stored_batches import Stretch
from holdfast.spark.ledger.range_shares import shares
from holdfast.spark.source.inputs import Range, StoreWhere
from holdfast.spark.source.task_split import TASK_BYTES_MIN

ID = UUID(int=1)


def in_store(partition: int, sizes: list[int], *, first: int = 100) -> Range:
    """A range of stretches of ten offsets each, that begins and ends inside of one."""
    stretches = tuple(
        Stretch(f"object-{partition}", i, size, first + 10 * i, first + 10 * i + 9, 0)
        for i, size in enumerate(sizes)
    )
    return Range(
        topic="orders",
        topic_id=ID,
        partition=partition,
        start_offset=first + 3,
        end_offset=first + 10 * len(sizes) - 2,
        where=StoreWhere(url="store", stretches=stretches),
    )


sizes = st.lists(st.integers(1, 3 * TASK_BYTES_MIN), min_size=1, max_size=12)


@given(st.lists(sizes, min_size=1, max_size=5), st.integers(1, 6))
def test_every_offset_is_read_once_and_in_the_order_of_the_ranges(
    several: list[list[int]], tasks: int
):
    ranges = [in_store(i, sizes) for i, sizes in enumerate(several)]
    groups = shares(ranges, tasks)
    assert 1 <= len(groups) <= tasks
    assert all(groups)
    read = [
        (r.partition, at) for g in groups for r in g for at in range(r.start_offset, r.end_offset)
    ]
    assert read == [(r.partition, at) for r in ranges for at in range(r.start_offset, r.end_offset)]
    for part in (r for group in groups for r in group):
        assert isinstance(part.where, StoreWhere)
        held = part.where.stretches
        assert held[0].base_offset <= part.start_offset
        assert part.end_offset <= held[-1].last_offset + 1


@given(sizes, st.integers(1, 6))
def test_no_task_has_more_than_its_share_and_one_stretch(sizes: list[int], tasks: int):
    groups = shares([in_store(0, sizes)], tasks)
    wanted = sum(sizes) / len(groups) + max(sizes)
    assert all(sum(r.size_bytes for r in group) <= wanted for group in groups)


def test_little_is_read_by_one_task():
    assert len(shares([in_store(0, [1000] * 5), in_store(1, [1000] * 5)], 8)) == 1


def test_a_range_whose_bytes_are_not_known_stays_whole():
    fetched = Range(
        topic="orders",
        topic_id=ID,
        partition=0,
        start_offset=0,
        end_offset=10**9,
        where=StoreWhere(url="store", stretches=()),
    )
    assert shares([fetched], 4) == [[fetched]]
