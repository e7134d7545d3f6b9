"""DeleteRecords: the low watermark moves forward, durably, and never past the high watermark."""

import asyncio

import pytest
from tests.unit.broker.administered import (
    GatedStore,
    ask,
    create,
    names,
    on_gated_store,
    produce,
    started,
)

from holdfast.broker.broker import Broker
from holdfast.log.partition import PartitionLog
from holdfast.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)


def before(name: str, *offsets: tuple[int, int], timeout_ms: int = 10_000) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=p, offset=o) for p, o in offsets]
    topics = [DeleteRecordsTopic(name=name, partitions=partitions)]
    return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)


def log_of(broker: Broker, name: str, partition: int = 0) -> PartitionLog:
    led = broker.led(broker.state.topic_named(name), partition)
    assert led is not None
    return led.lane.log_of(led.partition)


@pytest.mark.parametrize("version", range(3))
@on_gated_store
async def test_records_below_the_offset_are_gone_also_after_the_broker_was_killed(
    store: GatedStore, version: int
):
    first = await started(store)
    await create(first, "a", 2)
    await produce(first, "a", 10)
    await produce(first, "a", 4, partition=1)
    response = await ask(first, before("a", (0, 6), (1, -1)), version)
    (topic,) = response.topics
    assert [(p.partition_index, p.low_watermark) for p in topic.partitions] == [(0, 6), (1, 4)]
    assert names(topic.partitions) == ["NONE", "NONE"]
    second = await started(store)
    assert log_of(second, "a").log_start_offset == 6
    assert log_of(second, "a", 1).log_start_offset == 4


@on_gated_store
async def test_the_low_watermark_never_goes_back(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    await produce(broker, "a", 10)
    await ask(broker, before("a", (0, 6)), 2)
    response = await ask(broker, before("a", (0, 2)), 2)
    assert response.topics[0].partitions[0].low_watermark == 6


@on_gated_store
async def test_a_partition_that_nobody_wrote_to_has_the_low_watermark_zero(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    (result,) = (await ask(broker, before("a", (0, -1)), 2)).topics[0].partitions
    assert (names([result]), result.low_watermark) == (["NONE"], 0)


@on_gated_store
async def test_offsets_and_partitions_that_are_not_there_are_refused_one_by_one(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    await produce(broker, "a", 3)
    response = await ask(broker, before("a", (0, 4), (0, -2), (1, 0), (-1, 0)), 2)
    results = response.topics[0].partitions
    assert names(results) == [
        "OFFSET_OUT_OF_RANGE",
        "OFFSET_OUT_OF_RANGE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
    assert {result.low_watermark for result in results} == {-1}
    unknown = await ask(broker, before("nobody", (0, 0)), 2)
    assert names(unknown.topics[0].partitions) == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert log_of(broker, "a").log_start_offset == 0


@on_gated_store
async def test_records_that_the_store_does_not_have_yet_cannot_be_deleted(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    await produce(broker, "a", 3)
    store.gate.clear()
    writing = asyncio.ensure_future(produce(broker, "a", 3))
    while log_of(broker, "a").log_end_offset == 3:
        await asyncio.wait({writing}, timeout=0.001)
    response = await ask(broker, before("a", (0, 5), timeout_ms=500), 2)
    assert names(response.topics[0].partitions) == ["OFFSET_OUT_OF_RANGE"]
    store.gate.set()
    assert await writing == 3


@on_gated_store
async def test_a_compacted_topic_keeps_its_records(store: GatedStore):
    broker = await started(store)
    await create(broker, "a", cleanup_policy="compact")
    await create(broker, "b", cleanup_policy="compact,delete")
    await produce(broker, "a", 3)
    await produce(broker, "b", 3)
    kept = await ask(broker, before("a", (0, 2)), 2)
    assert names(kept.topics[0].partitions) == ["POLICY_VIOLATION"]
    gone = await ask(broker, before("b", (0, 2)), 2)
    assert names(gone.topics[0].partitions) == ["NONE"]


@on_gated_store
async def test_a_store_that_does_not_confirm_in_time_is_a_timeout(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    await produce(broker, "a", 3)
    store.gate.clear()
    response = await ask(broker, before("a", (0, 2), timeout_ms=50), 2)
    assert names(response.topics[0].partitions) == ["REQUEST_TIMED_OUT"]
    assert log_of(broker, "a").log_start_offset == 0


@on_gated_store
async def test_a_broker_that_lost_its_lanes_deletes_and_tells_nothing(store: GatedStore):
    first = await started(store)
    await create(first, "a")
    await produce(first, "a", 3)
    second = await started(store)
    for offset in (0, 2, -1):
        response = await ask(first, before("a", (0, offset)), 2)
        assert names(response.topics[0].partitions) == ["NOT_LEADER_OR_FOLLOWER"]
    assert log_of(second, "a").log_start_offset == 0
