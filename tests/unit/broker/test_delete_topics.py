"""DeleteTopics: by name and by id, gone at once, gone for good."""

import asyncio
from uuid import UUID

import pytest
from tests.unit.broker.administered import (
    GatedStore,
    ask,
    create,
    names,
    on_gated_store,
    started,
    until,
)

from holdfast.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

NO_ID = UUID(int=0)


def by_name(*topics: str, timeout_ms: int = 10_000) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=list(topics), timeout_ms=timeout_ms)


def by_state(*topics: tuple[str | None, UUID]) -> DeleteTopicsRequest:
    states = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics]
    return DeleteTopicsRequest(topics=states, timeout_ms=10_000)


@pytest.mark.parametrize("version", range(1, 6))
@on_gated_store
async def test_a_deleted_topic_stays_deleted_after_the_broker_was_killed(
    store: GatedStore, version: int
):
    first = await started(store)
    created = await create(first, "a")
    await create(first, "b")
    assert names((await ask(first, by_name("a"), version)).responses) == ["NONE"]
    second = await started(store)
    assert set(second.state.names) == {"b"}
    assert created.topic_id in second.state.deleted


@on_gated_store
async def test_a_topic_is_deleted_by_its_id_and_the_answer_names_it(store: GatedStore):
    broker = await started(store)
    created = await create(broker, "a")
    (result,) = (await ask(broker, by_state((None, created.topic_id)), 6)).responses
    assert (result.name, result.topic_id) == ("a", created.topic_id)
    assert names([result]) == ["NONE"]
    assert broker.state.topic_named("a") is None


@on_gated_store
async def test_a_topic_is_gone_from_the_moment_it_is_decided(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    store.gate.clear()
    task = asyncio.ensure_future(ask(broker, by_name("a"), 5))
    await until(lambda: broker.state.topic_named("a") is None)
    assert not task.done()
    assert names((await ask(broker, by_name("a", timeout_ms=0), 5)).responses) == [
        "UNKNOWN_TOPIC_OR_PARTITION"
    ]
    store.gate.set()
    assert names((await task).responses) == ["NONE"]


@on_gated_store
async def test_a_deletion_that_the_store_does_not_confirm_is_a_timeout(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    store.gate.clear()
    response = await ask(broker, by_name("a", timeout_ms=10), 5)
    assert names(response.responses) == ["REQUEST_TIMED_OUT"]


@on_gated_store
async def test_the_same_name_can_be_created_again_and_is_another_topic(store: GatedStore):
    broker = await started(store)
    old = await create(broker, "a", 3)
    await ask(broker, by_name("a"), 5)
    new = await create(broker, "a")
    assert new.topic_id != old.topic_id
    again = await started(store)
    topic = again.state.topic_named("a")
    assert topic is not None and (topic.topic_id, topic.partitions) == (new.topic_id, 1)


@on_gated_store
async def test_what_is_wrong_with_a_request_is_said_for_each_topic_and_deletes_nothing(
    store: GatedStore,
):
    broker = await started(store)
    a = (await create(broker, "a")).topic_id
    await create(broker, "b")
    request = by_state(
        (None, NO_ID),
        ("a", a),
        ("nobody", NO_ID),
        (None, UUID(int=5)),
        ("b", NO_ID),
        ("b", NO_ID),
    )
    response = await ask(broker, request, 6)
    assert names(response.responses) == [
        "INVALID_REQUEST",
        "INVALID_REQUEST",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_ID",
        "INVALID_REQUEST",
    ]
    assert all(result.error_message for result in response.responses)
    assert set(broker.state.names) == {"a", "b"}


@on_gated_store
async def test_a_topic_named_and_given_by_its_id_too_is_not_deleted(store: GatedStore):
    broker = await started(store)
    a = (await create(broker, "a")).topic_id
    response = await ask(broker, by_state(("a", NO_ID), (None, a)), 6)
    assert names(response.responses) == ["INVALID_REQUEST", "INVALID_REQUEST"]
    assert broker.state.topic_named("a") is not None
