"""Seed 002: what a crashed attempt left behind is never read, and a redelivered id comes out once.

There a stale checkpoint made leftover, uncommitted state look committed, and a dedup dropped the
redelivered record: zero-times. Here state is what the ledger names.
"""

import asyncio

import numpy as np
from tests.unit.keyed_state.sinks import a_store, site

from holdfast.keyed_state.cache import StateCache
from holdfast.keyed_state.dedup import Bucket, DedupSettings
from holdfast.keyed_state.dedup_task import DedupDone, load_bucket, run_dedup_task
from holdfast.keyed_state.pinned import Pinned, nothing_pinned, unpinned
from holdfast.store.interface import Store

RULE = DedupSettings()


def run(
    store: Store,
    pinned: Pinned,
    cache: StateCache[Bucket],
    ids: list[int],
    *,
    attempt: str,
    number: int = 0,
) -> DedupDone:
    keys = np.array(ids, np.uint64)
    return run_dedup_task(
        site(store, attempt=attempt, number=number),
        pinned,
        cache,
        (keys, keys),
        np.zeros(keys.size, np.int64),
        settings=RULE,
    )


def names(store: Store) -> list[str]:
    return [entry.key for entry in asyncio.run(store.list("state/"))]


def commit(pinned: Pinned, done: DedupDone) -> Pinned:
    return pinned.with_runs({0: done.runs}, event_time_watermark_ms=None)


def test_a_redelivered_id_comes_out_exactly_once_after_a_crash_that_left_runs_behind():
    store, cache = a_store(), StateCache[Bucket]()
    pinned = nothing_pinned(RULE.operator(), buckets=1, hash_seed=1)
    pinned = commit(pinned, run(store, pinned, cache, [1, 2], attempt="a0"))
    published = [1, 2]

    crashed = run(store, pinned, cache, [3, 4], attempt="a1", number=1)
    left_behind = set(names(store)) - {info.name for info in pinned.runs[0]}
    assert crashed.judged.kept == 2
    assert left_behind, "the crashed attempt must have written its run"
    assert cache.get(site(store, attempt="-").owner).version == crashed.runs  # pyright: ignore

    for worker in (cache, StateCache[Bucket]()):
        redelivered = run(store, pinned, worker, [3, 4], attempt=f"a{id(worker)}", number=1)
        assert redelivered.judged.keep.tolist() == [True, True]
    pinned = commit(pinned, redelivered)
    published += [3, 4]

    again = run(store, pinned, cache, [3, 4, 1, 5], attempt="a9", number=2)
    published += [key for key, keep in zip([3, 4, 1, 5], again.judged.keep, strict=True) if keep]
    assert published == [1, 2, 3, 4, 5]


def test_the_cache_of_a_crashed_attempt_is_not_the_state():
    store, cache = a_store(), StateCache[Bucket]()
    pinned = nothing_pinned(RULE.operator(), buckets=1, hash_seed=1)
    run(store, pinned, cache, [1, 2, 3], attempt="a1")
    assert load_bucket(site(store, attempt="a2"), pinned, cache).rows == 0


def test_runs_of_losing_attempts_are_named_for_removal_only_once_they_cannot_be_committed():
    store, cache = a_store(), StateCache[Bucket]()
    pinned = nothing_pinned(RULE.operator(), buckets=1, hash_seed=1)
    lost = run(store, pinned, cache, [1], attempt="a1").runs[0].name
    won = run(store, pinned, cache, [1], attempt="a2")
    pinned = commit(pinned, won)
    run(store, pinned, cache, [2], attempt="a3", number=1)
    assert unpinned([*names(store), "state/readme"], pinned, before_number=1) == [lost]
