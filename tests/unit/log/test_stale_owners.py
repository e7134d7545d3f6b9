"""Owners that do not know that they were replaced go on with all their work: no record suffers."""

import asyncio
import random

import pytest
from simulation.faults.faulty_store import Fault, FaultPlan, FaultyStore
from tests.support.lanes import P0, P1, World, append, simulate

from holdfast.errors import Fenced, HoldfastError
from holdfast.identifiers import LaneNumber, PartitionId
from holdfast.log.data_lane import DataLane
from holdfast.log.facts import LogStartMoved
from holdfast.log.rewriter import (
    RewriteSettings,
    collect,
    purge_removed,
    rewrite,
    sweep_segments,
)
from holdfast.records.record import decode

SMALL = RewriteSettings(delete_delay_s=0, segment_bytes_max=700)


class Truth:
    """What was acknowledged: the value of each offset, and the highest log start."""

    def __init__(self) -> None:
        self.values: dict[tuple[PartitionId, int], bytes] = {}
        self.starts = {P0: 0, P1: 0}


async def write(lane: DataLane, truth: Truth, chance: random.Random) -> None:
    """Append until the lane is lost; every acknowledged record is the truth from then on."""
    while lane.is_open:
        partition = chance.choice((P0, P1))
        value = b"%d by %d" % (chance.randrange(1 << 30), lane.leader_epoch)
        offset = append(lane, partition, [value])
        barrier = lane.barrier()
        assert barrier is not None
        await asyncio.wait({barrier})
        if barrier.exception() is None:
            truth.values[partition, offset] = value
        await asyncio.sleep(chance.random())


async def maintain(lane: DataLane, truth: Truth, chance: random.Random) -> None:
    """All background work, in any order, for as long as the owner believes in its claim."""
    while lane.is_open:
        await asyncio.sleep(chance.random() * 2)
        try:
            match chance.randrange(5):
                case 0:
                    await rewrite(lane, SMALL)
                case 1:
                    await sweep_segments(lane)
                case 2:
                    claim = lane.cursor.claim
                    await lane.sweep(lane.state.claims, up_to=LaneNumber(claim - 1))
                    await collect(lane)
                case 3:
                    await purge_removed(lane)
                    await lane.snapshot_now()
                case _:
                    await move_start(lane, truth)
        except HoldfastError:
            # Only an owner that was replaced may miss an object, or fail at all.
            lane.doubt()
            with pytest.raises(Fenced):
                while True:
                    await asyncio.gather(lane.validate(), return_exceptions=True)
                    if lane.failure is not None:
                        raise lane.failure from None
                    assert not lane.is_valid(), "the newest owner failed"
                    await asyncio.sleep(1)


async def move_start(lane: DataLane, truth: Truth) -> None:
    log = lane.log_of(P0)
    offset = log.start_decided + 1
    if offset <= log.high_watermark and lane.is_open:
        lane.add(LogStartMoved(P0, offset))
        await lane.flush()
        truth.starts[P0] = max(truth.starts[P0], offset)


async def check(lane: DataLane, truth: Truth) -> int:
    """Read everything that was acknowledged and is not below the log start."""
    known = dict(truth.values)
    for partition, start in list(truth.starts.items()):
        assert lane.log_of(partition).log_start_offset >= start
    for (partition, offset), value in known.items():
        log = lane.log_of(partition)
        assert offset < log.high_watermark
        if offset < log.start_decided:
            continue
        cut = await lane.reader.read(log, offset, 1)
        if offset >= log.start_decided:
            found = {r.offset: r.value for b in cut.buffers for r in decode(bytes(b))}
            assert found[offset] == value
    return len(known)


@pytest.mark.parametrize("faults", [0.0, 0.01])
@pytest.mark.parametrize("seed", range(12))
def test_three_owners_in_turn_each_going_on_after_it_was_replaced(seed: int, faults: float):
    async def test(world: World) -> int:
        truth = Truth()
        tasks: list[asyncio.Task[None]] = []
        plan = FaultPlan.even(faults, late_seconds=(0.1, 8.0), timeout_seconds=1.0)
        stores: list[FaultyStore] = []
        for owner in range(3):
            chance = random.Random(1_000 * seed + owner)
            store = FaultyStore(world.memory, plan=plan, chance=chance)
            # Three mangled answers in a row count as a corrupt object: that is another test.
            store.enable(Fault.BIT_FLIP, enabled=False)
            store.enable(Fault.SHORT_READ, enabled=False)
            stores.append(store)
            lane = await world.own(
                store=store, broker=owner, snapshot_every=5, tail_bytes=300, cache_bytes=2_000
            )
            loop = asyncio.get_running_loop()
            tasks.append(loop.create_task(write(lane, truth, chance)))
            tasks.append(loop.create_task(maintain(lane, truth, chance)))
            await asyncio.sleep(chance.random() * 30)
        for store in stores:
            store.heal()
        reader = await world.own(broker=9, tail_bytes=0, cache_bytes=0)
        await asyncio.gather(*tasks)
        for store in stores:
            await store.settle()
        fresh = await world.own(broker=10, tail_bytes=0, cache_bytes=0)
        await check(reader, truth)
        return await check(fresh, truth)

    assert simulate(test, seed) > 0
