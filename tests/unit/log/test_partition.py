"""One partition: offsets, runs, segments and leader epochs always tile."""

import pytest
from tests.unit.log.stretches import PARTITION, appended, log_with_runs, stored_batch

from holdfast.errors import InvariantViolation
from holdfast.log.facts import SegmentRef
from holdfast.log.partition import EpochStart, PartitionLog, PartitionRun


def ref(base: int, last: int, name: str | None = None, size: int = 100) -> SegmentRef:
    return SegmentRef(base, last, size, 0, name or f"{base}-{last}", 64)


def ten_runs() -> PartitionLog:
    """Ten lane objects, numbers 1 to 10, with two offsets each."""
    return log_with_runs([[stored_batch(2 * i, 2)] for i in range(10)])


def test_a_batch_that_is_not_next_is_an_invariant_violation():
    log = PartitionLog(PARTITION)
    log.append(appended(stored_batch(0, 3)), 0)
    for base in (0, 2, 4):
        with pytest.raises(InvariantViolation):
            log.append(appended(stored_batch(base)), 0)
    log.append(appended(stored_batch(3)), 0)
    assert (log.log_end_offset, log.high_watermark) == (4, 0)


def test_a_run_that_does_not_follow_is_an_invariant_violation():
    log = ten_runs()
    with pytest.raises(InvariantViolation):
        log.add_run(PartitionRun(21, 22, 11, 0, 10, 0))


@pytest.mark.parametrize("offset", range(21))
def test_the_run_of_each_offset_is_found(offset: int):
    runs = ten_runs().runs
    i = runs.find(offset)
    assert i == offset // 2
    if i < len(runs):
        assert runs.get(i).base_offset <= offset <= runs.get(i).last_offset


@pytest.mark.parametrize("offset", range(21))
def test_moving_the_start_keeps_everything_that_ends_at_or_after_it(offset: int):
    log = ten_runs()
    log.replace(4, [], [ref(0, 3), ref(4, 7)])
    log.move_start(offset)
    assert (log.start_decided, log.log_start_offset) == (offset, 0)
    assert len(log.segments) + len(log.runs) == 8
    gone = log.publish_start(offset)
    assert all(s.last_offset < offset for s in gone)
    kept = [s.last_offset for s in log.segments] + list(log.runs.last)
    assert kept == [last for last in (3, 7, 9, 11, 13, 15, 17, 19) if last >= offset]
    assert log.log_start_offset == offset
    assert log.publish_start(offset) == []


def test_the_start_never_goes_back():
    log = ten_runs()
    log.move_start(8)
    log.move_start(4)
    assert log.start_decided == 8
    log.publish_start(8)
    assert log.publish_start(4) == []
    assert log.log_start_offset == 8


def test_segments_take_the_place_of_runs_up_to_a_number():
    log = ten_runs()
    assert log.replace(6, [], [ref(0, 5), ref(6, 11)]) == []
    assert [s.name for s in log.segments] == ["0-5", "6-11"]
    assert list(log.runs.number) == [7, 8, 9, 10]
    assert log.runs.get(0).base_offset == 12


def test_merged_segments_are_no_longer_reachable():
    log = ten_runs()
    log.replace(2, [], [ref(0, 3)])
    gone = log.replace(5, ["0-3"], [ref(0, 9, "merged")])
    assert [s.name for s in gone] == ["0-3"]
    assert [s.name for s in log.segments] == ["merged"]


def test_new_segments_below_a_start_that_moved_meanwhile_are_dead_at_once():
    log = ten_runs()
    log.move_start(9)
    log.publish_start(9)
    gone = log.replace(6, [], [ref(0, 5), ref(6, 11)])
    assert [s.name for s in gone] == ["0-5"]
    assert [s.name for s in log.segments] == ["6-11"]


def test_segments_that_do_not_tile_are_an_invariant_violation():
    log = ten_runs()
    log.replace(2, [], [ref(0, 3)])
    with pytest.raises(InvariantViolation):
        log.replace(5, [], [ref(5, 9)])


def epochs() -> PartitionLog:
    log = PartitionLog(PARTITION)
    for base, leader_epoch in ((0, 0), (5, 0), (10, 2), (15, 5)):
        log.append(appended(stored_batch(base, 5)), leader_epoch)
    log.high_watermark = log.log_end_offset
    return log


@pytest.mark.parametrize(
    ("asked", "epoch", "end"),
    [(0, 0, 10), (1, 0, 10), (2, 2, 15), (4, 2, 15), (5, 5, 20), (9, 5, 20)],
)
def test_an_epoch_ends_where_the_next_one_that_wrote_begins(asked: int, epoch: int, end: int):
    assert epochs().end_of_epoch(asked) == EpochStart(epoch, end)


def test_an_epoch_never_ends_past_the_high_watermark():
    log = epochs()
    log.high_watermark = 7
    assert log.end_of_epoch(0) == EpochStart(0, 7)
    assert log.end_of_epoch(5) == EpochStart(5, 7)


def test_a_log_without_records_knows_no_epoch():
    assert PartitionLog(PARTITION).end_of_epoch(3) == EpochStart(-1, -1)


@pytest.mark.parametrize(
    ("offset", "left"), [(3, [0, 2, 5]), (10, [2, 5]), (12, [2, 5]), (15, [5]), (20, [5])]
)
def test_epochs_below_the_start_are_forgotten_and_the_current_one_is_kept(
    offset: int, left: list[int]
):
    log = epochs()
    log.publish_start(offset)
    assert [entry.leader_epoch for entry in log.epochs] == left
