"""Loading what is pinned: from the store or from memory, never anything else."""

import asyncio
import multiprocessing
from pathlib import Path

import numpy as np
import pytest
from simulation.faults.faulty_store import Fault, FaultPlan, FaultyStore
from tests.unit.keyed_state.sinks import ENVIRONMENT, a_store, site

from holdfast.errors import CorruptObject, InvariantViolation, ObjectNotFound
from holdfast.keyed_state.cache import CacheOwner, StateCache
from holdfast.keyed_state.dedup import Bucket, DedupSettings, HashRun, sorted_run
from holdfast.keyed_state.dedup_task import load_bucket, run_dedup_task, save_run
from holdfast.keyed_state.pinned import Pinned, RunInfo, nothing_pinned
from holdfast.loop_thread import process_loop
from holdfast.store.counting import CountingStore
from holdfast.store.directory import DirectoryStore
from holdfast.store.memory import MemoryStore

RULE = DedupSettings()
EMPTY = nothing_pinned(RULE.operator(), buckets=2, hash_seed=1)


def run_of(*keys: int) -> HashRun:
    numbers = np.array(keys, np.uint64)
    return sorted_run(numbers, numbers, numbers.astype(np.int64))


def pin(*infos: RunInfo, bucket: int = 0) -> Pinned:
    return EMPTY.with_runs({bucket: infos}, event_time_watermark_ms=None)


def test_a_worker_reads_each_pinned_run_once_and_only_new_ones_later():
    store = CountingStore(a_store())
    cache = StateCache[Bucket]()
    first = save_run(site(store, attempt="a1"), run_of(1, 2, 3), hash_seed=1)
    second = save_run(site(store, attempt="a2", number=1), run_of(4), hash_seed=1)
    where = site(store, attempt="-")
    assert load_bucket(where, pin(first), cache).rows == 3
    assert load_bucket(where, pin(first), cache).rows == 3
    assert store.requests["read"] == 1
    assert load_bucket(where, pin(first, second), cache).rows == 4
    assert store.requests["read"] == 2
    assert load_bucket(where, pin(second), cache).rows == 1
    assert store.requests["read"] == 2
    assert store.requests["list"] == 0


def test_the_task_that_wrote_a_run_does_not_read_it_back():
    store = CountingStore(a_store())
    cache, pinned = StateCache[Bucket](), EMPTY
    for number in range(20):
        keys = np.array([number, number + 1], np.uint64)
        done = run_dedup_task(
            site(store, attempt=f"a{number}", number=number),
            pinned,
            cache,
            (keys, keys),
            np.zeros(2, np.int64),
            settings=RULE,
        )
        assert done.judged.kept == (2 if number == 0 else 1)
        pinned = pinned.with_runs({0: done.runs}, event_time_watermark_ms=None)
    assert store.requests["read"] == 0
    assert len(pinned.runs[0]) <= 5


def test_a_run_with_the_same_name_and_another_content_is_not_taken_from_memory():
    store, other = a_store(), a_store()
    cache = StateCache[Bucket]()
    ours = save_run(site(store, attempt="a1"), run_of(1), hash_seed=1)
    theirs = save_run(site(other, attempt="a1"), run_of(2), hash_seed=1)
    assert ours.name == theirs.name
    load_bucket(site(store, attempt="-"), pin(ours), cache)
    loaded = load_bucket(site(other, attempt="-"), pin(theirs), cache)
    assert loaded.runs[0].run.low.tolist() == [2]


def test_a_pinned_run_that_is_missing_is_named():
    store = a_store()
    info = save_run(site(store, attempt="a1"), run_of(1), hash_seed=1)
    asyncio.run(store.delete([info.name]))
    with pytest.raises(ObjectNotFound, match=info.name):
        load_bucket(site(store, attempt="-"), pin(info), StateCache[Bucket]())


def test_a_run_of_another_bucket_at_the_pinned_name_is_named_as_corrupt():
    store = a_store()
    info = save_run(site(store, attempt="a1"), run_of(1), hash_seed=1)
    foreign = save_run(site(store, attempt="a1", bucket=1), run_of(1), hash_seed=1)
    data = asyncio.run(store.read(foreign.name))
    asyncio.run(store.delete([info.name]))
    asyncio.run(store.create(info.name, [data]))
    with pytest.raises(CorruptObject, match=foreign.name):
        load_bucket(site(store, attempt="-"), pin(info), StateCache[Bucket]())


def test_the_same_attempt_may_write_the_same_run_again_and_never_another():
    store = a_store()
    info = save_run(site(store, attempt="a1"), run_of(1), hash_seed=1)
    assert save_run(site(store, attempt="a1"), run_of(1), hash_seed=1) == info
    with pytest.raises(InvariantViolation, match="two attempts used one name"):
        save_run(site(store, attempt="a1"), run_of(2), hash_seed=1)


def test_lost_answers_short_reads_and_flipped_bits_change_nothing():
    inner = MemoryStore(environment=ENVIRONMENT)
    chances = dict.fromkeys(
        (Fault.LOST_AFTER, Fault.CONFLICT, Fault.SHORT_READ, Fault.BIT_FLIP), 0.15
    )
    store = FaultyStore(inner, plan=FaultPlan(chances=chances), chance=ENVIRONMENT.random())
    for number in range(20):
        where = site(store, attempt=f"a{number}", number=number)
        info = save_run(where, run_of(number, 100 + number), hash_seed=1)
        loaded = load_bucket(where, pin(info), StateCache[Bucket]())
        assert loaded.runs[0].run.low.tolist() == [number, 100 + number]


class Weight:
    """A state that says what it weighs."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


def test_the_cache_stays_within_its_bytes_and_the_least_recently_used_leave_first():
    cache = StateCache[Weight](bytes_max=100)
    a, b, c = (CacheOwner("memory://", "s", bucket) for bucket in range(3))
    cache.put(a, (), Weight(40))
    cache.put(b, (), Weight(40))
    assert cache.get(a) is not None
    cache.put(c, (), Weight(40))
    assert cache.get(b) is None
    assert cache.get(a) is not None
    assert cache.nbytes == 80
    cache.put(a, (), Weight(101))
    assert cache.get(a) is None
    assert (cache.nbytes, len(cache)) == (40, 1)


def _save_in_child(folder: str, attempt: str) -> None:
    save_run(site(DirectoryStore(folder), attempt=attempt), run_of(7), hash_seed=1)


def test_a_forked_worker_has_a_loop_of_its_own(tmp_path: Path):
    assert process_loop().run(asyncio.sleep(0, "here")) == "here"
    child = multiprocessing.get_context("fork").Process(
        target=_save_in_child, args=(str(tmp_path), "a1")
    )
    child.start()
    child.join(30)
    assert child.exitcode == 0
    again = save_run(site(DirectoryStore(str(tmp_path)), attempt="a1"), run_of(7), hash_seed=1)
    loaded = load_bucket(
        site(DirectoryStore(str(tmp_path)), attempt="-"), pin(again), StateCache[Bucket]()
    )
    assert loaded.rows == 1
