"""What the ledger says of state: plain, canonical, and refused by another pipeline."""

import numpy as np
import pytest

from holdfast.errors import CallError
from holdfast.keyed_state.dedup import DedupSettings, LatePolicy
from holdfast.keyed_state.pinned import (
    Operator,
    RunInfo,
    bucket_of,
    decode_pinned,
    encode_pinned,
    next_watermark,
    nothing_pinned,
    refusal,
    run_name,
)

HOUR = 3_600_000
RULE = DedupSettings(within_ms=HOUR)


def info(name: str) -> RunInfo:
    return RunInfo(
        name=name, rows=1, bytes=1, crc=2**32 - 1, time_min_ms=-1, time_median_ms=0, time_max_ms=1
    )


def test_the_description_survives_json_and_equal_states_give_equal_bytes():
    pinned = nothing_pinned(RULE.operator(key=["id"]), buckets=2, hash_seed=2**64 - 1)
    pinned = pinned.with_runs({1: [info("a"), info("b")]}, event_time_watermark_ms=-5)
    assert decode_pinned(encode_pinned(pinned)) == pinned
    assert encode_pinned(decode_pinned(encode_pinned(pinned))) == encode_pinned(pinned)
    assert [len(runs) for runs in pinned.runs] == [0, 2]


def test_the_same_operator_goes_on_whatever_it_does_with_late_records():
    pinned = nothing_pinned(RULE.operator(key=["id"]), buckets=2, hash_seed=1)
    diverting = DedupSettings(within_ms=HOUR, late=LatePolicy.DIVERT)
    assert refusal(pinned, diverting.operator(key=("id",)), sink_id="orders") is None


def test_a_changed_window_is_refused_with_both_values_and_a_remedy():
    pinned = nothing_pinned(RULE.operator(key="id"), buckets=2, hash_seed=1)
    message = refusal(pinned, DedupSettings(within_ms=1).operator(key="id"), sink_id="orders")
    assert message is not None
    assert "within_ms was 3600000 and is now 1" in message
    assert "'orders'" in message
    assert "new sink id" in message


def test_another_kind_of_operator_is_refused():
    pinned = nothing_pinned(RULE.operator(), buckets=1, hash_seed=1)
    message = refusal(pinned, Operator(kind="timer", parameters={}), sink_id="orders")
    assert message is not None
    assert "was made by 'dedup', but the pipeline now has 'timer'" in message


@pytest.mark.parametrize("buckets", [0, -1, 65_537])
def test_a_number_of_buckets_that_cannot_be_is_refused(buckets: int):
    with pytest.raises(CallError, match="buckets"):
        nothing_pinned(RULE.operator(), buckets=buckets, hash_seed=1)


def test_the_watermark_is_the_latest_event_time_and_never_goes_back():
    assert next_watermark(None, 50, now_ms=100, allowance_ms=10) == 50
    assert next_watermark(50, 40, now_ms=100, allowance_ms=10) == 50
    assert next_watermark(50, None, now_ms=100, allowance_ms=10) == 50
    assert next_watermark(None, None, now_ms=100, allowance_ms=10) is None


def test_a_record_from_the_far_future_moves_the_watermark_no_further_than_the_allowance():
    assert next_watermark(50, 2**62, now_ms=100, allowance_ms=10) == 110
    assert next_watermark(200, 2**62, now_ms=100, allowance_ms=10) == 200


def test_buckets_are_even_and_within_their_number():
    low = np.random.default_rng(1).integers(0, 2**64, 80_000, dtype=np.uint64)
    counts = np.bincount(bucket_of(low, 8), minlength=8)
    assert counts.size == 8
    assert counts.min() > 9_500


@pytest.mark.parametrize("part", ["", "..", "a/b", "a b", "x" * 121])
def test_a_sink_id_or_attempt_that_would_be_a_path_is_refused(part: str):
    with pytest.raises(CallError, match="cannot be part of an object key"):
        run_name(part, 0, 0, "a")
    with pytest.raises(CallError, match="cannot be part of an object key"):
        run_name("orders", 0, 0, part)
