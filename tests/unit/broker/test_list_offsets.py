"""ListOffsets: no latest offset is ever below one that was told before, by any broker."""

import asyncio

import pytest
from tests.support.async_tests import simulated
from tests.support.brokers import (
    EARLIEST,
    LATEST,
    VALID_MS,
    Cluster,
    lane_of,
    list_offset,
    log_of,
    pass_time,
    produce,
    topic,
)
from tests.support.stores import Hold

from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.errors import StoreUnavailable
from holdfast.log.facts import LogStartMoved
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

VALID_S = VALID_MS / 1000


@simulated
async def test_earliest_and_latest_follow_what_is_durable(world: Cluster):
    broker = await world.broker()
    await topic(broker)
    assert (await list_offset(broker)).offset == 0
    await produce(broker, [b"x"] * 3)
    assert (await list_offset(broker)).offset == 3
    hold = Hold("create", "lanes/0001/")
    world.store.before.append(hold)
    producing = asyncio.ensure_future(produce(broker))
    lane_of(broker).add(LogStartMoved(log_of(broker).partition, 2))
    await hold.reached.wait()
    assert (await list_offset(broker, LATEST)).offset == 3
    assert (await list_offset(broker, EARLIEST)).offset == 0
    hold.go.set()
    await producing
    await lane_of(broker).flush()
    assert (await list_offset(broker, LATEST)).offset == 4
    assert (await list_offset(broker, EARLIEST)).offset == 2
    assert (await list_offset(broker)).leader_epoch == 0


@simulated
async def test_times_are_looked_up_and_unknown_ones_are_minus_one(world: Cluster):
    broker = await world.broker()
    await topic(broker)
    now = broker.environment.now_ms()
    for i in (30, 10, 20):
        await produce(broker, timestamp=now - i)
    found = await list_offset(broker, now - 25)
    assert (found.offset, found.timestamp, found.leader_epoch) == (1, now - 10, 0)
    none = await list_offset(broker, now)
    assert (none.error_code, none.offset, none.timestamp, none.leader_epoch) == (0, -1, -1, -1)
    newest = await list_offset(broker, -3)
    assert (newest.offset, newest.timestamp) == (1, now - 10)
    assert (await list_offset(broker, -4)).offset == 0
    assert (await list_offset(broker, -5)).offset == -1


@pytest.mark.parametrize(("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10)])
@simulated
async def test_special_timestamps_are_refused_in_versions_before_theirs(
    world: Cluster, timestamp: int, version: int
):
    broker = await world.broker()
    await topic(broker)
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])]
    )
    for asked, code in ((version, ErrorCode.UNSUPPORTED_VERSION), (version + 1, 0)):
        response = await answer(broker, request, RequestContext(api_version=asked))
        assert response.topics[0].partitions[0].error_code == code


@simulated
async def test_unknown_partitions_and_wrong_leader_epochs_are_refused(world: Cluster):
    broker = await world.broker()
    await topic(broker)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await list_offset(broker, name="nope")).error_code == unknown
    assert (await list_offset(broker, partition=3)).error_code == unknown
    newer = await list_offset(broker, epoch=1)
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    second = await world.broker(2)
    older = await list_offset(second, epoch=0)
    assert older.error_code == ErrorCode.FENCED_LEADER_EPOCH


@simulated
async def test_without_a_proof_of_the_claim_nothing_is_told(world: Cluster):
    broker = await world.broker()
    await topic(broker)
    await produce(broker)
    await pass_time(VALID_S + 1)

    async def away(operation: str, key: str) -> None:
        raise StoreUnavailable(key)

    world.store.before.append(away)
    for timestamp in (LATEST, EARLIEST, 0, -3):
        found = await list_offset(broker, timestamp)
        assert (found.error_code, found.offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


@simulated
async def test_a_broker_that_slept_looks_before_it_answers(world: Cluster):
    sleeper = await world.broker(1)
    await topic(sleeper)
    await produce(sleeper)
    new = await world.broker(2)
    await produce(new)
    assert (await list_offset(new)).offset == 2
    assert (await list_offset(sleeper)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
