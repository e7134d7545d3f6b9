"""What a duplicate is, case by case; dedup.py has the rule in words."""

import numpy as np
import pytest

from holdfast.errors import CallError
from holdfast.keyed_state.dedup import (
    Bucket,
    DedupSettings,
    LatePolicy,
    dedup,
    merge_runs,
    sorted_run,
)
from holdfast.keyed_state.pinned import TIME_MAX, TIME_MIN

FOR_EVER = DedupSettings()
MINUTE = DedupSettings(within_ms=60_000)
DIVERTING = DedupSettings(within_ms=60_000, late=LatePolicy.DIVERT)


def halves(keys: list[int]):
    return np.array(keys, np.uint64) << np.uint64(60), np.array(keys, np.uint64)


def entries(*rows: tuple[int, int]):
    high, low = halves([key for key, _ in rows])
    return sorted_run(high, low, np.array([time for _, time in rows], np.int64))


def judge(
    rows: list[tuple[int, int]],
    *runs: list[tuple[int, int]],
    settings: DedupSettings = FOR_EVER,
    watermark_ms: int | None = None,
    order: list[int] | None = None,
):
    return dedup(
        Bucket.load([entries(*run) for run in runs]),
        halves([key for key, _ in rows]),
        np.array([time for _, time in rows], np.int64),
        None if order is None else np.array(order, np.int64),
        settings=settings,
        watermark_ms=watermark_ms,
    )


def test_the_first_occurrence_in_the_micro_batch_is_kept():
    judged = judge([(1, 0), (2, 0), (1, 0), (1, 9), (2, 1)])
    assert judged.keep.tolist() == [True, True, False, False, False]
    assert judged.duplicates == 3


def test_first_means_lowest_order_not_lowest_row():
    judged = judge([(1, 0), (1, 0), (1, 0)], order=[5, 3, 4])
    assert judged.keep.tolist() == [False, True, False]


def test_a_key_of_any_run_is_a_duplicate_for_ever():
    judged = judge([(1, 0), (2, 0), (3, 0), (4, 0)], [(1, 5)], [(3, TIME_MIN), (7, 0)])
    assert judged.keep.tolist() == [False, True, False, True]


def test_two_keys_that_share_half_a_hash_are_two_keys():
    same = np.array([5, 5], np.uint64)
    other = np.array([1, 2], np.uint64)
    times = np.zeros(2, np.int64)
    for hashes in ((same, other), (other, same)):
        first = dedup(Bucket(), hashes, times, settings=FOR_EVER, watermark_ms=None)
        assert first.kept == 2
        again = dedup(
            Bucket.load([first.remembered]), hashes, times, settings=FOR_EVER, watermark_ms=None
        )
        assert again.kept == 0


@pytest.mark.parametrize("distance", [-60_001, -60_000, -1, 0, 60_000, 60_001])
def test_within_counts_on_both_sides_and_includes_its_bound(distance: int):
    in_state = judge([(1, 100_000 + distance)], [(1, 100_000)], settings=MINUTE)
    in_batch = judge([(1, 100_000), (1, 100_000 + distance)], settings=MINUTE)
    is_duplicate = abs(distance) <= 60_000
    assert in_state.duplicates == is_duplicate
    assert in_batch.duplicates == is_duplicate


def test_a_dropped_record_makes_no_duplicate_of_another():
    judged = judge([(1, 0), (1, 50_000), (1, 100_000)], settings=MINUTE)
    assert judged.keep.tolist() == [True, False, True]


def test_one_key_may_be_remembered_at_several_times():
    judged = judge(
        [(1, 30_000), (1, 190_000), (1, 95_000)], [(1, 0)], [(1, 200_000)], settings=MINUTE
    )
    assert judged.keep.tolist() == [False, False, True]


