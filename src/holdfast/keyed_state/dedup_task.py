"""One state bucket of one micro-batch of dedup, from pinned state runs to a new list of runs.

Owns the order of steps: load exactly what is pinned, judge, merge if due, write at most one run,
report what to pin. The written run counts only if a ledger entry names it, so a task may die at any
point and run again. Must never change the pinned state itself.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.keyed_state.cache import StateCache
from holdfast.keyed_state.dedup import (
    Bucket,
    DedupResult,
    DedupSettings,
    HashRun,
    IndexedRun,
    decode_hash_run,
    dedup,
    encode_hash_run,
    index_run,
    merge_runs,
)
from holdfast.keyed_state.pinned import Hashes, Pinned, RunInfo, Times
from holdfast.keyed_state.run_store import read_runs
from holdfast.keyed_state.task_site import TaskSite
from holdfast.keyed_state.tiers import MERGE_ROWS_MAX, plan_hash_merge
from holdfast.loop_thread import process_loop


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupDone:
    """The report of the task: the fate of the rows, and the bucket's runs if this is committed."""

    judged: DedupResult
    runs: tuple[RunInfo, ...]
    event_time_max_ms: int | None
    """The latest event time of the task's rows. The driver passes it to next_watermark."""


def load_bucket(site: TaskSite, pinned: Pinned, cache: StateCache[Bucket]) -> Bucket:
    """Load exactly the pinned runs of the bucket, from the cache those that it has by name."""
    version = pinned.runs[site.bucket]
    cached = cache.get(site.owner)
    if cached is not None and cached.version == version:
        return cached.state
    known: dict[RunInfo, IndexedRun] = {}
    if cached is not None:
        known = dict(zip(cached.version, cached.state.runs, strict=True))

    def decode(data: bytes, info: RunInfo) -> IndexedRun:
        return index_run(decode_hash_run(data, info=info, hash_seed=pinned.hash_seed))

    missing = [info for info in version if info not in known]
    loaded = process_loop().run(
        read_runs(site.store, missing, decode, environment=site.environment)
    )
    known.update(zip(missing, loaded, strict=True))
    bucket = Bucket(runs=tuple(known[info] for info in version))
    cache.put(site.owner, version, bucket)
    return bucket


def save_run(site: TaskSite, run: HashRun, *, hash_seed: int) -> RunInfo:
    """Write the one new run of this attempt."""
    info, body = encode_hash_run(run, name=site.run_name, hash_seed=hash_seed)
    site.write(info, body)
    return info


def run_dedup_task(
    site: TaskSite,
    pinned: Pinned,
    cache: StateCache[Bucket],
    hashes: tuple[Hashes, Hashes],
    event_times: Times,
    order: npt.NDArray[np.int64] | None = None,
    *,
    settings: DedupSettings,
    merge_rows_max: int = MERGE_ROWS_MAX,
) -> DedupDone:
    """Judge the rows, and write what is to be remembered."""
    bucket = load_bucket(site, pinned, cache)
    before = pinned.runs[site.bucket]
    watermark_ms = pinned.event_time_watermark_ms
    judged = dedup(bucket, hashes, event_times, order, settings=settings, watermark_ms=watermark_ms)
    horizon_ms = settings.horizon_ms(watermark_ms)
    plan = plan_hash_merge(
        before,
        new_rows=judged.remembered.rows,
        horizon_ms=horizon_ms,
        merge_rows_max=merge_rows_max,
    )
    loaded = dict(zip(before, bucket.runs, strict=True))
    new = judged.remembered
    if plan.merge:
        new = merge_runs([new, *(loaded[info].run for info in plan.merge)], horizon_ms=horizon_ms)
    after, indexed = plan.stay, tuple(loaded[info] for info in plan.stay)
    if new.rows:
        after += (save_run(site, new, hash_seed=pinned.hash_seed),)
        indexed += (index_run(new),)
    if after != before:
        cache.put(site.owner, after, Bucket(runs=indexed))
    return DedupDone(
        judged=judged,
        runs=after,
        event_time_max_ms=int(event_times.max()) if event_times.size else None,
    )
