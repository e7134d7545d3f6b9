"""An administrator aborts a transaction: one that hangs, or one that is merely open."""

import pytest
from tests.support.async_tests import simulated
from tests.support.brokers import Cluster, fetch, log_of, produce, topic
from tests.support.transactional import READ_COMMITTED, TransactionalProducer

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

LANES = pytest.mark.parametrize("lanes", [1, 3])
PARTITIONS = 3


async def abort(
    broker: Broker,
    producer: tuple[int, int],
    partition: int = 0,
    *,
    name: str = "t",
    committed: bool = False,
    coordinator_epoch: int = 9,
) -> ErrorCode:
    marker = WritableTxnMarker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=committed,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[partition])],
        coordinator_epoch=coordinator_epoch,
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    response = await answer(broker, request, RequestContext(api_version=2))
    assert response.markers[0].producer_id == producer[0]
    return ErrorCode(response.markers[0].topics[0].partitions[0].error_code)


async def stable(broker: Broker, partition: int = 0) -> tuple[int, int]:
    """The last stable offset and the high watermark, as a client is told."""
    part = await fetch(broker, 0, partition=partition, isolation_level=READ_COMMITTED)
    return part.last_stable_offset, part.high_watermark


async def hanging(world: Cluster, lanes: int) -> Broker:
    """A transaction of producer 77 on partition 0 that no coordinator knows."""
    broker = await world.broker(lanes=lanes)
    await topic(broker, partitions=PARTITIONS)
    broker.verify_transaction = lambda append: None
    done = await produce(broker, [b"hanging"], producer=(77, 4, 0), transactional=True)
    assert done.error_code == 0
    assert await stable(broker) == (0, 1)
    return broker


@LANES
@simulated
async def test_a_hanging_transaction_is_aborted_where_it_hangs(world: Cluster, lanes: int):
    broker = await hanging(world, lanes)
    assert await abort(broker, (77, 3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await stable(broker) == (0, 1)
    assert await abort(broker, (77, 4)) is ErrorCode.NONE
    assert await stable(broker) == (2, 2)
    assert await abort(broker, (77, 4)) is ErrorCode.NONE
    assert await stable(broker) == (2, 2)
    await broker.stop(release=True)
    again = await world.broker(2, lanes=lanes)
    assert await stable(again) == (2, 2)


@LANES
@simulated
async def test_a_transaction_that_its_coordinator_has_open_is_aborted_everywhere(
    world: Cluster, lanes: int
):
    broker = await world.broker(lanes=lanes)
    await topic(broker, partitions=PARTITIONS)
    producer = TransactionalProducer(broker)
    await producer.init()
    for partition in range(PARTITIONS):
        assert (await producer.send(partition, b"x")).error_code == 0
    named = (producer.producer_id, producer.producer_epoch)
    too_old = (named[0], named[1] - 1)
    assert await abort(broker, too_old, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await stable(broker, 1) == (0, 1)
    assert await abort(broker, named, 1) is ErrorCode.NONE
    for partition in range(PARTITIONS):
        assert await stable(broker, partition) == (2, 2)
    assert await producer.end(committed=True) is ErrorCode.PRODUCER_FENCED
    assert (await producer.send(0, b"late")).error_code != 0
    assert await producer.init() is ErrorCode.NONE
    assert (await producer.send(0, b"next")).error_code == 0
    assert await producer.end(committed=True) is ErrorCode.NONE


@simulated
async def test_what_is_not_open_is_left_as_it_is(world: Cluster):
    broker = await world.broker(lanes=1)
    await topic(broker, partitions=PARTITIONS)
    assert await abort(broker, (5, 0)) is ErrorCode.NONE
    assert log_of(broker).log_end_offset == 0
    assert 5 not in log_of(broker).producers
    missing = await abort(broker, (5, 0), name="missing")
    assert missing is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@simulated
async def test_a_commit_does_not_come_this_way(world: Cluster):
    broker = await hanging(world, 1)
    assert await abort(broker, (77, 4), committed=True) is ErrorCode.INVALID_REQUEST
    assert await stable(broker) == (0, 1)


@simulated
async def test_an_older_coordinator_epoch_than_that_of_the_last_marker_is_refused(world: Cluster):
    broker = await hanging(world, 1)
    assert await abort(broker, (77, 4), coordinator_epoch=9) is ErrorCode.NONE
    done = await produce(broker, [b"again"], producer=(77, 5, 0), transactional=True)
    assert done.error_code == 0
    refused = await abort(broker, (77, 5), coordinator_epoch=8)
    assert refused is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert await abort(broker, (77, 5), coordinator_epoch=9) is ErrorCode.NONE


@simulated
async def test_a_stale_broker_aborts_nothing(world: Cluster):
    broker = await hanging(world, 1)
    newer = await world.broker(2)
    assert await abort(broker, (77, 4)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await stable(newer) == (0, 1)
