"""Several writers race on one partition over a store that fails in every way: the chain tiles.

The writers cut the log at boundaries of their own, are killed at any await and start again, and
some wake up long after others went on. Whatever happens, the landed records are the log.
"""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulation.faults.faulty_store import FaultPlan, FaultyStore
from simulation.virtual_loop import VirtualLoop

from holdfast.columnar.schema import SCHEMA
from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.landing.chain import Chain, Landed
from holdfast.landing.formats.interface import Format
from holdfast.landing.formats.jsonl import JsonLines
from holdfast.landing.formats.parquet import Parquet
from holdfast.landing.landed import records
from holdfast.landing.packing import ObjectBounds
from holdfast.store.memory import MemoryStore

TOPIC, PARTITION = "orders", 7
FORMATS: dict[str, Format] = {
    "envelope": JsonLines("envelope", level=1),
    "envelope, plain": JsonLines("envelope", compression="none"),
    "envelope, gzip": JsonLines("envelope", compression="gzip"),
    "parquet": Parquet(),
}


def log_of(chance: random.Random, size: int) -> list[int]:
    """The offsets that have a record: some are markers, or were compacted away."""
    return [offset for offset in range(size) if chance.random() < 0.8]


def batches_of(offsets: list[int], chance: random.Random) -> Iterator[pa.RecordBatch]:
    position = 0
    while position < len(offsets):
        step = chance.randint(1, 9)
        rows = [
            {
                "key": b"\xff%d" % offset,
                "value": b"line\nof %d" % offset,
                "topic": TOPIC,
                "partition": PARTITION,
                "offset": offset,
                "timestamp": 1_700_000_000_000_000 + offset * 1000,
                "timestampType": 0,
            }
            for offset in offsets[position : position + step]
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
        position += step


async def write(store: FaultyStore, log: list[int], size: int, format: Format, seed: int) -> None:
    """One writer: it reads ranges of the log and lands them; it starts over where it is refused."""
    chance = random.Random(seed)
    environment = SeededEnvironment(seed=seed, clock=VirtualClock())
    chain = Chain(store, TOPIC, PARTITION, format=format, environment=environment)
    position = 0
    while position < size:
        end = min(size, position + chance.randint(1, 40))
        part = [offset for offset in log if position <= offset < end]
        outcome = await chain.land(
            batches_of(part, chance),
            start_offset=position,
            end_offset=end,
            bounds=ObjectBounds(rows_max=chance.randint(1, 12)),
        )
        assert isinstance(outcome, Landed), outcome
        assert outcome.next_offset >= end
        position = outcome.next_offset
        if chance.random() < 0.2 and position < size:
            # A restart from an older committed offset, which may lie inside an object.
            position = chance.randint(0, position)
        if chance.random() < 0.2:
            await asyncio.sleep(chance.random() * 60)


async def race(
    loop: VirtualLoop, inside: MemoryStore, log: list[int], size: int, format: Format, seed: int
) -> FaultyStore:
    chance = random.Random(seed)
    store = FaultyStore(
        inside,
        plan=FaultPlan.even(0.03, latency_seconds=(0.0, 0.05)),
        chance=random.Random(seed + 1),
    )
    tasks: dict[str, asyncio.Task[Any]] = {}
    for writer in range(3):
        name = f"writer {writer}"
        tasks[name] = loop.spawn(
            name, write(store, log, size, format, seed * 100 + writer), name=name
        )
    for name in ("writer 0", "writer 1"):
        await asyncio.sleep(chance.random() * 20)
        if chance.random() < 0.5:
            loop.kill(name)
            tasks.pop(name)
        else:
            loop.pause(name, chance.random() * 100)
    await asyncio.gather(*tasks.values())
    await store.settle()
    return store


@pytest.mark.parametrize("format_name", FORMATS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**31), size=st.integers(1, 120))
def test_racing_writers_land_the_log_exactly(format_name: str, seed: int, size: int):
    format = FORMATS[format_name]
    log = log_of(random.Random(seed), size)
    environment = SeededEnvironment(seed=seed, clock=VirtualClock())
    inside = MemoryStore(environment=environment)
    loop = VirtualLoop(seed=seed)
    try:
        loop.run_until_complete(race(loop, inside, log, size, format, seed))
        landed = loop.run_until_complete(read_all(inside, environment))
    finally:
        loop.close()
    assert loop.problems == []
    expected = [row for batch in batches_of(log, random.Random(0)) for row in batch.to_pylist()]
    assert landed == expected


async def read_all(store: MemoryStore, environment: SeededEnvironment) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    async for batch in records(store, topic=TOPIC, environment=environment):
        rows.extend(batch.to_pylist())
    return rows
