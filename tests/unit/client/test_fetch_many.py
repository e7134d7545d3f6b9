"""One fetch over many partitions: the answer for each, and what the cluster learns."""

import asyncio
from uuid import UUID

import pytest
from tests.support.async_tests import in_event_loop
from tests.unit.client.batches import data
from tests.unit.client.scripted_broker import TOPIC, ScriptedBroker

from holdfast.client.address import Address
from holdfast.client.cluster import Cluster
from holdfast.client.fetch import PartitionFetch, PartitionToFetch, records_of
from holdfast.client.fetch_many import LeaderHint, Unfetched, fetch_many
from holdfast.environment import SystemEnvironment
from holdfast.errors import RetryError
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.protocol.message import Message
from holdfast.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchCurrentLeader,
    FetchNodeEndpoint,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from holdfast.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC_ID = UUID(int=77)
NODE = 7
PARTITIONS = 6


class Scripted:
    """A broker that leads all partitions of a topic, and answers a fetch with given rows."""

    def __init__(self, rows: list[PartitionData], *, topic_id: UUID = TOPIC_ID) -> None:
        self.rows = rows
        self.topic_id = topic_id
        self.requests: list[FetchRequest] = []
        self.broker = ScriptedBroker(self._script)

    def _script(self, key: ApiKey, request: Message) -> Message | None:
        if key is ApiKey.METADATA:
            return self._metadata()
        if not isinstance(request, FetchRequest):
            return None
        self.requests.append(request)
        version = self.broker.versions[-1][1]
        answered = FetchableTopicResponse(
            topic=TOPIC if version <= 12 else "",
            topic_id=self.topic_id,
            partitions=self.rows,
        )
        endpoint = FetchNodeEndpoint(node_id=9, host="127.0.0.1", port=9)
        return FetchResponse(responses=[answered], node_endpoints=[endpoint])

    def _metadata(self) -> MetadataResponse:
        parts = [
            MetadataResponsePartition(partition_index=n, leader_id=NODE, leader_epoch=3)
            for n in range(PARTITIONS)
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=NODE, host="127.0.0.1", port=self.broker.port)],
            controller_id=NODE,
            topics=[
                MetadataResponseTopic(name=TOPIC, topic_id=self.topic_id, partitions=parts),
                MetadataResponseTopic(name="gone", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ],
        )


Answers = dict[TopicPartition, PartitionFetch | Unfetched]


async def asked(scripted: Scripted, wanted: list[PartitionToFetch]) -> tuple[Cluster, Answers]:
    async with (
        scripted.broker as broker,
        Cluster(broker.bootstrap, environment=SystemEnvironment()) as cluster,
    ):
        return cluster, await fetch_many(cluster, NODE, wanted, rack="here")


