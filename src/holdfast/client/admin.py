"""Topics and offsets: create, delete, describe, list.

Owns the requests and the reading of their answers. What may pass is retried; a retried create that
finds its own topic (or a delete that finds it gone) is a success.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.client.cluster import Cluster, PartitionLeader, TopicDescription, described
from holdfast.client.connection import Connection
from holdfast.client.refusals import BrokerUnavailable, raise_for
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from holdfast.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from holdfast.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
NO_REPLICA = -1
BY_NAME_SINCE = 6
"""The version of DeleteTopics that has an array of states in place of an array of names."""


class ListedOffset(NamedTuple):
    """What ListOffsets says of one partition; an offset of -1: no record is that new."""

    offset: int
    timestamp: int
    leader_epoch: int


class NewTopic(NamedTuple):
    """A topic to create; -1 leaves a number to the broker."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}


async def create_topics(cluster: Cluster, topics: Sequence[NewTopic]) -> None:
    """Create all of them; Refused names the first that cannot be, and why."""
    asked_before = False
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                configs=[
                    CreatableTopicConfig(name=name, value=value)
                    for name, value in topic.configs.items()
                ],
            )
            for topic in topics
        ],
        timeout_ms=cluster.request_timeout_ms,
    )

    async def attempt() -> None:
        nonlocal asked_before
        connection = await cluster.controller()
        again, asked_before = asked_before, True
        response = await connection.request(request, CreateTopicsResponse)
        for row in response.topics:
            if not (again and row.error_code == ErrorCode.TOPIC_ALREADY_EXISTS):
                raise_for(row.error_code, f"create topic {row.name!r}", row.error_message)

    await cluster.patiently(attempt, f"create {len(topics)} topics")


async def delete_topics(cluster: Cluster, names: Sequence[str]) -> None:
    """Delete all of them; Refused names the first that cannot be, and why."""
    asked_before = False

    async def attempt() -> None:
        nonlocal asked_before
        connection = await cluster.controller()
        again, asked_before = asked_before, True
        version = connection.version_for(DeleteTopicsRequest)
        request = DeleteTopicsRequest(timeout_ms=cluster.request_timeout_ms)
        if version >= BY_NAME_SINCE:
            request.topics = [DeleteTopicState(name=name) for name in names]
        else:
            request.topic_names = list(names)
        response = await connection.request(request, DeleteTopicsResponse, version=version)
        for row in response.responses:
            if not (again and row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise_for(row.error_code, f"delete topic {row.name!r}", row.error_message)

    await cluster.patiently(attempt, f"delete {len(names)} topics")


async def describe_topics(cluster: Cluster) -> list[TopicDescription]:
    """Every topic of the cluster, by name."""

    async def attempt() -> list[TopicDescription]:
        response = await cluster.refresh(None)
        return sorted(described(row) for row in response.topics if not row.error_code)

    return await cluster.patiently(attempt, "describe all topics")


async def describe_topic(cluster: Cluster, name: str) -> TopicDescription:
    """One topic, once it is there and each of its partitions has a leader."""

    async def attempt() -> TopicDescription:
        topic = await cluster.describe(name)
        for partition in topic.leaders:
            await cluster.leader(name, partition)
        return topic

    return await cluster.patiently(attempt, f"describe topic {name!r}", topic=name)


async def list_offset(
    cluster: Cluster,
    topic: str,
    partition: int,
    *,
    at: int = LATEST,
    read_committed: bool = False,
    deadline_ms: int | None = None,
) -> ListedOffset:
    """The offset at a timestamp, or LATEST, EARLIEST, MAX_TIMESTAMP, as the leader has it."""

    async def ask(connection: Connection, leader: PartitionLeader) -> ListedOffset:
        wanted = ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=leader.leader_epoch, timestamp=at
        )
        request = ListOffsetsRequest(
            replica_id=NO_REPLICA,
            isolation_level=int(read_committed),
            topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
            timeout_ms=cluster.request_timeout_ms,
        )
        response = await connection.request(request, ListOffsetsResponse)
        for row in (row for found in response.topics for row in found.partitions):
            if row.partition_index == partition:
                raise_for(row.error_code, f"list offsets of {topic}-{partition} at {at}")
                return ListedOffset(row.offset, row.timestamp, row.leader_epoch)
        raise BrokerUnavailable(f"{connection.address} says nothing of {topic}-{partition}")

    return await cluster.ask_leader(topic, partition, ask, deadline_ms=deadline_ms)
