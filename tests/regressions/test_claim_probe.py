"""The probe that proves a claim: what it must not believe, and that it always gives way."""

import asyncio
from typing import Any

import pytest
from simulation.run import Hung, hang_detector
from simulation.virtual_loop import VirtualLoop

from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.errors import Fenced, HoldfastError
from holdfast.identifiers import BrokerId, LaneId, LaneNumber
from holdfast.lane.claim import ClaimedLane, claim_lane
from holdfast.lane.entry import Claim
from holdfast.lane.floor import raise_floor
from holdfast.lane.keys import entry_key
from holdfast.lane.lane import Lane
from holdfast.lane.pending import GroupSettings
from holdfast.log.facts import DataFact, ProducersExpired
from holdfast.log.state import LogState, LogStateKind
from holdfast.store.interface import Buffers, CreateAnswer
from holdfast.store.memory import MemoryStore

LANE = LaneId(1)
LONG_SECONDS = 100.0


class GatedStore(MemoryStore):
    """Holds back the answers of reads, or of the create of one key."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.held_key = ""
        self.answers = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        answer = await super().create(key, body)
        if key == self.held_key:
            await self.answers.wait()
        return answer

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        try:
            return await super().read(key, start=start, length=length)
        finally:
            await self.reads.wait()


class World:
    """A store, a clock, and lanes claimed on them."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.environment = SeededEnvironment(seed=1, clock=self.clock)
        self.store = GatedStore(environment=self.environment)

    async def claim(self) -> ClaimedLane[LogState]:
        who = Claim(broker_id=BrokerId(1), address="", claimed_ms=0)
        return await claim_lane(self.store, self.environment, LANE, LogStateKind(), who)

    async def own(self) -> Lane[LogState, DataFact]:
        lost: list[HoldfastError] = []
        return Lane(
            store=self.store,
            environment=self.environment,
            claimed=await self.claim(),
            kind=LogStateKind(),
            settings=GroupSettings(),
            on_lost=lost.append,
        )

    async def wait_for(self, number: int) -> None:
        for _ in range(1000):
            if await self.store.size(entry_key(LANE, number)) is not None:
                return
        raise AssertionError(f"number {number} never came")


def run(main: Any, seed: int) -> None:
    loop = VirtualLoop(seed=seed)
    try:
        with hang_detector(2.0):
            loop.run_until_complete(main())
    except Hung:
        pytest.fail("a step did not give way to the loop")
    finally:
        loop.close()


def test_a_probe_is_not_fooled_when_its_own_landed_object_was_rewritten_and_deleted():
    async def main() -> None:
        world = World()
        old = await world.own()
        world.store.held_key = entry_key(LANE, 1)
        old.add(ProducersExpired(0))
        await world.wait_for(1)
        await world.claim()
        await raise_floor(world.store, world.environment, LANE, LaneNumber(2))
        await world.store.delete([world.store.held_key])
        world.clock.seconds += LONG_SECONDS
        with pytest.raises(Fenced):
            await old.validate()

    run(main, 1)


def test_a_probe_that_took_longer_than_the_claim_is_valid_does_not_stop_the_loop():
    async def main() -> None:
        world = World()
        lane = await world.own()
        world.clock.seconds += LONG_SECONDS
        world.store.reads.clear()
        waiting = [asyncio.ensure_future(lane.validate())]
        await asyncio.sleep(1)
        world.clock.seconds += LONG_SECONDS
        world.store.reads.set()
        for _ in range(20):
            waiting.append(asyncio.ensure_future(lane.validate()))
            await asyncio.sleep(0)
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert outcome is None or isinstance(outcome, HoldfastError)
        assert lane.is_valid()

    for seed in range(20):
        run(main, seed)
