"""How stretches become tasks: whole, in order, and of about the same size."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.log.stored_batches import Stretch
from holdfast.spark.source.task_split import (
    TASK_BYTES_MAX,
    TASK_BYTES_MIN,
    joined,
    split,
    task_bytes,
)

MIB = 1024 * 1024


def stretches(sizes: list[int], key: str = "k") -> list[Stretch]:
    found: list[Stretch] = []
    position = 0
    for i, size in enumerate(sizes):
        found.append(Stretch(key, position, size, 10 * i, 10 * i + 9, 0))
        position += size
    return found


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 300))
def test_a_split_keeps_every_stretch_in_order_and_its_pieces_near_the_size(
    sizes: list[int], bytes_max: int
):
    whole = stretches(sizes)
    pieces = split(whole, bytes_max)
    assert [s for piece in pieces for s in piece] == whole
    assert all(pieces)
    for piece in pieces:
        assert sum(s.size_bytes for s in piece) <= 1.5 * bytes_max + 2 * 50


def test_a_stretch_that_is_larger_than_a_task_is_one_task():
    pieces = split(stretches([750, 50, 50, 50, 50, 50]), 250)
    assert [len(piece) for piece in pieces] == [1, 5]


def test_tasks_are_never_tiny_nor_huge():
    assert task_bytes(1000, 10) == TASK_BYTES_MIN
    assert task_bytes(100 * TASK_BYTES_MAX, 1) == TASK_BYTES_MAX
    assert task_bytes(80 * MIB, 4) == 20 * MIB


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 300))
def test_joined_stretches_hold_the_same_bytes_and_offsets(sizes: list[int], bytes_max: int):
    whole = stretches(sizes)
    found = joined(whole, bytes_max)
    assert sum(s.size_bytes for s in found) == sum(sizes)
    expected_position = expected_offset = 0
    for stretch in found:
        assert (stretch.position, stretch.base_offset) == (expected_position, expected_offset)
        expected_position += stretch.size_bytes
        expected_offset = stretch.last_offset + 1
        assert stretch.size_bytes <= max(bytes_max, 50)


def test_stretches_of_two_objects_or_with_a_gap_are_not_joined():
    a, b, c = stretches([5, 5, 5])
    assert joined([a, b._replace(key="other")]) == [a, b._replace(key="other")]
    assert joined([a, c]) == [a, c]
    moved = b._replace(is_in_payload=True)
    assert joined([a, moved]) == [a, moved]
