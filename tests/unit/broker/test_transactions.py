"""Transactions through the broker: several lanes, crashes between any two puts, zombies."""

import asyncio
import itertools

import pytest
from tests.support.async_tests import simulated
from tests.support.brokers import (
    Cluster,
    fetch,
    lane_of,
    log_of,
    pass_time,
    simulate,
    topic,
)
from tests.support.read_committed import read_committed
from tests.support.transactional import (
    BEFORE,
    NEWEST,
    READ_COMMITTED,
    VERSIONS,
    TransactionalProducer,
    committed_offset,
    committed_offset_as_before_version_7,
)

from holdfast.broker.broker import Broker
from holdfast.broker.maintenance import Maintenance
from holdfast.lane.keys import entry_prefix
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

PARTITIONS = 3
LANES = 3
FETCHES_MAX = 100


async def serving(world: Cluster, lanes: int = LANES, **settings: object) -> Broker:
    broker = await world.broker(lanes=lanes, **settings)
    await topic(broker, partitions=PARTITIONS)
    return broker


async def producing(broker: Broker, versions: dict[str, int]) -> TransactionalProducer:
    producer = TransactionalProducer(broker, versions=versions)
    assert await producer.init() is ErrorCode.NONE
    return producer


async def write_everywhere(producer: TransactionalProducer, value: bytes) -> None:
    """A record to each partition, and offsets of a group."""
    if producer.versions is BEFORE:
        assert await producer.add(*range(PARTITIONS)) is ErrorCode.NONE
    for partition in range(PARTITIONS):
        answer = await producer.send(partition, value)
        assert answer.error_code == 0, answer


async def committed_values(broker: Broker, partition: int) -> list[bytes | None]:
    """As a client of committed records sees the partition: aborted ones left out."""
    found: list[bytes | None] = []
    offset = 0
    for _ in range(FETCHES_MAX):
        part = await fetch(broker, offset, partition=partition, isolation_level=READ_COMMITTED)
        assert part.error_code == 0, part
        seen, offset = read_committed(part, offset)
        found += [record.value for record in seen]
        if offset >= part.last_stable_offset:
            return found
    raise AssertionError(f"partition {partition}: {FETCHES_MAX} fetches came only to {offset}")


@VERSIONS
@pytest.mark.parametrize("lanes", [1, LANES])
@simulated
async def test_what_is_committed_is_seen_and_what_is_aborted_never_is(
    world: Cluster, lanes: int, versions: dict[str, int]
):
    broker = await serving(world, lanes)
    producer = await producing(broker, versions)
    for i, committed in enumerate([True, False, True, False]):
        await write_everywhere(producer, b"%d" % i)
        assert await producer.end(committed=committed) is ErrorCode.NONE
    await pass_time(10)
    for partition in range(PARTITIONS):
        assert await committed_values(broker, partition) == [b"0", b"2"]


@simulated
async def test_in_one_lane_a_transaction_ends_with_one_put(world: Cluster):
    broker = await serving(world, 1)
    producer = await producing(broker, NEWEST)
    await write_everywhere(producer, b"value")
    await producer.commit_offset(0, 5)
    before = len([c for c in world.store.calls if c[0] == "create"])
    assert await producer.end(committed=True) is ErrorCode.NONE
    assert len([c for c in world.store.calls if c[0] == "create"]) == before + 1
    assert await committed_offset(broker, 0) == 5
    assert await committed_values(broker, 2) == [b"value"]


@VERSIONS
@simulated
async def test_offsets_of_a_transaction_count_when_it_commits(
    world: Cluster, versions: dict[str, int]
):
    broker = await serving(world)
    producer = await producing(broker, versions)
    for offset, committed, expected in ((5, True, 5), (9, False, 5), (7, True, 7)):
        await write_everywhere(producer, b"value")
        if versions is BEFORE:
            assert await producer.add_group() is ErrorCode.NONE
        assert await producer.commit_offset(0, offset) is ErrorCode.NONE
        assert await committed_offset(broker, 0) == -2
        assert await producer.end(committed=committed) is ErrorCode.NONE
        await pass_time(10)
        assert await committed_offset(broker, 0) == expected


