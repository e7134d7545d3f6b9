"""What a read needs, and how it is cut: whole batches, at least one, never past the watermark."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.log.stretches import PARTITION, log_with_runs, stored_batch

from holdfast.errors import CorruptObject
from holdfast.log.facts import SegmentRef
from holdfast.log.partition import PartitionLog
from holdfast.log.read_plan import BatchCut, batches_of, plan_read
from holdfast.records.batch import parse_header

BATCHES = [stored_batch(0, 3), stored_batch(3), stored_batch(4, 2), stored_batch(6, 4)]


def bases(cut: BatchCut) -> list[int]:
    return [parse_header(batch).base_offset for batch in batches_of(cut.buffers)]


@pytest.mark.parametrize("bytes_max", [0, -1, -(1 << 31), 1, len(BATCHES[0]) - 1])
@pytest.mark.parametrize("offset", range(10))
@pytest.mark.parametrize("joined", [True, False])
def test_a_bound_below_one_batch_lets_exactly_one_batch_through(
    bytes_max: int, offset: int, joined: bool
):
    cut = BatchCut(offset, bytes_max)
    buffers = [b"".join(BATCHES)] if joined else BATCHES
    cut.add_stretch(buffers, 9, sum(map(len, BATCHES)))
    expected = max(base for base in (0, 3, 4, 6) if base <= offset)
    assert bases(cut) == [expected]
    assert cut.is_full


@pytest.mark.parametrize("joined", [True, False])
def test_a_cut_ends_before_the_batch_that_no_longer_fits(joined: bool):
    two = len(BATCHES[0]) + len(BATCHES[1])
    buffers = [b"".join(BATCHES)] if joined else BATCHES
    for bytes_max, expected in [(two - 1, [0]), (two, [0, 3]), (two + 1, [0, 3])]:
        cut = BatchCut(0, bytes_max)
        cut.add_stretch(buffers, 9, sum(map(len, BATCHES)))
        assert bases(cut) == expected
        assert cut.bytes <= max(bytes_max, len(BATCHES[0]))
        assert cut.next_offset == (3 if expected == [0] else 4)


def test_an_offset_in_the_middle_of_a_batch_gives_the_whole_batch():
    cut = BatchCut(5, 1 << 20)
    cut.add_stretch(BATCHES, 9, sum(map(len, BATCHES)))
    assert bases(cut) == [4, 6]


def test_a_hole_between_batches_is_corruption():
    cut = BatchCut(0, 1 << 20)
    with pytest.raises(CorruptObject):
        cut.add_stretch([BATCHES[0], BATCHES[2]], 5, len(BATCHES[0]) + len(BATCHES[2]))


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    split=st.integers(1, 8),
    offset=st.integers(0, 31),
    bytes_max=st.integers(-5, 2_000),
    joined=st.booleans(),
)
def test_a_cut_is_always_the_longest_run_of_whole_batches_that_fits(
    counts: list[int], split: int, offset: int, bytes_max: int, joined: bool
):
    batches: list[bytes] = []
    for count in counts:
        base = parse_header(batches[-1]).last_offset + 1 if batches else 0
        batches.append(stored_batch(base, count))
    end = parse_header(batches[-1]).last_offset + 1
    offset %= end
    cut = BatchCut(offset, bytes_max)
    for stretch in (batches[:split], batches[split:]):
        if stretch and not cut.is_full:
            buffers = [b"".join(stretch)] if joined else stretch
            last = parse_header(stretch[-1]).last_offset
            cut.add_stretch(buffers, last, sum(map(len, stretch)))
    wanted = [b for b in batches if parse_header(b).last_offset >= offset]
    expected: list[bytes] = []
    for batch in wanted:
        if expected and sum(map(len, expected)) + len(batch) > bytes_max:
            break
        expected.append(batch)
    assert b"".join(cut.buffers) == b"".join(expected)
    assert cut.bytes == sum(map(len, expected))
    assert cut.next_offset == parse_header(expected[-1]).last_offset + 1


def test_nothing_is_planned_at_or_past_the_high_watermark():
    log = log_with_runs([[batch] for batch in BATCHES])
    log.high_watermark = 4
    assert plan_read(log, 4, 1 << 20).runs == []
    assert plan_read(log, 9, 1 << 20).runs == []
    assert [run.base_offset for run in plan_read(log, 0, 1 << 20).runs] == [0, 3]


def test_a_plan_covers_what_was_asked_even_when_the_first_stretch_is_nearly_over():
    log = log_with_runs([[batch] for batch in BATCHES])
    plan = plan_read(log, 2, len(BATCHES[1]))
    assert [run.base_offset for run in plan.runs][:2] == [0, 3]


def ref(base: int, last: int, size: int = 100) -> SegmentRef:
    return SegmentRef(base, last, size, 0, f"{base}-{last}", 64)


def test_a_plan_goes_from_segments_over_to_runs():
    log = PartitionLog(PARTITION)
    log.segments = [ref(0, 2), ref(3, 5), ref(6, 9)]
    log.log_end_offset = log.high_watermark = 10
    assert [s.base_offset for s in plan_read(log, 4, 1 << 20).segments] == [3, 6]
    assert [s.base_offset for s in plan_read(log, 0, 1).segments] == [0, 3]
    assert plan_read(log, 10, 1 << 20).segments == []
