"""`python -m benchmarks.keyed_state`: dedup with 2 M keys of state in 8 buckets, on one core.

Prints rows/s of the pure core and of whole tasks on a directory store, bytes of state for a key,
and the time to load all state from the store into a worker without a cache.
"""

import argparse
import tempfile
import time

import numpy as np

from holdfast.environment import SystemEnvironment
from holdfast.keyed_state.cache import StateCache
from holdfast.keyed_state.dedup import Bucket, DedupSettings, dedup
from holdfast.keyed_state.dedup_task import load_bucket, run_dedup_task
from holdfast.keyed_state.pinned import Pinned, bucket_of, next_watermark, nothing_pinned
from holdfast.keyed_state.task_site import TaskSite
from holdfast.store.directory import DirectoryStore

BUCKETS = 8
DUPLICATES = 0.3
HOUR_MS = 3_600_000
REPEATS = 3


class Sink:
    """Micro-batches through all buckets, one after the other, each committed."""

    def __init__(self, folder: str, rule: DedupSettings) -> None:
        self.rule = rule
        self.store = DirectoryStore(folder)
        self.environment = SystemEnvironment()
        self.cache: StateCache[Bucket] = StateCache()
        self.pinned: Pinned = nothing_pinned(rule.operator(), buckets=BUCKETS, hash_seed=1)
        self.number = 0

    def site(self, bucket: int) -> TaskSite:
        return TaskSite(
            store=self.store,
            sink_id="bench",
            bucket=bucket,
            number=self.number,
            attempt="a",
            environment=self.environment,
        )

    def run(self, high: np.ndarray, low: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Seconds, and seconds of CPU, in the tasks, without the split that a shuffle does."""
        buckets = bucket_of(low, BUCKETS)
        parts = [np.flatnonzero(buckets == bucket) for bucket in range(BUCKETS)]
        inputs = [((high[part], low[part]), times[part]) for part in parts]
        began = np.array([time.perf_counter(), time.process_time()])
        runs = {
            bucket: run_dedup_task(
                self.site(bucket), self.pinned, self.cache, *given, settings=self.rule
            ).runs
            for bucket, given in enumerate(inputs)
        }
        took = np.array([time.perf_counter(), time.process_time()]) - began
        watermark = next_watermark(
            self.pinned.event_time_watermark_ms,
            int(times.max()),
            now_ms=10 * HOUR_MS,
            allowance_ms=0,
        )
        self.pinned = self.pinned.with_runs(runs, event_time_watermark_ms=watermark)
        self.number += 1
        return took


class Keys:
    """Random keys, of which some were there before."""

    def __init__(self, keys: int) -> None:
        self.chance = np.random.default_rng(1)
        self.high = self.chance.integers(0, 2**64, keys, dtype=np.uint64)
        self.low = self.chance.integers(0, 2**64, keys, dtype=np.uint64)
        self.times = self.chance.integers(0, HOUR_MS, keys)

    def micro_batch(self, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        high = self.chance.integers(0, 2**64, rows, dtype=np.uint64)
        low = self.chance.integers(0, 2**64, rows, dtype=np.uint64)
        times = self.chance.integers(0, HOUR_MS, rows)
        again = np.flatnonzero(self.chance.random(rows) < DUPLICATES)
        which = self.chance.integers(0, self.high.size, again.size)
        high[again], low[again] = self.high[which], self.low[which]
        times[again] = self.times[which]
        return high, low, times


def core_rows_s(sink: Sink, keys: Keys, rows: int) -> float:
    """Rows/s of CPU time of the pure judgement alone, the best of a few rounds."""
    high, low, times = keys.micro_batch(rows)
    buckets = bucket_of(low, BUCKETS)
    parts = [np.flatnonzero(buckets == bucket) for bucket in range(BUCKETS)]
    inputs = [((high[part], low[part]), times[part]) for part in parts]
    loaded = [load_bucket(sink.site(b), sink.pinned, sink.cache) for b in range(BUCKETS)]
    watermark = sink.pinned.event_time_watermark_ms
    best = float("inf")
    for _ in range(REPEATS):
        began = time.thread_time()
        for bucket, given in zip(loaded, inputs, strict=True):
            dedup(bucket, *given, settings=sink.rule, watermark_ms=watermark)
        best = min(best, time.thread_time() - began)
    return rows / best


def measure(within_ms: int | None, key_count: int, rows: int) -> None:
    rule = DedupSettings(within_ms=within_ms)
    keys = Keys(key_count)
    with tempfile.TemporaryDirectory() as folder:
        sink = Sink(folder, rule)
        for chunk in np.array_split(np.arange(key_count), 20):
            sink.run(keys.high[chunk], keys.low[chunk], keys.times[chunk])
        infos = [info for runs in sink.pinned.runs for info in runs]
        state_rows = sum(info.rows for info in infos)
        state_bytes = sum(info.bytes for info in infos)
        core = core_rows_s(sink, keys, rows)
        cold = StateCache[Bucket]()
        began = time.perf_counter()
        for bucket in range(BUCKETS):
            load_bucket(sink.site(bucket), sink.pinned, cold)
        load_s = time.perf_counter() - began
        tasks_s, tasks_cpu_s = sum(sink.run(*keys.micro_batch(rows)) for _ in range(REPEATS))
    print(f"within {within_ms} ms: {state_rows} keys, {len(infos)} runs, {BUCKETS} buckets")
    print(f"  core   {core / 1e6:6.2f} M rows/s of CPU time")
    print(f"  tasks  {REPEATS * rows / tasks_s / 1e6:6.2f} M rows/s (merge, encode, write, fsync)")
    print(f"         {REPEATS * rows / tasks_cpu_s / 1e6:6.2f} M rows/s of CPU time")
    print(f"  state  {state_bytes / state_rows:6.2f} bytes/key in the store")
    print(f"         {cold.nbytes / state_rows:6.2f} bytes/key in memory")
    print(f"  load   {load_s * 1000:6.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of one micro-batch")
    arguments = parser.parse_args()
    for within_ms in (None, HOUR_MS):
        measure(within_ms, arguments.keys, arguments.rows)


if __name__ == "__main__":
    main()
