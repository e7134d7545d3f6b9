"""Topics created on demand: concurrent wishes for one name, and what cannot be created."""

import asyncio

from tests.unit.broker.administered import GatedStore, on_gated_store, started, until

from holdfast.broker.topic_creation import auto_create


@on_gated_store
async def test_a_missing_topic_is_created_with_the_brokers_number_of_partitions(store: GatedStore):
    broker = await started(store, num_partitions=3)
    await auto_create(broker, ["a", "bad name", "b"])
    found = {topic.name: topic.partitions for topic in broker.state.topics.values()}
    assert found == {"a": 3, "b": 3}
    again = await started(store)
    assert set(again.state.names) == {"a", "b"}


@on_gated_store
async def test_two_who_ask_for_one_missing_topic_get_the_same_one(store: GatedStore):
    broker = await started(store)
    store.gate.clear()
    first = asyncio.ensure_future(auto_create(broker, ["a"]))
    second = asyncio.ensure_future(auto_create(broker, ["a"]))
    await until(lambda: "a" in broker.state.names)
    decided = broker.state.names["a"]
    assert not first.done() and not second.done()
    store.gate.set()
    await asyncio.gather(first, second)
    topic = broker.state.topic_named("a")
    assert topic is not None and topic.topic_id == decided
    assert len(broker.state.topics) == 1


@on_gated_store
async def test_one_who_hangs_up_does_not_end_the_wait_of_the_other(store: GatedStore):
    broker = await started(store)
    store.gate.clear()
    first = asyncio.ensure_future(auto_create(broker, ["a"]))
    second = asyncio.ensure_future(auto_create(broker, ["a"]))
    await until(lambda: "a" in broker.state.names)
    first.cancel()
    await asyncio.wait({first})
    store.gate.set()
    await second
    assert broker.state.topic_named("a") is not None
    assert broker.control.is_open


@on_gated_store
async def test_a_broker_that_lost_the_control_lane_creates_nothing(store: GatedStore):
    first = await started(store)
    second = await started(store)
    await auto_create(first, ["a"])
    await auto_create(first, ["b"])
    assert first.state.topic_named("a") is None
    assert first.state.topic_named("b") is None
    assert not second.state.names
