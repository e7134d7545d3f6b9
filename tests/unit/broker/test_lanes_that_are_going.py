"""A lane that is released to another broker: it is served until almost nothing is left to do, and
who comes in that last moment is told where to go."""

import asyncio

from simulation.faults.memory_disk import MemoryDisk
from tests.support.async_tests import simulated
from tests.support.brokers import fetch, list_offset, pass_time, produce, read_log
from tests.support.clusters import Several
from tests.support.stores import Hold
from tests.unit.broker.hand_over import HandOver, partition_of
from tests.unit.broker.spooled import configure, on_disk

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.identifiers import LaneId
from holdfast.lane.keys import entry_prefix
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

NAMES_LEADERS = {"produce": 10, "fetch": 12}
"""The versions in which an answer names the leader (KIP-951)."""


async def leader_named(broker: Broker, partition: int) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    response = await answer(broker, request, RequestContext(api_version=12))
    return response.topics[0].partitions[partition].leader_id


@simulated
async def test_a_produce_that_comes_while_its_lane_is_released_is_told_the_next_owner(
    world: Several,
):
    over = await HandOver.ready(world)
    release = over.hold_puts()
    giving = over.begin()
    await release.reached.wait()
    sending = asyncio.ensure_future(
        produce(over.giver, partition=over.partition, version=NAMES_LEADERS["produce"])
    )
    await pass_time(0.5)
    assert not sending.done()
    release.go.set()
    assert await giving
    told = await sending
    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert told.current_leader.leader_id == 2


async def end_of_epoch(broker: Broker, partition: int) -> EpochEndOffset:
    """As a consumer asks a new leader before it reads on (KIP-320)."""
    asked = OffsetForLeaderPartition(partition=partition, current_leader_epoch=-1, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])]
    )
    response = await answer(broker, request, RequestContext(api_version=4))
    return response.topics[0].partitions[0]


@simulated
async def test_who_is_at_the_next_owner_before_the_lane_waits_there_for_it(world: Several):
    over = await HandOver.ready(world)
    release = over.hold_puts()
    over.giver.is_draining = True
    await release.reached.wait()
    asking = [
        asyncio.ensure_future(fetch(over.taker, partition=over.partition)),
        asyncio.ensure_future(list_offset(over.taker, partition=over.partition)),
        asyncio.ensure_future(end_of_epoch(over.taker, over.partition)),
        asyncio.ensure_future(produce(over.taker, partition=over.partition)),
    ]
    await pass_time(0.5)
    assert [each.done() for each in asking] == [False] * 4
    release.go.set()
    assert [told.error_code for told in await asyncio.gather(*asking)] == [0] * 4
    assert over.lane in over.taker.lanes


@simulated
async def test_a_fetch_that_waits_for_records_ends_when_its_lane_goes_and_is_told_the_next_owner(
    world: Several,
):
    over = await HandOver.ready(world)
    fetching = asyncio.ensure_future(
        fetch(
            over.giver,
            partition=over.partition,
            max_wait_ms=60_000,
            version=NAMES_LEADERS["fetch"],
        )
    )
    await pass_time(1)
    assert not fetching.done()
    assert await over.begin()
    await pass_time(0.1)
    assert fetching.done()
    told = fetching.result()
    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert told.current_leader.leader_id == 2


@simulated
async def test_all_brokers_name_the_next_owner_before_it_serves(world: Several):
    over = await HandOver.ready(world)
    third = await world.join(3, lanes=6)
    await pass_time(10)
    over.lane = next(iter(over.giver.lanes))
    over.partition = partition_of(over.giver, over.lane)
    claim = Hold("create", entry_prefix(over.lane))
    world.store.before.append(claim)  # of the others, not of the giver
    over.giver.is_draining = True
    await claim.reached.wait()
    await pass_time(1)
    named = {await leader_named(broker, over.partition) for broker in (over.giver, third)}
    assert named <= {2, 3} and len(named) == 1
    assert over.lane not in over.giver.lanes.keys() | over.taker.lanes.keys()
    claim.go.set()
    await pass_time(5)
    assert await leader_named(over.taker, over.partition) in named


@simulated
async def test_a_lane_is_served_while_what_its_disk_holds_goes_to_the_store(world: Several):
    over = await HandOver.ready(world, disk=MemoryDisk(environment=world.environment()))
    assert over.giver.is_controller
    await configure(over.giver, over.giver.state.names["t"], **on_disk())
    for value in (b"0", b"1"):
        assert (await produce(over.giver, [value], partition=over.partition)).error_code == 0
    assert over.giver.lanes[over.lane].records_by_disk == 1
    flush = over.hold_puts()
    giving = over.begin()
    await flush.reached.wait()
    meanwhile = await produce(over.giver, [b"2"], partition=over.partition)
    assert (meanwhile.error_code, meanwhile.base_offset) == (0, 2)
    assert len(await read_log(over.giver, partition=over.partition)) == 3
    flush.go.set()
    assert await giving
    await pass_time(10)
    owner = over.taker if over.lane in over.taker.lanes else over.giver
    found = await read_log(owner, partition=over.partition)
    assert [record.value for record in found] == [b"0", b"1", b"2"]


@simulated
async def test_a_lane_that_came_back_while_it_went_may_go_a_second_time(world: Several):
    """Seed 6707: the end of the first release was also taken for the end of the second."""
    over = await HandOver.ready(world)
    served = over.giver.served
    answer_lost = Hold("create", entry_prefix(over.lane))
    over.store.after.append(answer_lost)
    first = asyncio.ensure_future(served.hand_over(over.lane))
    await answer_lost.reached.wait()
    over.store.after.clear()
    await served.take([over.lane])
    second_put = over.hold_puts()
    second = asyncio.ensure_future(served.hand_over(over.lane))
    await second_put.reached.wait()
    answer_lost.go.set()
    await first
    assert over.lane in served.going
    second_put.go.set()
    await second
    assert over.lane not in served.going


@simulated
async def test_a_lane_that_is_asked_for_twice_is_given_to_the_first(world: Several):
    """Seeds 966, 1745, 2035, 2854 and 4029: it was promised to both, and forgotten twice."""
    over = await HandOver.ready(world)
    release = over.hold_puts()
    first, second = over.begin(), over.begin()
    await release.reached.wait()
    await pass_time(0.5)
    release.go.set()
    assert sorted(await asyncio.gather(first, second)) == [False, True]
    puts = [key for call, key in over.store.calls if call == "create"]
    assert len(puts) == len(set(puts))
    await pass_time(10)
    assert sorted([*over.giver.lanes, *over.taker.lanes]) == [LaneId(i) for i in range(1, 7)]
