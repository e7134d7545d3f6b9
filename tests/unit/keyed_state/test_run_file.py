"""The bytes of a run: what was written comes back, and anything else is named as corrupt."""

import numpy as np
import pytest

from holdfast.errors import CallError, CorruptObject
from holdfast.keyed_state.dedup import decode_hash_run, encode_hash_run, sorted_run
from holdfast.keyed_state.pinned import RunInfo, run_name

SEED = 7


def a_run(rows: int = 5, start: int = 0):
    numbers = np.arange(start, start + rows)
    return sorted_run(
        numbers.astype(np.uint64) * np.uint64(2**60 + 1),
        numbers.astype(np.uint64) + np.uint64(9),
        numbers.astype(np.int64) * 1000,
    )


def encoded(sink_id: str = "orders", bucket: int = 3, attempt: str = "a1", **run: int):
    name = run_name(sink_id, bucket, 12, attempt)
    info, buffers = encode_hash_run(a_run(**run), name=name, hash_seed=SEED)
    return info, b"".join(buffers)


def test_a_run_comes_back_as_it_was_written():
    info, data = encoded()
    run = a_run()
    back = decode_hash_run(data, info=info, hash_seed=SEED)
    assert back.high.tolist() == run.high.tolist()
    assert back.low.tolist() == run.low.tolist()
    assert back.time.tolist() == run.time.tolist()
    assert info.rows == 5
    assert info.bytes == len(data)
    assert (info.time_min_ms, info.time_median_ms, info.time_max_ms) == (0, 2000, 4000)


def test_the_body_starts_aligned_so_that_it_is_opened_without_a_copy():
    for attempt in ("a", "a" * 17, "a" * 64):
        info, data = encoded(attempt=attempt)
        assert (len(data) - info.rows * 24) % 64 == 0


def test_every_flipped_bit_is_detected_and_the_run_is_named():
    info, data = encoded()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << (position % 8)
        with pytest.raises(CorruptObject, match=info.name):
            decode_hash_run(bytes(damaged), info=info, hash_seed=SEED)


def test_every_truncation_is_detected():
    info, data = encoded()
    for size in range(len(data)):
        with pytest.raises(CorruptObject, match=info.name):
            decode_hash_run(data[:size], info=info, hash_seed=SEED)


def test_bytes_after_the_end_are_detected():
    info, data = encoded()
    with pytest.raises(CorruptObject, match="bytes; the ledger says"):
        decode_hash_run(data + b"\0", info=info, hash_seed=SEED)


@pytest.mark.parametrize(
    "other", [{"sink_id": "payments"}, {"bucket": 4}, {"attempt": "a2"}], ids=str
)
def test_a_run_of_another_sink_bucket_or_attempt_is_named(other: dict[str, object]):
    info, _ = encoded()
    foreign, data = encoded(**other)  # pyright: ignore[reportArgumentType]
    with pytest.raises(CorruptObject, match=f"it is another state run, '{foreign.name}'"):
        decode_hash_run(data, info=info, hash_seed=SEED)


def test_another_body_under_the_pinned_name_is_detected():
    info, _ = encoded()
    _, data = encoded(start=1)
    with pytest.raises(CorruptObject, match="the ledger says"):
        decode_hash_run(data, info=info, hash_seed=SEED)


def test_a_run_that_was_hashed_with_another_seed_is_refused():
    info, data = encoded()
    with pytest.raises(CorruptObject, match="seed 7"):
        decode_hash_run(data, info=info, hash_seed=8)


def test_a_run_with_no_entries_is_not_written():
    with pytest.raises(CallError, match="at least one entry"):
        encode_hash_run(a_run(rows=0), name="state/x", hash_seed=SEED)


def test_what_the_ledger_says_of_a_run_is_plain():
    info, _ = encoded()
    assert isinstance(info, RunInfo)
    assert info.name == "state/orders/00003/00000000000000000012-a1"
