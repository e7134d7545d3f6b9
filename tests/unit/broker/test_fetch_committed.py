"""Reading committed records: Fetch, ListOffsets, DescribeProducers, and the marker's way there."""

import asyncio
from typing import Any

import pytest
from tests.support.async_tests import simulated
from tests.support.brokers import (
    LATEST,
    Cluster,
    fetch,
    lane_of,
    list_offset,
    log_of,
    produce,
    topic,
    values_in,
)
from tests.support.stores import Hold
from tests.support.transactional import READ_COMMITTED
from tests.unit.broker.transactional_writes import end, served, write

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.broker.transactions.verification import TransactionalAppend
from holdfast.errors import Fenced
from holdfast.log.facts import LogStartMoved
from holdfast.protocol.api import ErrorCode, Refused
from holdfast.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopic,
    PartitionResponse,
)
from holdfast.protocol.messages.fetch import PartitionData

MAX_TIMESTAMP = -3


async def committed(broker: Broker, offset: int = 0, **more: Any) -> PartitionData:
    return await fetch(broker, offset, isolation_level=READ_COMMITTED, **more)


def aborted_in(part: PartitionData) -> list[tuple[int, int]]:
    assert part.aborted_transactions is not None
    return [(a.producer_id, a.first_offset) for a in part.aborted_transactions]


@simulated
async def test_a_fetch_of_committed_records_ends_at_the_last_stable_offset(world: Cluster):
    broker = await served(world)
    await produce(broker, [b"plain"])
    await write(broker, 1, b"open")
    await produce(broker, [b"behind"])
    part = await committed(broker)
    assert values_in(part) == [b"plain"]
    assert (part.last_stable_offset, part.high_watermark) == (1, 3)
    assert aborted_in(part) == []
    part = await fetch(broker)
    assert values_in(part) == [b"plain", b"open", b"behind"]
    assert part.aborted_transactions is None
    assert await end(broker, 1, committed=True) is None
    part = await committed(broker)
    assert values_in(part)[:3] == [b"plain", b"open", b"behind"]
    assert (part.last_stable_offset, part.high_watermark) == (4, 4)