@pytest.mark.parametrize("committed", [True, False])
@simulated
async def test_who_cannot_ask_for_stable_offsets_is_told_them_when_the_transaction_has_ended(
    world: Cluster, committed: bool
):
    broker = await serving(world)
    producer = await producing(broker, NEWEST)
    assert await producer.commit_offset(0, 5) is ErrorCode.NONE
    assert await producer.end(committed=True) is ErrorCode.NONE
    await pass_time(10)
    assert await producer.commit_offset(0, 7) is ErrorCode.NONE
    asked = asyncio.ensure_future(committed_offset_as_before_version_7(broker, 0))
    await asyncio.sleep(1)
    assert not asked.done()
    assert await committed_offset(broker, 0, require_stable=False) == 5
    assert await committed_offset_as_before_version_7(broker, 1) == -1
    assert await producer.end(committed=committed) is ErrorCode.NONE
    assert await asked == (7 if committed else 5)


@simulated
async def test_who_cannot_ask_for_stable_offsets_does_not_wait_for_ever(world: Cluster):
    broker = await serving(world)
    producer = await producing(broker, NEWEST)
    assert await producer.commit_offset(0, 5) is ErrorCode.NONE
    began = world.loop.time()
    assert await committed_offset_as_before_version_7(broker, 0) == -1
    assert 4 < world.loop.time() - began < 10


@simulated
async def test_in_a_transaction_a_stale_member_or_one_that_does_not_own_has_an_illegal_generation(
    world: Cluster,
):
    """STALE_MEMBER_EPOCH, which OffsetCommit has for these, would be the end of a Java producer."""
    broker = await serving(world)
    producer = await producing(broker, NEWEST)
    for member_id in ("a", "b"):
        heartbeat = ConsumerGroupHeartbeatRequest(
            group_id="bills",
            member_id=member_id,
            member_epoch=0,
            subscribed_topic_names=["t"],
            rebalance_timeout_ms=60_000,
            topic_partitions=[],
        )
        assert (await producer.ask(heartbeat, 1)).error_code == 0
    refused = ErrorCode.ILLEGAL_GENERATION
    assert await producer.commit_offset(0, 5, member_id="a", generation=0) is refused
    assert await producer.commit_offset(0, 5, member_id="b", generation=2) is refused
    assert await producer.commit_offset(0, 5, member_id="a", generation=1) is ErrorCode.NONE
    assert await producer.commit_offset(0, 6) is ErrorCode.NONE
    assert await producer.end(committed=True) is ErrorCode.NONE
    await pass_time(10)
    assert await committed_offset(broker, 0) == 6


@VERSIONS
@simulated
async def test_a_zombie_can_neither_write_nor_commit(world: Cluster, versions: dict[str, int]):
    broker = await serving(world)
    zombie = await producing(broker, versions)
    await write_everywhere(zombie, b"zombie")
    successor = TransactionalProducer(broker, versions=versions)
    while (error := await successor.init()) is not ErrorCode.NONE:
        assert error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert await zombie.end(committed=True) is ErrorCode.PRODUCER_FENCED
    assert (await zombie.send(0, b"zombie again")).error_code != 0
    await write_everywhere(successor, b"successor")
    assert await successor.end(committed=True) is ErrorCode.NONE
    await pass_time(10)
    for partition in range(PARTITIONS):
        assert await committed_values(broker, partition) == [b"successor"]


@simulated
async def test_a_batch_that_no_transaction_knows_of_is_refused(world: Cluster):
    """Before KIP-890 a late batch could open a transaction that nobody ends."""
    broker = await serving(world)
    producer = await producing(broker, BEFORE)
    refused = await producer.send(0, b"nobody knows")
    assert refused.error_code == ErrorCode.INVALID_TXN_STATE
    assert (await fetch(broker, 0)).high_watermark == 0