def test_extreme_event_times_neither_wrap_nor_match_each_other():
    judged = judge(
        [(1, TIME_MAX), (1, TIME_MIN), (1, TIME_MAX - 1), (1, TIME_MIN + 1), (1, -1)],
        settings=MINUTE,
    )
    assert judged.keep.tolist() == [True, True, False, False, True]
    remembered = judge([(1, TIME_MIN), (1, TIME_MAX)], [(1, TIME_MAX)], settings=MINUTE)
    assert remembered.keep.tolist() == [True, False]


def test_a_late_record_is_kept_and_counted_and_never_dropped():
    judged = judge([(1, 0), (2, 940_000), (3, 939_999)], settings=MINUTE, watermark_ms=1_000_000)
    assert judged.keep.tolist() == [True, True, True]
    assert judged.late.tolist() == [True, False, True]
    assert (judged.late_rows, judged.diverted, judged.duplicates) == (2, 0, 0)


def test_a_late_record_can_be_diverted_and_then_makes_no_duplicate():
    judged = judge(
        [(1, 930_000), (1, 930_000), (1, 950_000)], settings=DIVERTING, watermark_ms=1_000_000
    )
    assert judged.keep.tolist() == [False, False, True]
    assert judged.late.tolist() == [True, True, False]
    assert (judged.diverted, judged.duplicates) == (2, 0)


def test_a_late_record_whose_twin_is_still_remembered_is_a_duplicate():
    judged = judge([(1, 900_000)], [(1, 900_000)], settings=MINUTE, watermark_ms=1_000_000)
    assert (judged.duplicates, judged.late_rows) == (1, 0)


def test_an_entry_before_the_horizon_is_ignored_though_its_bytes_are_there():
    rows = [(1, 879_999)]
    judged = judge(rows, rows, settings=MINUTE, watermark_ms=1_000_000)
    assert (judged.duplicates, judged.late_rows, judged.kept) == (0, 1, 1)
    assert judged.remembered.rows == 0


def test_a_kept_late_record_is_remembered_while_it_can_matter():
    first = judge([(1, 930_000)], settings=MINUTE, watermark_ms=1_000_000)
    assert first.remembered.time.tolist() == [930_000]


def test_lateness_can_be_longer_than_the_window():
    patient = DedupSettings(within_ms=10, lateness_ms=1_000)
    judged = judge([(1, 9_000), (1, 8_999)], [(1, 8_990)], settings=patient, watermark_ms=10_000)
    assert judged.duplicates == 2
    assert patient.horizon_ms(10_000) == 8_990


def test_for_ever_nothing_expires_and_nothing_is_late():
    judged = judge([(1, 0), (2, 0)], [(1, TIME_MIN)], watermark_ms=TIME_MAX)
    assert judged.keep.tolist() == [False, True]
    assert judged.late_rows == 0


def test_an_empty_micro_batch_is_judged_to_nothing():
    judged = judge([], [(1, 0)])
    assert (judged.keep.size, judged.remembered.rows) == (0, 0)


def test_columns_of_different_lengths_are_refused():
    high, low = halves([1, 2])
    with pytest.raises(CallError, match="2 high and 2 low halves of hashes and 1 event times"):
        dedup(Bucket(), (high, low), np.zeros(1, np.int64), settings=FOR_EVER, watermark_ms=None)


@pytest.mark.parametrize("span", [-1, 2**62])
def test_a_window_that_cannot_be_is_refused(span: int):
    with pytest.raises(CallError, match="within_ms"):
        DedupSettings(within_ms=span)


def test_a_merge_keeps_the_order_and_drops_what_has_expired():
    merged = merge_runs(
        [entries((3, 10), (1, 5)), entries((1, 90), (2, 50)), entries((4, 1))], horizon_ms=10
    )
    assert merged.low.tolist() == [1, 2, 3]
    assert merged.time.tolist() == [90, 50, 10]


def test_a_merge_of_one_run_drops_what_has_expired():
    merged = merge_runs([entries((1, 5), (2, 50))], horizon_ms=50)
    assert merged.low.tolist() == [2]
