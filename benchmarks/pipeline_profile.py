"""`python -m benchmarks.pipeline_profile STORE TOPIC`: where the time of tasks goes.

Does what the tasks of a dedup do, step by step, in one thread and without Spark: what is left of a
real micro-batch's time is Spark's (two jobs, JVM copies, shuffle) and the driver's.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.columnar.hashing import hash_columns
from holdfast.keyed_state.cache import StateCache
from holdfast.keyed_state.dedup import DedupSettings
from holdfast.keyed_state.dedup_task import run_dedup_task
from holdfast.keyed_state.pinned import bucket_of, nothing_pinned
from holdfast.keyed_state.task_site import TaskSite
from holdfast.landing.data_files import checksum_of
from holdfast.spark.ledger import exchange
from holdfast.spark.ledger.files import encode
from holdfast.spark.ledger.job import BUCKETS_DEFAULT, Output
from holdfast.spark.runtime.worker import worker
from holdfast.spark.source.inputs import PlanOptions, read_range
from holdfast.spark.source.store_input import StoreInput


class Clock:
    """Seconds by step: wall clock, and CPU of all threads of this process."""

    def __init__(self) -> None:
        self.steps: dict[str, tuple[float, float]] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        taken = time.perf_counter() - wall, time.process_time() - cpu
        before = self.steps.get(name, (0.0, 0.0))
        self.steps[name] = (before[0] + taken[0], before[1] + taken[1])

    def show(self, rows: int) -> None:
        for name, (wall, cpu) in self.steps.items():
            print(f"  {name:44} {wall / rows * 1e9:8.0f} ns/row, CPU {cpu / rows * 1e9:8.0f}")


def read(url: str, topic: str, rows: int) -> list[Any]:
    """Record batches of a topic, about so many rows of them."""
    source = StoreInput(url)
    partitions = source.topics()[topic].all_partitions()
    earliest = source.earliest(partitions)
    most = rows // len(partitions)
    end = {p: min(n, earliest[p] + most) for p, n in source.latest(partitions).items()}
    ranges = source.plan(earliest, end, PlanOptions(min_partitions=2))
    return [batch for wanted in ranges for batch in read_range(wanted)]


def stage_one(clock: Clock, batches: list[Any], buckets: int) -> list[tuple[int, bytes]]:
    cutter = exchange.Cutter(by=("key",), event_time=None, buckets=buckets, tasks=2, hash_seed=1)
    pieces: list[tuple[int, bytes]] = []
    for batch in batches:
        with clock.step("1 of the cut: hash"):
            low, _ = hash_columns([batch.column("key")], 1)
        found = bucket_of(low, buckets)
        with clock.step("1 of the cut: argsort"):
            np.argsort(found, kind="stable")
    with clock.step("1 cut: all of it"):
        cut = list(cutter.pieces(batches, task=0))
    for batch in cut:
        names = batch.schema.names
        pieces += zip(
            batch.column(names.index("bucket")).to_pylist(),
            batch.column(names.index("piece")).to_pylist(),
            strict=True,
        )
    return pieces


def stage_two(clock: Clock, pieces: list[tuple[int, bytes]], buckets: int) -> tuple[int, int]:
    settings = DedupSettings()
    pinned = nothing_pinned(settings.operator(), buckets=buckets, hash_seed=1)
    kept: list[Any] = []
    cache: Any = StateCache()
    here = worker()
    with tempfile.TemporaryDirectory() as folder:
        store = here.writable(folder)
        for bucket in range(buckets):
            mine = [piece for found, piece in pieces if found == bucket]
            with clock.step("2 open pieces"):
                table = pa.concat_tables([pa.ipc.open_stream(p).read_all() for p in mine])
            site = TaskSite(
                store=store,
                sink_id="profile",
                bucket=bucket,
                number=0,
                attempt="a",
                environment=here.environment,
            )
            with clock.step("2 judge and write the run"):
                hashes, times = exchange.halves(table), exchange.times(table)
                done = run_dedup_task(site, pinned, cache, hashes, times, settings=settings)
            with clock.step("2 filter"):
                kept.append(exchange.without_keys(table).filter(pa.array(done.judged.keep)))
        whole = pa.concat_tables(kept)
        with clock.step("2 encode Parquet"):
            body = encode(whole, Output(store=folder, sink_id="profile"))
        with clock.step("2 checksum"):
            checksum_of(body)
        with clock.step("2 put, with fsync"):
            here.run(store.create("data/profile/a", (body,)))
    return whole.num_rows, len(body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("topic")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--buckets", type=int, default=BUCKETS_DEFAULT)
    arguments = parser.parse_args()
    for name in ("cold", "warm"):
        clock = Clock()
        with clock.step("1 read and decode"):
            batches = read(arguments.store, arguments.topic, arguments.rows)
        rows = sum(batch.num_rows for batch in batches)
        pieces = stage_one(clock, batches, arguments.buckets)
        kept, written = stage_two(clock, pieces, arguments.buckets)
        exchanged = sum(len(piece) for _, piece in pieces)
        print(f"{name}: {rows} rows, {kept} kept, {len(pieces)} pieces of {exchanged} bytes,")
        print(f"  {written} bytes of Parquet")
        clock.show(rows)
        if not rows:
            sys.exit("no rows")


if __name__ == "__main__":
    main()