@simulated
async def test_a_transaction_that_takes_too_long_is_aborted(world: Cluster):
    broker = await serving(world)
    maintenance = Maintenance(broker)
    maintenance.start()
    producer = TransactionalProducer(broker)
    await producer.init(timeout_ms=10_000)
    await write_everywhere(producer, b"slow")
    await pass_time(30)
    assert await producer.end(committed=True) is ErrorCode.PRODUCER_FENCED
    part = await fetch(broker, 0, isolation_level=READ_COMMITTED)
    assert part.last_stable_offset == part.high_watermark == 2
    assert await committed_values(broker, 0) == []
    await maintenance.stop()


GIVE_UP_S = 20
"""Of virtual time: before any request that the stalled owner keeps is answered with a timeout."""
MOMENTS = list(itertools.product(range(12), ["before", "after"], [True, False]))


@VERSIONS
@pytest.mark.parametrize(("puts", "moment", "committed"), MOMENTS)
def test_whatever_crashes_in_between_a_transaction_is_whole_or_not_there(
    puts: int, moment: str, committed: bool, versions: dict[str, int]
):
    """The owner stalls for good at one of its puts; another takes over, and a new producer."""

    async def test(world: Cluster) -> None:
        store = world.store_of_its_own()
        first = await world.broker(store=store, lanes=LANES)
        await topic(first, partitions=PARTITIONS)
        producer = await producing(first, versions)
        left = puts

        async def stall(operation: str, key: str) -> None:
            nonlocal left
            if operation == "create":
                if left == 0:
                    await asyncio.Event().wait()
                left -= 1

        (store.before if moment == "before" else store.after).append(stall)
        acked = asyncio.ensure_future(whole_transaction(producer, committed=committed))
        await asyncio.wait({acked}, timeout=GIVE_UP_S)
        is_acked = acked.done() and acked.result()
        acked.cancel()

        broker = await world.broker(2, lanes=LANES)
        successor = TransactionalProducer(broker, versions=versions)
        for _ in range(20):
            if await successor.init() is ErrorCode.NONE:
                break
        assert successor.producer_epoch >= 0
        await pass_time(10)
        seen = [await committed_values(broker, partition) for partition in range(PARTITIONS)]
        offset = await committed_offset(broker, 0)
        whole = [[b"value"]] * PARTITIONS, 5
        nothing = [[] for _ in range(PARTITIONS)], -1
        assert (seen, offset) in (whole, nothing)
        if is_acked:
            assert (seen, offset) == (whole if committed else nothing)
        await write_everywhere(successor, b"next")
        assert await successor.end(committed=True) is ErrorCode.NONE
        await pass_time(10)
        for partition in range(PARTITIONS):
            assert await committed_values(broker, partition) == [*seen[partition], b"next"]

    simulate(test)


@pytest.mark.parametrize("committed", [True, False])
@simulated
async def test_no_marker_is_written_in_another_lane_before_the_decision_is_durable(
    world: Cluster, committed: bool
):
    broker = await serving(world)
    producer = await producing(broker, NEWEST)
    await write_everywhere(producer, b"value")
    own = broker.transactions_of(producer.transactional_id).lane
    others = [p for p in range(PARTITIONS) if lane_of(broker, partition=p) is not own]
    assert others
    before = [log_of(broker, partition=p).log_end_offset for p in others]
    put = asyncio.Event()

    async def hold(operation: str, key: str) -> None:
        if operation == "create" and key.startswith(entry_prefix(own.lane)):
            await put.wait()

    world.store.before.append(hold)
    ended = asyncio.ensure_future(producer.end(committed=committed))
    await pass_time(1)
    assert [log_of(broker, partition=p).log_end_offset for p in others] == before
    put.set()
    assert await ended is ErrorCode.NONE
    await pass_time(1)
    assert [log_of(broker, partition=p).log_end_offset for p in others] == [
        offset + 1 for offset in before
    ]


async def whole_transaction(producer: TransactionalProducer, *, committed: bool) -> bool:
    await write_everywhere(producer, b"value")
    if producer.versions is BEFORE:
        assert await producer.add_group() is ErrorCode.NONE
    assert await producer.commit_offset(0, 5) is ErrorCode.NONE
    return await producer.end(committed=committed) is ErrorCode.NONE
