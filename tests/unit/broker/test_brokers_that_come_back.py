"""A broker that was gone and is back: clients that noticed do not try to reach it again at once, so
for a while it asks nobody for a lane."""

import asyncio

from tests.support.async_tests import simulated
from tests.support.brokers import pass_time
from tests.support.clusters import Several

from holdfast.broker.broker import Broker

LANES = 6
WAIT_S = 10.0
SETTLED_S = 30.0


async def two_of_three(world: Several) -> tuple[Broker, Broker]:
    """Brokers 1 and 2, which share the lanes; 3 was here, and has left."""
    first, second, third = [await world.join(i, lanes=LANES) for i in (1, 2, 3)]
    await pass_time(SETTLED_S)
    assert len(third.lanes) == LANES // 3
    await world.leave(third)
    return first, second


def lanes_of(*brokers: Broker) -> list[int]:
    return [len(broker.lanes) for broker in brokers]


@simulated
async def test_a_broker_that_comes_back_leaves_lanes_with_who_serves_them_for_a_while(
    world: Several,
):
    first, second = await two_of_three(world)
    back = await world.join(3, lanes=LANES, rejoin_wait_s=WAIT_S)
    await pass_time(WAIT_S - 2)
    assert lanes_of(first, second, back) == [3, 3, 0]
    await pass_time(6)
    assert lanes_of(first, second, back) == [2, 2, 2]


@simulated
async def test_a_broker_that_was_never_here_has_its_share_at_once(world: Several):
    first, second = [await world.join(i, lanes=LANES) for i in (1, 2)]
    await pass_time(SETTLED_S)
    third = await world.join(3, lanes=LANES, rejoin_wait_s=WAIT_S)
    await pass_time(3)
    assert lanes_of(first, second, third) == [2, 2, 2]


@simulated
async def test_a_broker_that_comes_back_takes_the_lanes_of_one_that_dies_without_waiting(
    world: Several,
):
    first, second = await two_of_three(world)
    back = await world.join(3, lanes=LANES, rejoin_wait_s=600.0)
    await world.kill(second)
    await pass_time(15)
    assert lanes_of(first, back) == [3, 3]


@simulated
async def test_a_broker_that_comes_back_takes_the_lanes_of_one_that_drains_without_waiting(
    world: Several,
):
    first, second = await two_of_three(world)
    back = await world.join(3, lanes=LANES, rejoin_wait_s=600.0)
    async with asyncio.timeout(5):
        await world.leave(second)
    assert lanes_of(first, back) == [3, 3]