@simulated
async def test_an_offset_between_the_last_stable_one_and_the_high_watermark_is_in_range(
    world: Cluster,
):
    broker = await served(world)
    await write(broker, 1)
    await produce(broker)
    for offset in (0, 1, 2):
        part = await committed(broker, offset)
        assert (part.error_code, values_in(part)) == (0, [])
    assert (await committed(broker, 3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@simulated
async def test_the_answer_names_the_aborted_transactions_that_have_something_in_it(world: Cluster):
    broker = await served(world)
    for producer_id in (1, 2, 3):
        await write(broker, producer_id, b"%d" % producer_id)
    await end(broker, 2, committed=False)
    await end(broker, 1, committed=False)
    await end(broker, 3, committed=True)
    await write(broker, 2, b"again")
    await end(broker, 2, committed=False)
    assert sorted(aborted_in(await committed(broker))) == [(1, 0), (2, 1), (2, 6)]
    assert aborted_in(await committed(broker, 4)) == [(1, 0), (2, 6)]
    assert aborted_in(await committed(broker, 0, max_bytes=1)) == [(1, 0)]
    assert aborted_in(await committed(broker, 7)) == [(2, 6)]
    assert aborted_in(await committed(broker, 8)) == []


@simulated
async def test_a_fetch_that_waits_wakes_when_the_marker_is_durable(world: Cluster):
    broker = await served(world)
    await write(broker, 1, b"value")
    waiting = asyncio.ensure_future(committed(broker, 0, max_wait_ms=60_000))
    await asyncio.sleep(1)
    assert not waiting.done()
    hold = Hold("create", "lanes/0001")
    world.store.before.append(hold)
    ending = asyncio.ensure_future(end(broker, 1, committed=True))
    await hold.reached.wait()
    await asyncio.sleep(1)
    assert not waiting.done()
    hold.go.set()
    part = await waiting
    assert values_in(part)[0] == b"value"
    assert part.last_stable_offset == 2
    assert await ending is None


@simulated
async def test_the_end_that_is_told_is_the_end_of_the_records_also_where_a_marker_comes_meanwhile(
    world: Cluster,
):
    broker = await served(world)
    await produce(broker, [b"plain"])
    await write(broker, 1, b"open")
    broker.tail.forget(lane_of(broker).lane)
    hold = Hold("read", "lanes/0001")
    world.store.before.append(hold)
    reading = asyncio.ensure_future(committed(broker))
    await hold.reached.wait()
    assert await end(broker, 1, committed=False) is None
    hold.go.set()
    part = await reading
    assert (part.last_stable_offset, values_in(part)) == (1, [b"plain"])


@simulated
async def test_a_log_start_that_moves_during_the_read_takes_no_aborted_transaction_away(
    world: Cluster,
):
    broker = await served(world)
    await write(broker, 1, b"aborted")
    await end(broker, 1, committed=False)
    broker.tail.forget(lane_of(broker).lane)
    hold = Hold("read", "lanes/0001")
    world.store.before.append(hold)
    reading = asyncio.ensure_future(committed(broker))
    await hold.reached.wait()
    lane_of(broker).add(LogStartMoved(log_of(broker).partition, 2))
    await lane_of(broker).flush()
    assert log_of(broker).transactions.aborted == []
    hold.go.set()
    part = await reading
    assert part.error_code == 0
    assert aborted_in(part) == [(1, 0)]


@simulated
async def test_while_the_store_is_away_no_last_stable_offset_is_told(world: Cluster):
    store = world.store_of_its_own()
    broker = await served(world, store=store)
    await produce(broker, [b"plain"])
    await write(broker, 1)
    await end(broker, 1, committed=False)
    await write(broker, 2)

    async def away(operation: str, key: str) -> None:
        await asyncio.Event().wait()

    store.before.append(away)
    await asyncio.sleep(10)
    part = await committed(broker)
    assert (part.error_code, part.last_stable_offset) == (0, -1)
    assert aborted_in(part) == [(1, 1)]
    assert values_in(part)[:2] == [b"plain", b"v"]
    assert (await committed(broker, 3)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


@simulated
async def test_offsets_by_time_never_pass_the_last_stable_offset(world: Cluster):
    broker = await served(world)
    now = broker.environment.now_ms()
    await produce(broker, timestamp=now - 30)
    await produce(broker, timestamp=now - 20)
    await write(broker, 1, timestamp=now - 10)
    for level, latest, found, newest in ((0, 3, 2, 2), (READ_COMMITTED, 2, -1, 1)):
        asked = {"isolation_level": level}
        assert (await list_offset(broker, LATEST, **asked)).offset == latest
        assert (await list_offset(broker, now - 15, **asked)).offset == found
        assert (await list_offset(broker, now - 25, **asked)).offset == 1
        assert (await list_offset(broker, MAX_TIMESTAMP, **asked)).offset == newest
    await end(broker, 1, committed=True)
    assert (await list_offset(broker, now - 15, isolation_level=READ_COMMITTED)).offset == 2
    assert (await list_offset(broker, LATEST, isolation_level=READ_COMMITTED)).offset == 4


@simulated
async def test_transactional_batches_without_a_transactional_id_are_refused(world: Cluster):
    broker = await world.broker()
    await topic(broker)
    refused = await produce(broker, producer=(1, 0, 0), transactional=True)
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert "needs a transactional id" in (refused.error_message or "")
    assert log_of(broker).log_end_offset == 0


@simulated
async def test_the_coordinator_is_asked_before_the_first_batch_and_not_again(world: Cluster):
    broker = await served(world)
    asked: list[TransactionalAppend] = []

    def verify(append: TransactionalAppend) -> Refused | None:
        asked.append(append)
        return Refused(ErrorCode.INVALID_TXN_STATE, "not known") if len(asked) == 1 else None

    broker.verify_transaction = verify
    refused = await produce(broker, producer=(1, 0, 0), transactional=True)
    assert refused.error_code == ErrorCode.INVALID_TXN_STATE
    await write(broker, 1)
    await write(broker, 1, timestamp=5)
    again = await produce(broker, [b"v"], producer=(1, 0, 1), transactional=True, timestamp=5)
    assert (again.error_code, again.base_offset) == (0, 1)
    assert [(one.producer_id, one.partition) for one in asked] == [
        (1, log_of(broker).partition)
    ] * 2
    await end(broker, 1, committed=True)
    await write(broker, 1)
    assert len(asked) == 3


@simulated
async def test_a_plain_batch_inside_an_open_transaction_is_refused_by_a_proved_owner_only(
    world: Cluster,
):
    broker = await served(world)
    await write(broker, 1)
    refused = await produce(broker, producer=(1, 0, 1))
    assert refused.error_code == ErrorCode.INVALID_TXN_STATE
    await world.broker(2)
    refused = await produce(broker, producer=(1, 0, 1))
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@simulated
async def test_a_marker_is_stamped_and_answered_once_it_is_durable_and_may_be_repeated(
    world: Cluster,
):
    broker = await served(world)
    await write(broker, 1)
    for _ in range(2):
        assert await end(broker, 1, committed=True, epoch=1) is None
    log = log_of(broker)
    assert log.high_watermark == 2
    older = await end(broker, 1, committed=True, epoch=0)
    assert older is not None
    assert older.error is ErrorCode.INVALID_PRODUCER_EPOCH
    fresh = await world.broker(2)
    assert log_of(fresh).last_stable_offset == 2
    assert (await committed(fresh)).error_code == 0


@pytest.mark.parametrize("epoch", [0, 1, 2], ids=["older", "repeated", "next"])
@simulated
async def test_an_owner_that_was_fenced_says_nothing_of_a_marker(world: Cluster, epoch: int):
    broker = await served(world)
    await write(broker, 1)
    assert await end(broker, 1, committed=True, epoch=1) is None
    await world.broker(2)
    with pytest.raises(Fenced):
        await end(broker, 1, committed=True, epoch=epoch)


async def described(broker: Broker, name: str = "t", partition: int = 0) -> PartitionResponse:
    request = DescribeProducersRequest(
        topics=[DescribeProducersTopic(name=name, partition_indexes=[partition])]
    )
    response = await answer(broker, request, RequestContext(api_version=0))
    return response.topics[0].partitions[0]


@simulated
async def test_producers_are_described_with_the_start_of_their_open_transaction(world: Cluster):
    broker = await served(world)
    await produce(broker, producer=(7, 0, 0))
    await write(broker, 1)
    await end(broker, 1, committed=True, epoch=1)
    await write(broker, 2)
    await write(broker, 2)
    part = await described(broker)
    assert part.error_code == 0
    assert [
        (p.producer_id, p.producer_epoch, p.last_sequence, p.coordinator_epoch)
        for p in part.active_producers
    ] == [(1, 1, -1, 3), (2, 0, 1, -1), (7, 0, 0, -1)]
    assert [p.current_txn_start_offset for p in part.active_producers] == [-1, 3, -1]
    for name, partition in (("t", 1), ("other", 0)):
        unknown = await described(broker, name, partition)
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await world.broker(2)
    await asyncio.sleep(10)
    assert (await described(broker)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
