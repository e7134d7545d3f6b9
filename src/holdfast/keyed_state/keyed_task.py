"""One state bucket of one micro-batch of aggregates or timers, from pinned to new state runs.

Owns the order of steps, as dedup_task.py does: load exactly what is pinned, compute, merge if due,
write at most one run, report what to pin. Must never change the pinned state itself.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.keyed_state.aggregates import Aggregated, AggregateSettings, aggregate
from holdfast.keyed_state.cache import StateCache
from holdfast.keyed_state.keyed_rows import (
    KeyedBucket,
    KeyedRun,
    Table,
    decode_keyed_run,
    encode_keyed_run,
    overlay,
)
from holdfast.keyed_state.pinned import TIME_MIN, Hashes, Pinned, RunInfo, Times
from holdfast.keyed_state.run_store import read_runs
from holdfast.keyed_state.task_site import TaskSite
from holdfast.keyed_state.tiers import plan_keyed_merge
from holdfast.keyed_state.timers import TimerSettings, TimersFired, fire_timers
from holdfast.loop_thread import process_loop


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateDone:
    """The aggregated rows, and the bucket's runs if this attempt is committed."""

    aggregated: Aggregated
    runs: tuple[RunInfo, ...]
    event_time_max_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimersDone:
    """The timers that fired, and the bucket's runs if this attempt is committed."""

    fired: TimersFired
    runs: tuple[RunInfo, ...]


def load_keyed_bucket(
    site: TaskSite, pinned: Pinned, cache: StateCache[KeyedBucket]
) -> KeyedBucket:
    """Load exactly the pinned runs of the bucket, from the cache those that it has by name."""
    version = pinned.runs[site.bucket]
    cached = cache.get(site.owner)
    if cached is not None and cached.version == version:
        return cached.state
    known: dict[RunInfo, KeyedRun] = {}
    if cached is not None:
        known = dict(zip(cached.version, cached.state.runs, strict=True))

    def decode(data: bytes, info: RunInfo) -> KeyedRun:
        return decode_keyed_run(data, info=info, hash_seed=pinned.hash_seed)

    missing = [info for info in version if info not in known]
    loaded = process_loop().run(
        read_runs(site.store, missing, decode, environment=site.environment)
    )
    known.update(zip(missing, loaded, strict=True))
    bucket = KeyedBucket.load([known[info] for info in version])
    cache.put(site.owner, version, bucket)
    return bucket


def run_aggregate_task(
    site: TaskSite,
    pinned: Pinned,
    cache: StateCache[KeyedBucket],
    hashes: tuple[Hashes, Hashes],
    event_times: Times,
    columns: Table,
    order: npt.NDArray[np.int64] | None = None,
    *,
    settings: AggregateSettings,
) -> AggregateDone:
    """Aggregate the rows, and write what is to be remembered."""
    bucket = load_keyed_bucket(site, pinned, cache)
    watermark_ms = pinned.event_time_watermark_ms
    done = aggregate(
        bucket, hashes, event_times, columns, order, settings=settings, watermark_ms=watermark_ms
    )
    runs = _publish(
        site,
        pinned,
        cache,
        bucket,
        done.updated,
        live_keys=done.live_keys,
        horizon_ms=settings.horizon_ms(watermark_ms),
    )
    latest = int(event_times.max()) if event_times.size else None
    return AggregateDone(aggregated=done, runs=runs, event_time_max_ms=latest)


def run_timer_task(
    site: TaskSite,
    pinned: Pinned,
    cache: StateCache[KeyedBucket],
    hashes: tuple[Hashes, Hashes],
    columns: Table,
    order: npt.NDArray[np.int64] | None = None,
    *,
    settings: TimerSettings,
    now_ms: int,
) -> TimersDone:
    """Arm and fire timers, and write what changed."""
    bucket = load_keyed_bucket(site, pinned, cache)
    fired = fire_timers(bucket, hashes, columns, order, settings=settings, now_ms=now_ms)
    runs = _publish(
        site,
        pinned,
        cache,
        bucket,
        fired.updated,
        live_keys=fired.live_keys,
        horizon_ms=TIME_MIN,
    )
    return TimersDone(fired=fired, runs=runs)


def save_keyed_run(site: TaskSite, run: KeyedRun, *, hash_seed: int) -> RunInfo:
    """Write the one new run of this attempt."""
    info, body = encode_keyed_run(run, name=site.run_name, hash_seed=hash_seed)
    site.write(info, body)
    return info


def _publish(
    site: TaskSite,
    pinned: Pinned,
    cache: StateCache[KeyedBucket],
    bucket: KeyedBucket,
    updated: KeyedRun | None,
    *,
    live_keys: int,
    horizon_ms: int,
) -> tuple[RunInfo, ...]:
    """Merge if due and write at most one run. Return the bucket's new list of runs."""
    before = pinned.runs[site.bucket]
    plan = plan_keyed_merge(
        before,
        new_rows=0 if updated is None else updated.rows,
        live_keys=live_keys,
        horizon_ms=horizon_ms,
    )
    loaded = dict(zip(before, bucket.runs, strict=True))
    parts = [loaded[info] for info in plan.merge] + ([] if updated is None else [updated])
    after, runs = plan.stay, [loaded[info] for info in plan.stay]
    if parts:
        new = overlay(parts, horizon_ms=horizon_ms, all_of_them=not plan.stay)
        if new.rows:
            after += (save_keyed_run(site, new, hash_seed=pinned.hash_seed),)
            runs.append(new)
    if after != before:
        newest = bucket.newest
        if updated is not None:
            over = [updated] if newest is None else [newest, updated]
            newest = overlay(over, horizon_ms=horizon_ms, all_of_them=True)
        cache.put(site.owner, after, KeyedBucket(runs=tuple(runs), newest=newest))
    return after


def no_rows(schema: Any) -> tuple[tuple[Hashes, Hashes], Table]:
    """Return the hashes and columns of a bucket that has no records in this micro-batch."""
    return (np.empty(0, np.uint64), np.empty(0, np.uint64)), schema.empty_table()
