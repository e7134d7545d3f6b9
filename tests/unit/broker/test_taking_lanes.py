"""A broker that takes a lane knows the topics at least as well as the owner before did."""

import asyncio

import pytest
from tests.support.async_tests import simulated
from tests.support.brokers import VALID_MS, pass_time, produce, topic
from tests.support.clusters import Several
from tests.support.stores import HookedStore

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.broker.lanes.served import ServedLanes
from holdfast.client.address import Address
from holdfast.errors import StoreUnavailable
from holdfast.identifiers import CONTROL_LANE, LaneId
from holdfast.lane.keys import entry_prefix, floor_prefix
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.message import Message
from holdfast.protocol.messages.delete_topics import DeleteTopicsRequest
from holdfast.protocol.messages.lane_hand_over import LaneHandOverRequest

CONTROL_KEYS = (entry_prefix(CONTROL_LANE), floor_prefix(CONTROL_LANE))


async def no_control_lane(operation: str, key: str) -> None:
    del operation
    if key.startswith(CONTROL_KEYS):
        raise StoreUnavailable("injected: the control lane is out of reach")


class DoesNotLook(ServedLanes):
    """The bug that this is about: it serves a lane with the topics that it happens to know."""

    async def take(self, lanes) -> None:
        self._know_topics = nothing
        await super().take(lanes)


async def nothing() -> None:
    return None


async def ignorant_successor(world: Several, bad: type[ServedLanes] | None) -> tuple[Broker, int]:
    """Broker 2 has not heard that a topic was deleted, and is to take a lane from which the owner
    before has dropped it; and a partition of the topic in that lane."""
    first = await world.join(1, maintenance_interval_s=0.2)
    store = HookedStore(world.memory)
    second = await world.join(2, store=store, maintenance_interval_s=0.2)
    if bad is not None:
        second.served.__class__ = bad
    await topic(first, partitions=8)
    await pass_time(4)
    known = first.state.topic_named("t")
    assert known is not None
    partition = next(i for i in range(8) if known.lane_of(i) in first.lanes)
    assert (await produce(first, partition=partition)).base_offset == 0
    assert second.membership is not None
    await second.membership._look()
    store.before.append(no_control_lane)
    deleting = DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000)
    await answer(first, deleting, RequestContext(api_version=4))
    await pass_time(1.5)
    assert all(lane.state.partitions == {} for lane in first.lanes.values())
    await world.kill(first)
    await pass_time(30)
    assert second.state.topic_named("t") is not None
    if bad is None:
        assert len(second.lanes) < 4
        store.before.clear()
    return second, partition


@simulated
async def test_a_lane_is_not_served_before_what_was_deleted_is_known(world: Several):
    second, partition = await ignorant_successor(world, None)
    await pass_time(30)
    assert sorted(second.lanes) == [LaneId(lane) for lane in (1, 2, 3, 4)]
    done = await produce(second, partition=partition)
    assert done.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("seed", range(2))
@simulated
async def test_who_does_not_look_gives_the_offsets_of_a_deleted_topic_out_again(
    world: Several, seed: int
):
    second, partition = await ignorant_successor(world, DoesNotLook)
    assert sorted(second.lanes) == [LaneId(lane) for lane in (1, 2, 3, 4)]
    assert (await produce(second, partition=partition)).base_offset == 0


@simulated
async def test_an_owner_that_falls_silent_while_it_is_asked_for_a_lane_is_not_waited_for(
    world: Several,
):
    """An answer to a hand-over is waited for up to 30 s."""
    first = await world.join(1)

    async def fall_silent(asker: Address, asked: Address, message: Message) -> None:
        del asker
        if isinstance(message, LaneHandOverRequest) and asked not in world.wires.silent:
            world.silence(first)
            await world.stall(first)
            world.wires.listening[asked] = first

    world.wires.before.append(fall_silent)
    async with asyncio.timeout(VALID_MS / 1000 * 1.1 + 8):
        second = await world.join(2)
        while len(second.lanes) < 4:
            await pass_time(0.1)
    assert sorted(second.lanes) == [LaneId(lane) for lane in (1, 2, 3, 4)]
