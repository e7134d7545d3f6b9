"""What a partition may forget: whole stretches, the oldest first, by time or by size."""

import pytest
from tests.unit.log.stretches import PARTITION, log_with_runs, stored_batch

from holdfast.log.facts import LogStartMoved, SegmentRef
from holdfast.log.retention import RetentionRules, decide_retention

NOW = 1_000_000
DAY = 86_400


def rules(ms: int = -1, size: int = -1, *, deletes: bool = True) -> RetentionRules:
    return RetentionRules(retention_ms=ms, retention_bytes=size, deletes=deletes)


def runs_at(*timestamps: int):
    return log_with_runs([[stored_batch(i, timestamp=t)] for i, t in enumerate(timestamps)])


def moved_to(offset: int) -> LogStartMoved:
    return LogStartMoved(PARTITION, offset)


def test_stretches_older_than_the_limit_go_and_the_limit_itself_stays():
    log = runs_at(NOW - 11, NOW - 10, NOW)
    assert decide_retention(log, rules(10), NOW) == moved_to(1)
    assert decide_retention(log, rules(9), NOW) == moved_to(2)
    assert decide_retention(log, rules(11), NOW) is None


def test_an_old_stretch_behind_a_young_one_stays():
    assert decide_retention(runs_at(NOW, NOW - 100), rules(10), NOW) is None


def test_all_of_an_old_log_may_go():
    assert decide_retention(runs_at(1, 2, 3), rules(10), NOW) == moved_to(3)


def test_without_limits_or_without_the_delete_policy_everything_stays():
    log = runs_at(1, 2, 3)
    assert decide_retention(log, rules(), NOW) is None
    assert decide_retention(log, rules(1, 1, deletes=False), NOW) is None


def test_by_size_a_stretch_goes_only_where_enough_is_left_without_it():
    log = runs_at(NOW, NOW, NOW)
    one = log.runs.size[0]
    assert decide_retention(log, rules(size=3 * one), NOW) is None
    assert decide_retention(log, rules(size=2 * one + 1), NOW) is None
    assert decide_retention(log, rules(size=2 * one), NOW) == moved_to(1)
    assert decide_retention(log, rules(size=0), NOW) == moved_to(3)


def test_nothing_at_or_past_the_high_watermark_goes():
    log = runs_at(1, 2, 3)
    log.high_watermark = 1
    assert decide_retention(log, rules(10), NOW) == moved_to(1)


def test_a_start_that_is_decided_already_is_not_decided_again():
    log = runs_at(1, 2, NOW)
    log.move_start(2)
    assert decide_retention(log, rules(10), NOW) is None


def test_segments_go_before_the_runs_behind_them():
    log = runs_at(1, 2)
    log.segments = [SegmentRef(-2, -1, 100, 1, "s", 0)]
    assert decide_retention(log, rules(10), NOW) == moved_to(2)


@pytest.mark.parametrize("timestamps", [(-1,), (-1, NOW), (-1, -1, NOW)])
def test_records_without_a_timestamp_are_not_taken_for_old(timestamps: tuple[int, ...]):
    assert decide_retention(runs_at(*timestamps), rules(DAY), NOW) is None


def test_records_without_a_timestamp_go_with_the_old_ones_behind_them():
    assert decide_retention(runs_at(-1, 5, -1, NOW), rules(10), NOW) == moved_to(2)


def test_records_without_a_timestamp_go_by_size_as_others_do():
    log = runs_at(-1, -1, -1)
    assert decide_retention(log, rules(DAY, log.runs.size[0]), NOW) == moved_to(2)
