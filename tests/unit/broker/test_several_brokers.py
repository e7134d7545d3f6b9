"""Brokers that share the lanes of one store: who has what, and what clients are told."""

import asyncio
import functools
from collections.abc import Awaitable, Callable

from tests.support.async_tests import simulated
from tests.support.brokers import VALID_MS, list_offset, pass_time, produce, read_log
from tests.support.clusters import SETTLED_S, Several, simulate

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.errors import StoreUnavailable
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast.protocol.messages.delete_topics import DeleteTopicsRequest
from holdfast.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from holdfast.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicRequest,
)
from holdfast.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from holdfast.protocol.messages.init_producer_id import InitProducerIdRequest
from holdfast.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

PARTITIONS = 8


async def create(broker: Broker, name: str = "t") -> int:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)],
        timeout_ms=10_000,
    )
    response = await answer(broker, request, RequestContext(api_version=7))
    return response.topics[0].error_code


async def leaders(broker: Broker, name: str = "t") -> dict[int, int]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    response = await answer(broker, request, RequestContext(api_version=12))
    return {p.partition_index: p.leader_id for p in response.topics[0].partitions}


async def described(broker: Broker, name: str = "t") -> dict[int, int]:
    """As the newer admin clients ask."""
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicRequest(name=name)], response_partition_limit=2000
    )
    response = await answer(broker, request, RequestContext(api_version=0))
    return {p.partition_index: p.leader_id for p in response.topics[0].partitions}


def lanes_of(*brokers: Broker) -> list[list[int]]:
    return [sorted(broker.lanes) for broker in brokers]


@simulated
async def test_lanes_are_shared_evenly_and_each_has_one_owner(world: Several):
    brokers = [await world.join(i) for i in (1, 2, 3)]
    await pass_time(SETTLED_S)
    shared = lanes_of(*brokers)
    assert sorted(lane for lanes in shared for lane in lanes) == [1, 2, 3, 4]
    assert sorted(map(len, shared)) == [1, 1, 2]
    assert [broker.is_controller for broker in brokers].count(True) == 1


@simulated
async def test_brokers_that_start_at_the_same_time_on_an_empty_store_are_one_cluster(
    world: Several,
):
    brokers = await asyncio.gather(*(world.join(i) for i in (1, 2, 3)))
    await pass_time(20)
    assert len({broker.state.cluster_id for broker in brokers}) == 1
    assert sorted(lane for lanes in lanes_of(*brokers) for lane in lanes) == [1, 2, 3, 4]
    assert sorted(brokers[0].state.brokers) == [1, 2, 3]


@simulated
async def test_any_broker_takes_a_request_for_the_controller_and_knows_the_outcome_at_once(
    world: Several,
):
    brokers = [await world.join(i) for i in (1, 2, 3)]
    other = next(broker for broker in brokers if not broker.is_controller)
    assert await create(other) == ErrorCode.NONE
    assert other.state.topic_named("t") is not None
    deleted = await answer(
        other,
        DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000),
        RequestContext(api_version=4),
    )
    assert deleted.responses[0].error_code == ErrorCode.NONE
    assert other.state.topic_named("t") is None


@simulated
async def test_any_broker_shows_the_configurations_of_a_topic_as_they_were_just_changed(
    world: Several,
):
    brokers = {i: await world.join(i) for i in (1, 2, 3)}
    assert await create(brokers[1]) == ErrorCode.NONE
    for changed_by, retention in ((1, "1000"), (2, "2000"), (3, "3000")):
        alter = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=2,
                    resource_name="t",
                    configs=[IncrementalAlterableConfig(name="retention.ms", value=retention)],
                )
            ]
        )
        done = await answer(brokers[changed_by], alter, RequestContext(api_version=1))
        assert done.responses[0].error_code == ErrorCode.NONE
        for broker in brokers.values():
            assert await retention_ms(broker) == retention


def test_a_consumer_that_heard_of_a_topic_from_another_broker_may_ask_its_leader_at_once():
    async def test(world: Several, first_question: Question) -> None:
        brokers = [await world.join(i) for i in (1, 2, 3)]
        await pass_time(SETTLED_S)
        controller = next(broker for broker in brokers if broker.is_controller)
        leader = next(broker for broker in brokers if not broker.is_controller)
        assert await create(controller) == ErrorCode.NONE
        assert leader.state.topic_named("t") is None, "it has not looked since"
        topic = controller.state.topic_named("t")
        assert topic is not None
        index = next(i for i, lane in enumerate(topic.lanes) if lane in leader.lanes)
        assert await first_question(leader, "t", index) == ErrorCode.NONE
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await first_question(leader, "none", 0) == unknown

    for first_question in (latest_offset, end_of_epoch):
        simulate(functools.partial(test, first_question=first_question))


Question = Callable[[Broker, str, int], Awaitable[int]]


async def latest_offset(broker: Broker, name: str, index: int) -> int:
    return (await list_offset(broker, name=name, partition=index)).error_code


async def end_of_epoch(broker: Broker, name: str, index: int) -> int:
    asked = OffsetForLeaderPartition(partition=index, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=name, partitions=[asked])]
    )
    response = await answer(broker, request, RequestContext(api_version=4))
    return response.topics[0].partitions[0].error_code


async def retention_ms(broker: Broker, name: str = "t") -> str | None:
    resource = DescribeConfigsResource(
        resource_type=2, resource_name=name, configuration_keys=["retention.ms"]
    )
    request = DescribeConfigsRequest(resources=[resource])
    response = await answer(broker, request, RequestContext(api_version=4))
    assert response.results[0].error_code == ErrorCode.NONE
    return response.results[0].configs[0].value


