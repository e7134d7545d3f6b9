"""What the simulation of groups and transactions found, played step by step through a broker."""

import asyncio

from tests.support.async_tests import simulated
from tests.support.brokers import VALID_MS, pass_time, topic
from tests.support.dispatched import Cluster, ask
from tests.support.groups import assignment
from tests.support.late_acks import GROUP as GROUP_OF_SEED
from tests.support.late_acks import Member, rebalance, two_members
from tests.support.transactional import (
    BEFORE,
    VERSIONS,
    TransactionalProducer,
    committed_offset,
)

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.groups.commits import NOT_OWNED
from holdfast.lane.keys import entry_prefix
from holdfast.log.facts import ProducersExpired
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from holdfast.protocol.messages.sync_group import SyncGroupRequest

GROUP = "readers"


async def commit(broker: Broker, offset: int) -> int:
    wanted = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=None
    )
    request = OffsetCommitRequest(
        group_id=GROUP, topics=[OffsetCommitRequestTopic(name="t", partitions=[wanted])]
    )
    return (await ask(broker, request)).topics[0].partitions[0].error_code


async def committed(broker: Broker) -> tuple[int, int]:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    told = await ask(broker, OffsetFetchRequest(group_id=GROUP, topics=topics))
    part = told.topics[0].partitions[0]
    return part.error_code, part.committed_offset


@simulated
async def test_a_committed_offset_is_told_only_when_it_is_durable(world: Cluster):
    """Seeds 10 and 18 of groups: it was read after the wait for what had been decided before."""
    broker = await world.broker()
    await topic(broker)
    assert await commit(broker, 5) == 0
    await pass_time(2 * VALID_MS / 1000)  # the claim has to be looked at anew
    looking, look, put = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold(operation: str, key: str) -> None:
        if operation == "create":
            await put.wait()
        else:
            looking.set()
            await look.wait()

    world.store.before.append(hold)
    told = asyncio.ensure_future(committed(broker))
    await looking.wait()
    acked = asyncio.ensure_future(commit(broker, 9))
    await pass_time(0.1)
    look.set()
    assert await told == (0, 5)
    assert not acked.done()
    put.set()
    assert await acked == 0
    assert await committed(broker) == (0, 9)


@simulated
async def test_a_commit_is_refused_only_once_the_assignment_that_forbids_it_is_durable(
    world: Cluster,
):
    """Seed 18 of groups: the partition was given to another member, and that was not durable."""
    _, a, b = await two_members(world)
    await rebalance((a, assignment(0, topic="t")), (b, assignment()))
    await joined_again(a, b)
    put = asyncio.Event()

    async def hold(operation: str, key: str) -> None:
        if operation == "create":
            await put.wait()

    world.store.before.append(hold)
    given = {a.member_id: assignment(), b.member_id: assignment(0, topic="t")}
    synced = asyncio.gather(a.sync(given), b.sync(given))
    await pass_time(0.1)
    late = asyncio.ensure_future(a.commit(7))
    await pass_time(0.1)
    assert not late.done()
    put.set()
    assert await late == NOT_OWNED
    await synced


async def joined_again(leader: Member, other: Member) -> None:
    joining = asyncio.ensure_future(leader.join())
    await pass_time(0.01)
    await asyncio.gather(joining, other.join())


@simulated
async def test_a_stale_coordinator_gives_no_partitions(world: Cluster):
    """A newer one may have given them to another member."""
    stale, a, b = await two_members(world)
    await rebalance((a, assignment(0, topic="t")))
    b.broker = await world.broker(2)
    left = LeaveGroupRequest(
        group_id=GROUP_OF_SEED, members=[MemberIdentity(member_id=a.member_id)]
    )
    context = RequestContext(api_version=5)
    assert (await answer(b.broker, left, context)).error_code == 0
    await rebalance((b, assignment(0, topic="t")))
    request = SyncGroupRequest(
        group_id=GROUP_OF_SEED, generation_id=a.generation, member_id=a.member_id
    )
    told = await ask(stale, request)
    assert told.error_code == ErrorCode.NOT_COORDINATOR
    assert not told.assignment


@simulated
async def test_a_stale_coordinator_does_not_call_a_later_transaction_committed(world: Cluster):
    """Before KIP-890 the epoch stays: an end that was done and one to be done look alike."""
    stale = await world.broker()
    await topic(stale)
    producer = TransactionalProducer(stale, versions=BEFORE)
    assert await producer.init() is ErrorCode.NONE
    await one_record(producer)
    assert await producer.end(committed=True) is ErrorCode.NONE

    producer.broker = await world.broker(2)
    await one_record(producer)
    producer.broker = stale
    assert await producer.end(committed=True) is ErrorCode.NOT_COORDINATOR


async def one_record(producer: TransactionalProducer) -> None:
    assert await producer.add(0) is ErrorCode.NONE
    assert (await producer.send(0, b"value")).error_code == 0


@VERSIONS
@simulated
async def test_offsets_that_come_after_the_end_of_their_transaction_are_not_taken(
    world: Cluster, versions: dict[str, int]
):
    """Their commit waited for its transaction to be durable, and that was aborted meanwhile."""
    broker = await world.broker(lanes=3)
    await topic(broker)
    own = broker.transactions_of("billing").lane
    assert broker.groups_of("bills").lane is not own
    producer = TransactionalProducer(broker, versions=versions)
    assert await producer.init() is ErrorCode.NONE
    if versions is BEFORE:
        assert await producer.add(0) is ErrorCode.NONE
    put = asyncio.Event()

    async def hold(operation: str, key: str) -> None:
        if operation == "create" and key.startswith(entry_prefix(own.lane)):
            await put.wait()

    world.store.before.append(hold)
    own.add(ProducersExpired(0))  # what is decided from here on shares one object
    await pass_time(0.1)
    if versions is BEFORE:
        adding = asyncio.ensure_future(producer.add_group())
        await pass_time(0.1)
    late = asyncio.ensure_future(producer.commit_offset(0, 5))
    await pass_time(0.1)
    successor = TransactionalProducer(broker, versions=versions)
    taking = asyncio.ensure_future(successor.init())
    await pass_time(0.1)
    put.set()
    assert await taking is ErrorCode.CONCURRENT_TRANSACTIONS
    assert await late is not ErrorCode.NONE
    if versions is BEFORE:
        await adding
    assert await successor.init() is ErrorCode.NONE
    assert await committed_offset(broker, 0) == -1
