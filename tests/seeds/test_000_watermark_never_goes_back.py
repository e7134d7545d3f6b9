"""Seed 000: the advertised latest offset fell during a hand-off, and a consumer aborted.

Here no answer, from any broker, ever names a latest offset or a high watermark below one that was
served before it: through a planned hand-off, a kill, a pause, a zombie and an outage.
"""

import asyncio
import dataclasses

import pytest
from tests.support.async_tests import simulated
from tests.support.brokers import VALID_MS, pass_time, topic
from tests.support.dispatched import Cluster, latest, poll, send

from holdfast.broker.broker import Broker
from holdfast.errors import StoreUnavailable
from holdfast.protocol.api import ErrorCode

VALID_S = VALID_MS / 1000


@dataclasses.dataclass(slots=True)
class Observed:
    """Every watermark that a client was told, in real time."""

    highest_ended: int = 0
    """The highest value of all answers that have arrived."""
    answers: int = 0
    refusals: int = 0

    async def look(self, broker: Broker) -> None:
        """Ask in both ways; what comes may not be below what had arrived when it was asked."""
        floor = self.highest_ended
        offset, error = await latest(broker)
        self._take(floor, offset, error)
        floor = self.highest_ended
        part = await poll(broker, floor)
        self._take(floor, part.high_watermark, part.error_code)

    def _take(self, floor: int, offset: int, error: int) -> None:
        assert error != ErrorCode.OFFSET_OUT_OF_RANGE
        if error or offset < 0:
            self.refusals += 1
            return
        assert offset >= floor, f"{offset} was told after {floor}"
        self.answers += 1
        self.highest_ended = max(self.highest_ended, offset)

    async def write(self, broker: Broker, count: int = 1) -> None:
        for _ in range(count):
            done = await send(broker, [b"x"], timeout_ms=2_000)
            if done.error_code == 0:
                self.highest_ended = max(self.highest_ended, done.base_offset + 1)


async def first(world: Cluster) -> Broker:
    broker = await world.broker(1, store=world.store_of_its_own())
    await topic(broker)
    return broker


async def start_while_looking(world: Cluster, seen: Observed, old: Broker, number: int) -> Broker:
    """Start the next broker; the one before is asked all the time."""
    starting = asyncio.ensure_future(world.broker(number, store=world.store_of_its_own()))
    while not starting.done():
        await seen.look(old)
        await seen.write(old)
        await pass_time(0.3)
    new = starting.result()
    for _ in range(5):
        await seen.write(new)
        await seen.look(new)
        await seen.look(old)
    return new


@pytest.mark.parametrize("seed", range(6))
@simulated
async def test_through_planned_hand_offs(world: Cluster, seed: int):
    seen = Observed()
    broker = await first(world)
    for number in range(2, 6):
        await seen.write(broker, 3)
        stopping = asyncio.ensure_future(broker.stop(release=True))
        while not stopping.done():
            await seen.look(broker)
            await asyncio.sleep(0)
        broker = await world.broker(number)
        await seen.look(broker)
    assert world.loop.time() < 1
    assert (await latest(broker))[0] == 12
    assert seen.answers >= 8


@pytest.mark.parametrize("seed", range(6))
@simulated
async def test_through_hand_offs_from_a_broker_that_does_not_know_it_was_replaced(
    world: Cluster, seed: int
):
    seen = Observed()
    broker = await first(world)
    for number in range(2, 5):
        await seen.write(broker, 2)
        await seen.look(broker)
        broker = await start_while_looking(world, seen, broker, number)
    assert seen.answers > 20 and seen.refusals > 0


@pytest.mark.parametrize("pause_s", [0.1, VALID_S - 0.1, VALID_S + 0.1, 60.0])
@simulated
async def test_through_a_pause_of_the_owner(world: Cluster, pause_s: float):
    """Paused is: no request of it is answered, and none of its own work happens, meanwhile."""
    seen = Observed()
    paused = await first(world)
    await seen.write(paused, 3)
    await seen.look(paused)
    starting = asyncio.ensure_future(world.broker(2))
    await pass_time(pause_s)
    if starting.done():
        await seen.write(starting.result(), 2)
        await seen.look(starting.result())
    await seen.look(paused)
    new = await starting
    await seen.write(new, 2)
    await seen.look(new)
    await seen.look(paused)
    assert (await latest(paused))[1] == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("seed", range(6))
@simulated
async def test_through_a_zombie_that_is_cut_off_from_the_store_but_not_from_its_clients(
    world: Cluster, seed: int
):
    seen = Observed()
    mine = world.store_of_its_own()
    zombie = await world.broker(1, store=mine)
    await topic(zombie)
    await seen.write(zombie, 3)

    async def away(operation: str, key: str) -> None:
        raise StoreUnavailable(key)

    mine.before.append(away)
    starting = asyncio.ensure_future(world.broker(2))
    while not starting.done():
        await seen.look(zombie)
        await pass_time(0.4)
    new = await starting
    for _ in range(5):
        await seen.write(new)
        await seen.look(new)
        await seen.look(zombie)
    part = await poll(zombie, 0)
    assert part.error_code == 0 and part.high_watermark == -1
    assert part.records
    mine.before.clear()
    await pass_time(1)
    await seen.look(zombie)
    assert (await latest(zombie))[1] == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("seed", range(4))
@simulated
async def test_through_a_chain_of_brokers_that_each_die_while_they_wait(world: Cluster, seed: int):
    seen = Observed()
    oldest = await first(world)
    await seen.write(oldest, 3)
    await seen.look(oldest)
    for number in range(2, 5):
        dying = asyncio.ensure_future(world.broker(number))
        await pass_time(0.7)
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        await seen.look(oldest)
    last = await start_while_looking(world, seen, oldest, 9)
    await seen.look(last)
    assert seen.refusals > 0


@simulated
async def test_a_put_in_flight_over_the_hand_off_is_told_by_the_successor_or_by_nobody(
    world: Cluster,
):
    for landed in (True, False):
        seen = Observed()
        world = Cluster(world.loop)
        mine = world.store_of_its_own()
        old = await world.broker(1, store=mine)
        await topic(old)
        await seen.write(old, 2)
        stopped = asyncio.Event()

        async def hold(operation: str, key: str, stopped: asyncio.Event = stopped) -> None:
            if operation == "create" and key.startswith("lanes/0001/"):
                await stopped.wait()

        (mine.after if landed else mine.before).append(hold)
        sending = asyncio.ensure_future(send(old, [b"in flight"]))
        await pass_time(0.1)
        new = await world.broker(2)
        await seen.look(new)
        assert (await latest(new))[0] == (3 if landed else 2)
        stopped.set()
        answer = await sending
        # What landed before the claim is in the log of every owner after it: it may be told.
        assert answer.error_code == (0 if landed else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await seen.write(new)
        await seen.look(new)
        await seen.look(old)
        assert (await latest(old))[1] == ErrorCode.NOT_LEADER_OR_FOLLOWER
