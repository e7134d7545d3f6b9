"""The tail and the read cache: two budgets that count what they really hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.log.memory import Payload, ReadCache, Tail


@given(
    sizes=st.lists(st.integers(1, 9_000), min_size=1, max_size=6),
    start=st.integers(0, 1 << 16),
    size=st.integers(0, 1 << 16),
)
def test_a_slice_of_a_payload_is_that_slice_of_its_bytes(sizes: list[int], start: int, size: int):
    buffers = [bytes([i]) * n for i, n in enumerate(sizes)]
    whole = b"".join(buffers)
    start %= len(whole)
    size = min(size, len(whole) - start)
    payload = Payload(buffers)
    assert payload.size_bytes == len(whole)
    assert b"".join(payload.slice(start, size)) == whole[start : start + size]


def test_the_tail_drops_its_oldest_objects_and_keeps_within_its_budget():
    tail = Tail(100)
    for number in range(5):
        tail.add(1, number, [bytes(40)])
    assert [tail.get(1, number) is not None for number in range(5)] == [False] * 3 + [True] * 2
    assert tail.bytes == 80


def test_an_object_larger_than_the_tail_is_not_kept():
    tail = Tail(100)
    tail.add(1, 1, [bytes(101)])
    assert tail.get(1, 1) is None
    assert tail.bytes == 0


def test_forgetting_one_lane_leaves_the_others():
    tail = Tail(1_000)
    for lane in (1, 2):
        for number in range(3):
            tail.add(lane, number, [bytes(10)])
    tail.forget(1, up_to=1)
    assert [tail.get(1, n) is not None for n in range(3)] == [False, False, True]
    tail.forget(1)
    assert tail.get(1, 2) is None
    assert tail.bytes == 30


@pytest.mark.parametrize("batch_bytes", [100, 5_000])
def test_a_batch_in_the_tail_does_not_keep_a_much_larger_request_in_memory(batch_bytes: int):
    request = bytearray(1_000_000)
    payload = Payload([memoryview(request)[10 : 10 + batch_bytes]])
    (held,) = payload.slice(0, batch_bytes)
    owner = held.obj if isinstance(held, memoryview) else held
    assert len(owner) <= 2 * batch_bytes
    request[10] = 1
    assert bytes(held) == bytes(batch_bytes)


def test_batches_that_fill_their_request_are_kept_without_a_copy():
    request = bytearray(20_000)
    view = memoryview(request)
    payload = Payload([view[100:10_000], view[10_000:]])
    assert [b.obj is request for b in payload.buffers if isinstance(b, memoryview)] == [True] * 2


def test_the_cache_drops_what_was_used_least_recently():
    cache = ReadCache(30)
    for name in "abc":
        cache.add(name, 0, bytes(10))
    assert cache.get("a", 0) is not None
    cache.add("d", 0, bytes(10))
    assert cache.get("b", 0) is None
    assert cache.get("a", 0) is not None
    assert cache.bytes == 30


def test_adding_the_same_stretch_twice_counts_it_once():
    cache = ReadCache(30)
    cache.add("a", 0, bytes(10))
    cache.add("a", 0, bytes(12))
    assert cache.bytes == 12
    assert (cache.hits, cache.misses) == (0, 0)
