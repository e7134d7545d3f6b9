"""CreatePartitions: topics only grow, and new partitions are there after a kill."""

import asyncio
from typing import Any

import pytest
from tests.unit.broker.administered import (
    BROKER_ID,
    GatedStore,
    ask,
    create,
    names,
    on_gated_store,
    produce,
    started,
    until,
)

from holdfast.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)


def growth(*topics: CreatePartitionsTopic, **fields: Any) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=list(topics), **{"timeout_ms": 10_000, **fields})


def to(name: str, count: int, *replicas: list[int]) -> CreatePartitionsTopic:
    assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in replicas]
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments or None)


@pytest.mark.parametrize("version", range(4))
@on_gated_store
async def test_new_partitions_are_there_after_the_broker_was_killed(
    store: GatedStore, version: int
):
    first = await started(store)
    await create(first, "a", 2)
    before = list(first.state.topics[first.state.names["a"]].lanes)
    assert names((await ask(first, growth(to("a", 5)), version)).results) == ["NONE"]
    assert await produce(first, "a", 1, partition=4) == 0
    second = await started(store)
    topic = second.state.topic_named("a")
    assert topic is not None and topic.partitions == 5
    assert topic.lanes[:2] == before


@on_gated_store
async def test_a_new_partition_cannot_be_used_before_the_store_has_it(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    store.gate.clear()
    task = asyncio.ensure_future(ask(broker, growth(to("a", 2)), 3))
    topic = broker.state.topic_named("a")
    assert topic is not None
    await until(lambda: len(topic.lanes) == 2)
    assert broker.led(topic, 1) is None
    store.gate.set()
    assert names((await task).results) == ["NONE"]
    assert broker.led(topic, 1) is not None


@on_gated_store
async def test_validating_adds_nothing(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    request = growth(to("a", 3), to("nobody", 3), validate_only=True)
    response = await ask(broker, request, 3)
    assert names(response.results) == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert len(broker.state.topics[broker.state.names["a"]].lanes) == 1


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (to("nobody", 3), "UNKNOWN_TOPIC_OR_PARTITION"),
        (to("a", 2), "INVALID_PARTITIONS"),
        (to("a", 1), "INVALID_PARTITIONS"),
        (to("a", -1), "INVALID_PARTITIONS"),
        (to("a", 10_001), "INVALID_PARTITIONS"),
        (to("a", 4, [BROKER_ID]), "INVALID_REPLICA_ASSIGNMENT"),
        (to("a", 3, [99]), "INVALID_REPLICA_ASSIGNMENT"),
        (to("a", 3, [BROKER_ID, 99]), "INVALID_REPLICA_ASSIGNMENT"),
        (to("a", 3, []), "INVALID_REPLICA_ASSIGNMENT"),
    ],
)
@on_gated_store
async def test_a_wrong_growth_is_refused_with_kafkas_error(
    store: GatedStore, topic: CreatePartitionsTopic, error: str
):
    broker = await started(store)
    await create(broker, "a", 2)
    (result,) = (await ask(broker, growth(topic), 3)).results
    assert names([result]) == [error]
    assert result.error_message
    assert len(broker.state.topics[broker.state.names["a"]].lanes) == 2


@on_gated_store
async def test_an_assignment_to_this_broker_is_taken(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    response = await ask(broker, growth(to("a", 3, [BROKER_ID], [BROKER_ID])), 3)
    assert names(response.results) == ["NONE"]


@on_gated_store
async def test_a_name_that_is_twice_in_a_request_does_not_grow(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    response = await ask(broker, growth(to("a", 2), to("a", 3)), 3)
    assert names(response.results) == ["INVALID_REQUEST"]
    assert len(broker.state.topics[broker.state.names["a"]].lanes) == 1


@on_gated_store
async def test_a_broker_that_lost_the_control_lane_adds_nothing(store: GatedStore):
    first = await started(store)
    await create(first, "a")
    second = await started(store)
    assert names((await ask(first, growth(to("a", 2)), 3)).results) == ["NOT_CONTROLLER"]
    topic = second.state.topic_named("a")
    assert topic is not None and topic.partitions == 1
