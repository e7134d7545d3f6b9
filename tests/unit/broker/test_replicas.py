"""Readers are served by a broker of their own rack (KIP-392), never less than its leader told."""

from tests.support.async_tests import simulated
from tests.support.brokers import pass_time, produce, values_in
from tests.support.clusters import Several

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.log.facts import CeilingReserved
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from holdfast.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic


async def two(world: Several, partitions: int = 1) -> tuple[Broker, Broker]:
    """A leader in one rack, and another broker in another."""
    near, far = [await world.join(i, lanes=1, rack=f"rack-{i}") for i in (1, 2)]
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="t", num_partitions=partitions, replication_factor=1)],
        timeout_ms=10_000,
    )
    await answer(near, request, RequestContext(api_version=7))
    await pass_time(4)
    return (near, far) if near.lanes else (far, near)


async def fetch(
    broker: Broker, offset: int = 0, *, rack: str = "", wait_ms: int = 0
) -> PartitionData:
    return (await fetch_all(broker, 1, offset, rack=rack, wait_ms=wait_ms))[0]


async def fetch_all(
    broker: Broker, partitions: int, offset: int = 0, *, rack: str = "", wait_ms: int = 0
) -> list[PartitionData]:
    wanted = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        for number in range(partitions)
    ]
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        session_epoch=-1,
        rack_id=rack,
        topics=[FetchTopic(topic="t", partitions=wanted)],
    )
    response = await answer(broker, request, RequestContext(api_version=12))
    return response.responses[0].partitions


@simulated
async def test_a_reader_is_sent_to_the_broker_of_its_rack_which_has_all_that_is_durable(
    world: Several,
):
    leader, other = await two(world)
    for i in range(5):
        assert (await produce(leader, [b"%d" % i])).error_code == ErrorCode.NONE
        sent = await fetch(leader, rack=other.settings.rack or "")
        assert sent.preferred_read_replica == other.settings.broker_id
        assert not sent.records
        found = await fetch(other, rack=other.settings.rack or "")
        assert found.error_code == ErrorCode.NONE
        assert values_in(found) == [b"%d" % j for j in range(i + 1)]
        assert found.high_watermark == i + 1


@simulated
async def test_a_reader_of_the_leaders_rack_or_of_none_is_served_by_the_leader(world: Several):
    leader, other = await two(world)
    await produce(leader, [b"x"])
    for rack in (leader.settings.rack or "", "", "a rack without a broker"):
        assert values_in(await fetch(leader, rack=rack)) == [b"x"]
    for rack in (leader.settings.rack or "", ""):
        assert (await fetch(other, rack=rack)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@simulated
async def test_a_fetch_that_waits_at_another_broker_gets_what_its_leader_takes_meanwhile(
    world: Several,
):
    leader, other = await two(world)
    rack = other.settings.rack or ""
    await produce(leader, [b"0"])
    waiting = world.loop.create_task(fetch(other, 1, rack=rack, wait_ms=5_000))
    await pass_time(1)
    assert not waiting.done()
    await produce(leader, [b"1"])
    await pass_time(1)
    assert values_in(await waiting) == [b"1"]


@simulated
async def test_a_lane_is_looked_at_once_for_all_partitions_of_a_fetch(world: Several):
    leader, other = await two(world, partitions=4)
    rack = other.settings.rack or ""
    await produce(leader, [b"0"])
    await fetch_all(other, 4, rack=rack)
    (lane,) = leader.lanes.values()
    for partitions in (1, 4):
        before = other.replicas.of(lane.lane).looks
        found = await fetch_all(other, partitions, rack=rack)
        assert values_in(found[0]) == [b"0"]
        assert other.replicas.of(lane.lane).looks == before + 1


@simulated
async def test_where_the_leader_may_know_more_than_the_store_only_it_is_asked(world: Several):
    leader, other = await two(world)
    await produce(leader, [b"0"])
    (lane,) = leader.lanes.values()
    (partition,) = lane.state.partitions
    lane.add(CeilingReserved(partition, 1_000, lane.claimed_lane.cursor.claim))
    await lane.flush()
    found = await fetch(other, rack=other.settings.rack or "")
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@simulated
async def test_an_offset_that_no_record_has_is_out_of_range_there_too(world: Several):
    leader, other = await two(world)
    await produce(leader, [b"0"])
    found = await fetch(other, 7, rack=other.settings.rack or "")
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@simulated
async def test_brokers_with_a_rack_are_replicas_in_metadata(world: Several):
    leader, other = await two(world)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    told = await answer(leader, request, RequestContext(api_version=12))
    (partition,) = told.topics[0].partitions
    assert partition.replica_nodes == [leader.settings.broker_id, other.settings.broker_id]
    assert partition.isr_nodes == partition.replica_nodes