@simulated
async def test_all_brokers_name_the_same_leaders_and_only_those_take_records(world: Several):
    brokers = {i: await world.join(i) for i in (1, 2, 3)}
    assert await create(brokers[1]) == ErrorCode.NONE
    await pass_time(SETTLED_S)
    told = [await leaders(broker) for broker in brokers.values()]
    told += [await described(broker) for broker in brokers.values()]
    assert all(each == told[0] for each in told)
    assert set(told[0].values()) == {1, 2, 3}
    for partition, leader in told[0].items():
        for broker_id, broker in brokers.items():
            done = await produce(broker, partition=partition)
            is_leader = broker_id == leader
            assert (done.error_code == ErrorCode.NONE) is is_leader
            assert is_leader or done.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@simulated
async def test_a_broker_that_leaves_has_handed_its_lanes_over_before_it_is_gone(world: Several):
    brokers = {i: await world.join(i) for i in (1, 2, 3)}
    assert await create(brokers[1]) == ErrorCode.NONE
    await pass_time(SETTLED_S)
    before = await leaders(brokers[2])
    for partition, leader in before.items():
        assert (await produce(brokers[leader], partition=partition)).error_code == 0
    began = asyncio.get_running_loop().time()
    await world.leave(brokers[1])
    assert asyncio.get_running_loop().time() - began < VALID_MS / 1000
    after = await leaders(brokers[2])
    assert set(after.values()) == {2, 3}
    for partition, leader in after.items():
        assert len(await read_log(brokers[leader], partition=partition)) == 1
    assert brokers[2].is_controller or brokers[3].is_controller


@simulated
async def test_the_lanes_of_a_killed_broker_are_taken_over_and_nothing_is_lost(world: Several):
    brokers = {i: await world.join(i) for i in (1, 2, 3)}
    assert await create(brokers[2]) == ErrorCode.NONE
    await pass_time(SETTLED_S)
    for partition, leader in (await leaders(brokers[2])).items():
        assert (await produce(brokers[leader], partition=partition)).error_code == 0
    await world.kill(brokers[1])
    await pass_time(VALID_MS / 1000 + SETTLED_S)
    after = await leaders(brokers[2])
    assert set(after.values()) == {2, 3}
    for partition, leader in after.items():
        assert len(await read_log(brokers[leader], partition=partition)) == 1


@simulated
async def test_a_broker_that_nobody_hears_loses_its_lanes_and_gets_some_back_when_it_is_heard(
    world: Several,
):
    brokers = {i: await world.join(i) for i in (1, 2, 3)}
    assert await create(brokers[1]) == ErrorCode.NONE
    await pass_time(SETTLED_S)
    silent = next(broker for broker in brokers.values() if not broker.is_controller)
    others = [broker for broker in brokers.values() if broker is not silent]
    held = set(silent.lanes)
    world.silence(silent)
    await pass_time(VALID_MS / 1000 + 2 * SETTLED_S)
    assert held <= {lane for broker in others for lane in broker.lanes}
    world.heal(silent)
    await pass_time(90)
    assert sorted(lane for lanes in lanes_of(*brokers.values()) for lane in lanes) == [
        1,
        2,
        3,
        4,
    ]
    assert silent.lanes


@simulated
async def test_producer_ids_of_different_brokers_are_different(world: Several):
    brokers = [await world.join(i) for i in (1, 2, 3)]
    found: list[int] = []
    for broker in brokers:
        for _ in range(3):
            told = await answer(broker, InitProducerIdRequest(), RequestContext(api_version=4))
            assert told.error_code == ErrorCode.NONE
            found.append(told.producer_id)
    assert len(set(found)) == len(found)


@simulated
async def test_every_broker_names_the_same_coordinator_of_a_group(world: Several):
    brokers = [await world.join(i) for i in (1, 2, 3)]
    await pass_time(SETTLED_S)
    for name in ("a", "b", "c", "d", "e"):
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[name])
        told = [await answer(each, request, RequestContext(api_version=4)) for each in brokers]
        named = {each.coordinators[0].node_id for each in told}
        assert len(named) == 1
        assert named <= {1, 2, 3}


@simulated
async def test_a_deleted_topic_is_forgotten_only_when_every_owner_has_dropped_it(world: Several):
    brokers = {i: await world.join(i) for i in (1, 2, 3)}
    assert await create(brokers[1]) == ErrorCode.NONE
    await pass_time(SETTLED_S)
    for partition, leader in (await leaders(brokers[1])).items():
        assert (await produce(brokers[leader], partition=partition)).error_code == 0
    deleting = DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000)
    await answer(brokers[1], deleting, RequestContext(api_version=4))
    await pass_time(60)
    for broker in brokers.values():
        assert broker.state.deleted == {}
        for lane in broker.lanes.values():
            assert lane.state.partitions == {}


@simulated
async def test_a_second_process_with_the_same_id_ends_the_first(world: Several):
    first = await world.join(1)
    await world.join(2)
    await pass_time(SETTLED_S)
    await world.join(1)
    await pass_time(SETTLED_S)
    assert first.lost.done()
    assert "has started" in str(first.lost.result())


@simulated
async def test_the_lanes_of_a_broker_that_has_lost_the_store_go_to_those_that_have_it(
    world: Several,
):
    store = world.store_of_its_own()
    without = await world.join(1, store=store)
    others = [await world.join(i) for i in (2, 3)]
    assert await create(others[0]) == ErrorCode.NONE
    await pass_time(SETTLED_S)
    held = set(without.lanes)
    assert held

    async def fail(operation: str, key: str) -> None:
        raise StoreUnavailable(f"{operation} {key}: the cable is out")

    store.before.append(fail)
    await pass_time(60)
    assert held <= {lane for broker in others for lane in broker.lanes}
    told = await leaders(others[0])
    assert set(told.values()) <= {2, 3}
