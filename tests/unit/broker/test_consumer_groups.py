"""Consumer groups (KIP-848) through the broker: bytes, durability, take-over, administration."""

import asyncio
from typing import Any

import pytest
from tests.unit.broker.administered import (
    GatedStore,
    ask,
    create,
    names,
    on_gated_store,
    started,
)

from holdfast.broker.broker import Broker
from holdfast.protocol.messages.api_versions import ApiVersionsRequest
from holdfast.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from holdfast.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from holdfast.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from holdfast.protocol.messages.delete_groups import DeleteGroupsRequest
from holdfast.protocol.messages.describe_groups import DescribeGroupsRequest
from holdfast.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from holdfast.protocol.messages.list_groups import ListGroupsRequest
from holdfast.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from holdfast.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from holdfast.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)


def beat(member_id: str = "a", epoch: int = 0, **options: Any) -> ConsumerGroupHeartbeatRequest:
    if epoch == 0:
        options.setdefault("subscribed_topic_names", ["orders"])
        options |= {"rebalance_timeout_ms": 60_000, "topic_partitions": []}
    return ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, **options
    )


def commit(member_id: str, epoch: int, *offsets: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[
            OffsetCommitRequestTopic(
                name="orders",
                partitions=[
                    OffsetCommitRequestPartition(partition_index=i, committed_offset=offset)
                    for i, offset in enumerate(offsets)
                ],
            )
        ],
    )


def transactional_commit(
    producer: InitProducerIdResponse, member_id: str, epoch: int, *offsets: int
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="tid",
        group_id="g",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        generation_id=epoch,
        member_id=member_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="orders",
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=i, committed_offset=offset, committed_metadata=None
                    )
                    for i, offset in enumerate(offsets)
                ],
            )
        ],
    )


def numbers(response: Any) -> list[int]:
    return [n for topic in response.assignment.topic_partitions for n in topic.partitions]


async def joined(broker: Broker) -> Any:
    """A topic with two partitions, and a member that has both."""
    await create(broker, "orders", partitions=2)
    response = await ask(broker, beat(), 1)
    assert names([response]) == ["NONE"]
    return response


@pytest.mark.parametrize("version", range(2))
@on_gated_store
async def test_a_member_joins_stays_and_leaves(store: GatedStore, version: int):
    broker = await started(store)
    await create(broker, "orders", partitions=2)
    response = await ask(broker, beat("a" if version else ""), version)
    assert (response.member_epoch, response.heartbeat_interval_ms) == (1, 5_000)
    assert numbers(response) == [0, 1]
    member_id = response.member_id
    assert member_id
    again = await ask(broker, beat(member_id, 1), version)
    assert (again.member_epoch, again.assignment) == (1, None)
    left = await ask(broker, beat(member_id, -1), version)
    assert (left.member_epoch, names([left])) == (-1, ["NONE"])


@on_gated_store
async def test_an_answer_waits_until_what_it_says_is_durable(store: GatedStore):
    broker = await started(store)
    await create(broker, "orders")
    store.gate.clear()
    asked = asyncio.create_task(ask(broker, beat(), 1))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not asked.done()
    store.gate.set()
    assert (await asked).member_epoch == 1


@on_gated_store
async def test_a_broker_that_takes_over_goes_on_with_epochs_and_assignments(store: GatedStore):
    await joined(await started(store))
    broker = await started(store)
    response = await ask(broker, beat("a", 1), 1)
    assert (names([response]), response.member_epoch) == (["NONE"], 1)
    assert (await ask(broker, beat("b"), 1)).member_epoch == 2


@on_gated_store
async def test_added_partitions_reach_a_member_with_its_next_heartbeat(store: GatedStore):
    broker = await started(store)
    await joined(broker)
    topic = CreatePartitionsTopic(name="orders", count=3, assignments=None)
    await ask(broker, CreatePartitionsRequest(topics=[topic], timeout_ms=10_000), 3)
    response = await ask(broker, beat("a", 1), 1)
    assert (response.member_epoch, numbers(response)) == (2, [0, 1, 2])