def test_each_partition_has_its_own_answer_in_one_request():
    rows = [
        PartitionData(partition_index=0, high_watermark=9, records=[data(4, b"a", b"b")]),
        PartitionData(partition_index=1, error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
        PartitionData(partition_index=2, high_watermark=5, records=[]),
        PartitionData(partition_index=3, preferred_read_replica=9),
    ]
    scripted = Scripted(rows)
    wanted = [PartitionToFetch(TOPIC, n, 5, 1000 + n) for n in range(5)]
    _, answers = asyncio.run(asked(scripted, wanted))
    found = {where.partition: answer for where, answer in answers.items()}
    assert isinstance(found[0], PartitionFetch)
    assert [(r.offset, r.value) for r in records_of(found[0])] == [(5, b"b")]
    assert found[1] == Unfetched(ErrorCode.OFFSET_OUT_OF_RANGE)
    assert isinstance(found[2], PartitionFetch)
    assert found[2].next_offset == 5
    assert found[3] == Unfetched(ErrorCode.NONE, preferred_replica=9)
    assert found[4] == Unfetched(ErrorCode.UNKNOWN_SERVER_ERROR)
    (request,) = scripted.requests
    assert request.rack_id == "here"
    (topic,) = request.topics
    assert topic.topic_id == TOPIC_ID
    asked_for = [(p.partition, p.fetch_offset, p.partition_max_bytes) for p in topic.partitions]
    assert asked_for == [(n, 5, 1000 + n) for n in range(5)]
    assert {p.current_leader_epoch for p in topic.partitions} == {3}


@in_event_loop
async def test_a_leader_that_the_answer_names_is_the_one_that_is_asked_next():
    moved = PartitionData(
        partition_index=0,
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        current_leader=FetchCurrentLeader(leader_id=9, leader_epoch=4),
    )
    cluster, answers = await asked(Scripted([moved]), [PartitionToFetch(TOPIC, 0, 5, 100)])
    hint = LeaderHint(9, 4)
    assert answers == {TopicPartition(TOPIC, 0): Unfetched(ErrorCode.NOT_LEADER_OR_FOLLOWER, hint)}
    leader = await cluster.leader(TOPIC, 0)
    assert (leader.node_id, leader.leader_epoch, leader.topic_id) == (9, 4, TOPIC_ID)
    assert cluster.brokers[9] == Address("127.0.0.1", 9)


@in_event_loop
async def test_without_a_name_in_the_answer_the_leader_is_asked_for_anew():
    moved = PartitionData(partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    scripted = Scripted([moved])
    async with (
        scripted.broker as broker,
        Cluster(broker.bootstrap, environment=SystemEnvironment()) as cluster,
    ):
        await fetch_many(cluster, NODE, [PartitionToFetch(TOPIC, 0, 5, 100)])
        before = broker.times_asked(ApiKey.METADATA)
        await cluster.leader(TOPIC, 1)
        assert broker.times_asked(ApiKey.METADATA) == before + 1
        await cluster.leader(TOPIC, 0)
        assert broker.times_asked(ApiKey.METADATA) == before + 1


def test_a_cluster_without_topic_ids_is_asked_by_name():
    rows = [PartitionData(partition_index=0, records=[data(0, b"a")])]
    scripted = Scripted(rows, topic_id=UUID(int=0))
    _, answers = asyncio.run(asked(scripted, [PartitionToFetch(TOPIC, 0, 0, 100)]))
    assert isinstance(answers[TopicPartition(TOPIC, 0)], PartitionFetch)
    assert (ApiKey.FETCH, 12) in scripted.broker.versions


def test_a_topic_that_is_gone_does_not_hold_up_the_others():
    rows = [PartitionData(partition_index=0, records=[data(0, b"a")])]
    scripted = Scripted(rows)
    wanted = [PartitionToFetch("gone", 3, 0, 100), PartitionToFetch(TOPIC, 0, 0, 100)]
    _, answers = asyncio.run(asked(scripted, wanted))
    gone = Unfetched(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert answers[TopicPartition("gone", 3)] == gone
    assert isinstance(answers[TopicPartition(TOPIC, 0)], PartitionFetch)
    assert [topic.topic_id for topic in scripted.requests[0].topics] == [TOPIC_ID]
    _, answers = asyncio.run(asked(Scripted([]), wanted[:1]))
    assert answers == {TopicPartition("gone", 3): gone}


@in_event_loop
async def test_after_a_broker_that_does_not_answer_the_leaders_are_asked_for_anew():
    scripted = Scripted([])
    async with (
        scripted.broker as broker,
        Cluster(broker.bootstrap, environment=SystemEnvironment()) as cluster,
    ):
        await cluster.leader(TOPIC, 0)
        before = broker.times_asked(ApiKey.METADATA)
        with pytest.raises(RetryError):
            await fetch_many(cluster, 99, [PartitionToFetch(TOPIC, 0, 5, 100)])
        assert (await cluster.leader(TOPIC, 0)).node_id == NODE
        assert broker.times_asked(ApiKey.METADATA) == before + 1
