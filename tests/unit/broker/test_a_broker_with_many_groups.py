"""A broker with very many groups and transactional ids: other clients have their turn meanwhile.

What is counted is work between two turns of the loop, never time.
"""

import asyncio
import inspect
import itertools

from tests.support.async_tests import simulated
from tests.support.brokers import Cluster, pass_time, simulate, topic
from tests.unit.broker.maintained import maintained
from tests.unit.broker.turns import Turns, the_lane

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import Dispatch, answer
from holdfast.broker.handlers.transactions.list_transactions import SLICE_TRANSACTIONS
from holdfast.broker.metrics import BrokerCollector
from holdfast.cluster.facts import TopicDeleted
from holdfast.groups.commits import RequestedCommit
from holdfast.groups.committers import Committer
from holdfast.groups.coordinator import SLICE_GROUPS
from holdfast.groups.facts import OffsetsRemoved
from holdfast.identifiers import PartitionId
from holdfast.lane.recovery import read_head
from holdfast.log.data_lane import DataLane
from holdfast.log.state import LogStateKind
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.connection import Request
from holdfast.protocol.encoder import SLICE_ELEMENTS
from holdfast.protocol.message import Message
from holdfast.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from holdfast.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from holdfast.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.server.peer import Peer
from holdfast.store.counting import CountingStore
from holdfast.transactions.facts import ProducerInitialised

GROUPS = 20_000
PARTITIONS = 500


async def commit_in_many_groups(broker: Broker, *topics: str) -> None:
    """Each group has an offset of one partition of each topic."""
    lane = the_lane(broker)
    groups = broker.groups[lane.lane]
    for i in range(GROUPS):
        partition = i % PARTITIONS
        asked = [
            RequestedCommit(
                (name, partition), PartitionId(broker.state.names[name], partition), i, -1, None
            )
            for name in topics
        ]
        groups.coordinator.commit(f"g{i}", Committer("", None, -1), asked, groups.now())
    await lane.flush()


async def commit(broker: Broker, group_id: str) -> ErrorCode:
    wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[OffsetCommitRequestTopic(name="kept", partitions=[wanted])],
    )
    response = await answer(broker, request, RequestContext(api_version=8))
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def removals_by_entry(world: Cluster, lane: DataLane, first: int) -> list[int]:
    """How many groups lost offsets by each entry of a lane, from a number on."""
    kind, found = LogStateKind(), list[int]()
    for number in range(first, lane.cursor.next_number):
        head = await read_head(world.store, world.environment(), lane.lane, number)
        assert head is not None
        facts = kind.decode_facts(head.facts) if head.facts else ()
        found.append(sum(isinstance(fact, OffsetsRemoved) for fact in facts))
    return found


async def takes_a_moment(operation: str, key: str) -> None:
    """A hook of the store."""
    del key
    if operation == "create":
        await pass_time(0.1)


def test_a_deleted_topic_leaves_many_groups_in_slices_and_other_clients_are_answered_meanwhile():
    async def test(world: Cluster) -> None:
        broker, maintenance = await maintained(world)
        gone = await topic(broker, "gone", PARTITIONS)
        await topic(broker, "kept", PARTITIONS)
        await commit_in_many_groups(broker, "gone", "kept")
        lane = the_lane(broker)
        first = lane.cursor.next_number
        world.store.before.append(takes_a_moment)
        broker.control.add(TopicDeleted(gone))
        await broker.flush_control()

        def left() -> int:
            groups = lane.state.groups.groups.values()
            return sum(len(group.partitions_of({gone})) for group in groups)

        seen = [left()]
        while seen[-1]:
            assert await commit(broker, "another") is ErrorCode.NONE
            seen.append(left())
        steps = [before - after for before, after in itertools.pairwise(seen)]
        assert sum(steps) == GROUPS
        # A commit is in one entry, or has to wait for the one that is under way.
        assert max(steps) <= 2 * SLICE_GROUPS
        await lane.flush()
        removed = await removals_by_entry(world, lane, first)
        assert sum(removed) == GROUPS
        assert max(removed) <= SLICE_GROUPS
        await pass_time(30)
        assert broker.state.deleted == {}
        offsets = [len(group.offsets) for group in lane.state.groups.groups.values()]
        assert offsets == [1] * (GROUPS + 1)
        await maintenance.stop()

    simulate(test)


async def ask(broker: Broker, request: Message, version: int) -> tuple[bytes, int]:
    """A response as bytes, and how often others had their turn until it was there."""
    body = memoryview(b"".join(request.encode(version)))
    key = ApiKey(request.API_KEY)
    frame = Request(key, version, 1, None, body, len(body), request.is_flexible(version))
    reply = Dispatch(broker).dispatch(frame, Peer(host="/127.0.0.1", port=0, listener="test"))
    assert inspect.isawaitable(reply)
    turns = Turns(reply)
    return b"".join(await turns), turns.count


@simulated
async def test_many_groups_are_listed_and_encoded_in_slices(world: Cluster):
    broker = await world.broker()
    await topic(broker, "kept", PARTITIONS)
    await commit_in_many_groups(broker, "kept")
    found, turns = await ask(broker, ListGroupsRequest(), 5)
    assert turns >= GROUPS // SLICE_GROUPS + GROUPS // SLICE_ELEMENTS
    response = ListGroupsResponse.decode(found, 5, exact=True)
    assert {group.group_id for group in response.groups} == {f"g{i}" for i in range(GROUPS)}
    assert found == b"".join(response.encode(5))


@simulated
async def test_many_groups_are_counted_in_slices(world: Cluster):
    broker = await world.broker()
    await topic(broker, "kept", PARTITIONS)
    await commit_in_many_groups(broker, "kept")
    collector = BrokerCollector(broker, CountingStore(broker.store))
    turns = Turns(collector.count_groups())
    await turns
    assert turns.count >= GROUPS // SLICE_GROUPS
    (groups,) = (each for each in collector.collect() if each.name == "holdfast_groups")
    assert [sample.value for sample in groups.samples] == [GROUPS]


@simulated
async def test_many_transactional_ids_are_listed_and_encoded_in_slices(world: Cluster):
    broker = await world.broker()
    lane = the_lane(broker)
    for i in range(GROUPS):
        lane.add(
            ProducerInitialised(
                transactional_id=f"t{i}",
                producer_id=i,
                producer_epoch=0,
                timeout_ms=60_000,
                at_ms=0,
            )
        )
    await lane.flush()
    found, turns = await ask(broker, ListTransactionsRequest(), 2)
    assert turns >= GROUPS // SLICE_TRANSACTIONS + GROUPS // SLICE_ELEMENTS
    response = ListTransactionsResponse.decode(found, 2, exact=True)
    assert len(response.transaction_states) == GROUPS
    assert found == b"".join(response.encode(2))


@simulated
async def test_lists_that_are_asked_for_while_one_is_made_share_the_next_one(world: Cluster):
    """Each request had a list of its own: sixteen of 100,000 groups took 150 MiB."""
    broker = await world.broker()
    await topic(broker, "kept", PARTITIONS)
    await commit_in_many_groups(broker, "kept")
    context = RequestContext(api_version=5)
    asked = [asyncio.ensure_future(answer(broker, ListGroupsRequest(), context)) for _ in range(8)]
    assert await commit(broker, "new") is ErrorCode.NONE
    late = await answer(broker, ListGroupsRequest(types_filter=["Classic"]), context)
    assert "new" in {group.group_id for group in late.groups}
    found = await asyncio.gather(*asked)
    assert all(len(each.groups) >= GROUPS for each in found)
    assert len({id(each.groups) for each in found}) == 2