@on_gated_store
async def test_offsets_are_committed_and_fetched_by_member_epoch(store: GatedStore):
    broker = await started(store)
    response = await joined(broker)
    topic_id = response.assignment.topic_partitions[0].topic_id
    done = await ask(broker, commit("a", 1, 5, 6), 9)
    assert names(done.topics[0].partitions) == ["NONE", "NONE"]
    stale = await ask(broker, commit("a", 0, 7), 9)
    assert names(stale.topics[0].partitions) == ["STALE_MEMBER_EPOCH"]
    await ask(broker, beat("b"), 1)
    owned = [TopicPartitions(topic_id=topic_id, partitions=[0, 1])]
    kept = numbers(await ask(broker, beat("a", 1, topic_partitions=owned), 1))
    owned = [TopicPartitions(topic_id=topic_id, partitions=kept)]
    assert (await ask(broker, beat("a", 1, topic_partitions=owned), 1)).member_epoch == 2
    await ask(broker, beat("b", 2), 1)
    still = await ask(broker, commit("a", 1, 8, 8), 9)
    wanted = ["NONE" if i in kept else "STALE_MEMBER_EPOCH" for i in range(2)]
    assert names(still.topics[0].partitions) == wanted
    late = await ask(broker, commit("a", 2, 8, 8), 9)
    wanted = ["NONE" if i in kept else "STALE_MEMBER_EPOCH" for i in range(2)]
    assert names(late.topics[0].partitions) == wanted
    topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 1])]
    for epoch, error in ((2, "NONE"), (1, "STALE_MEMBER_EPOCH")):
        asked = OffsetFetchRequestGroup(
            group_id="g", member_id="b", member_epoch=epoch, topics=topics
        )
        fetched = await ask(broker, OffsetFetchRequest(groups=[asked]), 9)
        assert names(fetched.groups) == [error]
        if error == "NONE":
            found = [p.committed_offset for p in fetched.groups[0].topics[0].partitions]
            assert found == [8 if i in kept else 5 + i for i in range(2)]


@on_gated_store
async def test_within_a_transaction_what_is_out_of_date_can_be_aborted(store: GatedStore):
    """Producers know no STALE_MEMBER_EPOCH: the Java client would be dead for good."""
    broker = await started(store)
    response = await joined(broker)
    owned = TopicPartitions(
        topic_id=response.assignment.topic_partitions[0].topic_id, partitions=[0, 1]
    )
    await ask(broker, beat("b"), 1)
    kept = numbers(await ask(broker, beat("a", 1, topic_partitions=[owned]), 1))
    owned.partitions = kept
    await ask(broker, beat("a", 1, topic_partitions=[owned]), 1)
    await ask(broker, beat("b", 2), 1)
    init = InitProducerIdRequest(transactional_id="tid", transaction_timeout_ms=60_000)
    producer = await ask(broker, init, 5)
    for epoch, wanted in (
        (0, ["ILLEGAL_GENERATION"] * 2),
        (2, ["NONE" if i in kept else "ILLEGAL_GENERATION" for i in range(2)]),
    ):
        done = await ask(broker, transactional_commit(producer, "a", epoch, 8, 9), 5)
        assert names(done.topics[0].partitions) == wanted


@on_gated_store
async def test_groups_of_both_kinds_are_described_and_listed_as_what_they_are(store: GatedStore):
    broker = await started(store)
    await joined(broker)
    found = await ask(broker, ConsumerGroupDescribeRequest(group_ids=["g", "x"]), 1)
    assert names(found.groups) == ["NONE", "GROUP_ID_NOT_FOUND"]
    group = found.groups[0]
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 1, 1)
    assert group.assignor_name == "uniform"
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.member_type) == ("a", 1, 1)
    for assignment in (member.assignment, member.target_assignment):
        (topic,) = assignment.topic_partitions
        assert (topic.topic_name, topic.partitions) == ("orders", [0, 1])
    (classic,) = (await ask(broker, DescribeGroupsRequest(groups=["g"]), 6)).groups
    assert names([classic]) == ["GROUP_ID_NOT_FOUND"]
    for types, count in ((["consumer"], 1), (["classic"], 0), ([], 1)):
        listed = (await ask(broker, ListGroupsRequest(types_filter=types), 5)).groups
        assert len(listed) == count
    assert (listed[0].group_type, listed[0].group_state) == ("consumer", "Stable")


@on_gated_store
async def test_a_group_in_use_keeps_its_offsets_and_an_empty_one_is_deleted(store: GatedStore):
    broker = await started(store)
    await joined(broker)
    partition = OffsetDeleteRequestPartition(partition_index=0)
    topic = OffsetDeleteRequestTopic(name="orders", partitions=[partition])
    deleted = await ask(broker, OffsetDeleteRequest(group_id="g", topics=[topic]), 0)
    assert names(deleted.topics[0].partitions) == ["GROUP_SUBSCRIBED_TO_TOPIC"]
    request = DeleteGroupsRequest(groups_names=["g"])
    assert names((await ask(broker, request, 2)).results) == ["NON_EMPTY_GROUP"]
    await ask(broker, beat("a", -1), 1)
    assert names((await ask(broker, request, 2)).results) == ["NONE"]


SUPPORTED = [("group.version", 0, 1), ("transaction.version", 0, 2)]


@on_gated_store
async def test_the_features_that_clients_look_for_are_told(store: GatedStore):
    broker = await started(store)
    for version, supported in ((3, []), (4, SUPPORTED)):
        response = await ask(broker, ApiVersionsRequest(), version)
        finalized = [(f.name, f.max_version_level) for f in response.finalized_features]
        assert finalized == [("group.version", 1), ("transaction.version", 2)]
        found = [(f.name, f.min_version, f.max_version) for f in response.supported_features]
        assert found == supported
