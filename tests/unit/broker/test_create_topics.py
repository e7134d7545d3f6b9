"""CreateTopics: what is made, what is refused, and that an answer means it is in the store."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from tests.unit.broker.administered import (
    BROKER_ID,
    GatedStore,
    ask,
    create,
    names,
    on_gated_store,
    started,
    until,
)

from holdfast.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

NO_ID = UUID(int=0)


def wanted(name: str, **fields: Any) -> CreatableTopic:
    return CreatableTopic(name=name, **{"num_partitions": 1, "replication_factor": 1, **fields})


def creation(*topics: CreatableTopic, **fields: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), **{"timeout_ms": 10_000, **fields})


def assigned(*replicas: list[int]) -> list[CreatableReplicaAssignment]:
    return [
        CreatableReplicaAssignment(partition_index=i, broker_ids=b) for i, b in enumerate(replicas)
    ]


@on_gated_store
async def test_a_topic_that_was_answered_for_is_there_after_the_broker_was_killed(
    store: GatedStore,
):
    first = await started(store)
    created = await create(first, "orders", 5, retention_ms="1000")
    second = await started(store)
    topic = second.state.topic_named("orders")
    assert topic is not None
    assert (topic.topic_id, topic.partitions) == (created.topic_id, 5)
    assert topic.configs == {"retention.ms": "1000"}


@on_gated_store
async def test_nothing_is_answered_before_the_store_has_it(store: GatedStore):
    broker = await started(store)
    store.gate.clear()
    task = asyncio.ensure_future(ask(broker, creation(wanted("a")), 7))
    await until(lambda: "a" in broker.state.names)
    assert broker.state.topic_named("a") is None
    assert not task.done()
    store.gate.set()
    assert names((await task).topics) == ["NONE"]
    assert broker.state.topic_named("a") is not None


@on_gated_store
async def test_a_store_that_does_not_confirm_in_time_is_a_timeout_and_the_topic_may_come_later(
    store: GatedStore,
):
    broker = await started(store)
    store.gate.clear()
    (result,) = (await ask(broker, creation(wanted("a"), timeout_ms=10), 7)).topics
    assert names([result]) == ["REQUEST_TIMED_OUT"]
    assert (result.topic_id, result.num_partitions) == (NO_ID, -1)
    store.gate.set()
    await until(lambda: broker.state.topic_named("a") is not None)


@on_gated_store
async def test_a_broker_that_lost_the_control_lane_is_not_the_controller(store: GatedStore):
    first = await started(store)
    second = await started(store)
    found_out = await ask(first, creation(wanted("a")), 7)
    known = await ask(first, creation(wanted("b")), 7)
    assert names(found_out.topics + known.topics) == ["NOT_CONTROLLER", "NOT_CONTROLLER"]
    assert not second.state.names


@on_gated_store
async def test_the_answer_says_what_the_topic_has_become(store: GatedStore):
    broker = await started(store, num_partitions=3)
    topic = wanted(
        "a",
        num_partitions=-1,
        replication_factor=-1,
        configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")],
    )
    (result,) = (await ask(broker, creation(topic), 7)).topics
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    assert result.topic_id == broker.state.names["a"]
    shown = {config.name: (config.value, config.config_source) for config in result.configs}
    assert shown["cleanup.policy"] == ("compact", 1)
    assert shown["retention.ms"] == ("604800000", 5)


@pytest.mark.parametrize("version", range(2, 8))
@on_gated_store
async def test_every_version_creates(store: GatedStore, version: int):
    broker = await started(store)
    assert names((await ask(broker, creation(wanted("a")), version)).topics) == ["NONE"]


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (wanted("bad name"), "INVALID_TOPIC_EXCEPTION"),
        (wanted(""), "INVALID_TOPIC_EXCEPTION"),
        (wanted("there"), "TOPIC_ALREADY_EXISTS"),
        (wanted("a_b"), "INVALID_TOPIC_EXCEPTION"),
        (wanted("x", num_partitions=0), "INVALID_PARTITIONS"),
        (wanted("x", num_partitions=-2), "INVALID_PARTITIONS"),
        (wanted("x", num_partitions=10_001), "POLICY_VIOLATION"),
        (wanted("x", replication_factor=0), "INVALID_REPLICATION_FACTOR"),
        (wanted("x", replication_factor=-2), "INVALID_REPLICATION_FACTOR"),
        (wanted("x", configs=[CreatableTopicConfig(name="no.such", value="1")]), "INVALID_CONFIG"),
        (
            wanted("x", configs=[CreatableTopicConfig(name="retention.ms", value="1_000")]),
            "INVALID_CONFIG",
        ),
        (
            wanted("x", configs=[CreatableTopicConfig(name="retention.ms", value=None)]),
            "INVALID_CONFIG",
        ),
        (wanted("x", assignments=assigned([BROKER_ID])), "INVALID_REQUEST"),
        (
            wanted("x", num_partitions=-1, replication_factor=-1, assignments=assigned([99])),
            "INVALID_REPLICA_ASSIGNMENT",
        ),
        (
            wanted(
                "x",
                num_partitions=-1,
                replication_factor=-1,
                assignments=assigned([BROKER_ID], [BROKER_ID, 8]),
            ),
            "INVALID_REPLICA_ASSIGNMENT",
        ),
        (
            wanted(
                "x",
                num_partitions=-1,
                replication_factor=-1,
                assignments=assigned([BROKER_ID, BROKER_ID]),
            ),
            "INVALID_REPLICA_ASSIGNMENT",
        ),
        (
            wanted(
                "x",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=1, broker_ids=[BROKER_ID])],
            ),
            "INVALID_REPLICA_ASSIGNMENT",
        ),
    ],
)
@on_gated_store
async def test_a_wrong_topic_is_refused_with_kafkas_error_and_changes_nothing(
    store: GatedStore, topic: CreatableTopic, error: str
):
    broker = await started(store)
    await create(broker, "there")
    await create(broker, "a.b")
    (result,) = (await ask(broker, creation(topic), 7)).topics
    assert names([result]) == [error]
    assert result.error_message
    assert set(broker.state.names) == {"there", "a.b"}


@on_gated_store
async def test_a_manual_assignment_to_this_broker_makes_as_many_partitions(store: GatedStore):
    broker = await started(store)
    topic = wanted(
        "x",
        num_partitions=-1,
        replication_factor=-1,
        assignments=assigned([BROKER_ID], [BROKER_ID]),
    )
    (result,) = (await ask(broker, creation(topic), 7)).topics
    assert (names([result]), result.num_partitions) == (["NONE"], 2)


@on_gated_store
async def test_a_name_that_is_twice_in_a_request_is_not_created_but_the_others_are(
    store: GatedStore,
):
    broker = await started(store)
    request = creation(wanted("a"), wanted("b"), wanted("a", num_partitions=2))
    response = await ask(broker, request, 7)
    found = dict(zip([t.name for t in response.topics], names(response.topics), strict=True))
    assert found == {"a": "INVALID_REQUEST", "b": "NONE"}
    assert set(broker.state.names) == {"b"}


@on_gated_store
async def test_validating_creates_nothing(store: GatedStore):
    broker = await started(store)
    request = creation(wanted("a", num_partitions=2), wanted("b b"), validate_only=True)
    response = await ask(broker, request, 7)
    assert names(response.topics) == ["NONE", "INVALID_TOPIC_EXCEPTION"]
    assert (response.topics[0].num_partitions, response.topics[0].topic_id) == (2, NO_ID)
    assert not broker.state.names


@on_gated_store
async def test_one_request_makes_a_bounded_number_of_partitions(store: GatedStore):
    broker = await started(store)
    request = creation(
        wanted("a", num_partitions=6_000), wanted("b", num_partitions=6_000), wanted("c")
    )
    response = await ask(broker, request, 7)
    assert names(response.topics) == ["POLICY_VIOLATION"] * 3
    assert not broker.state.names
