"""Administration of topics and offsets: create, delete, describe and list.

Owns these requests, and how their responses are read. Retries errors that may pass. A retried
create that finds its topic, or a retried delete that finds it gone, is a success.
"""

import difflib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.client.cluster import Cluster, PartitionLeader, TopicDescription, described
from holdfast.client.connection import BrokerConnection
from holdfast.client.refusals import (
    LEAVES_A_WRITE_OPEN,
    BrokerUnavailable,
    RequestRefused,
    error_code,
    raise_for,
)
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
TOPICS_SHOWN_MAX = 20
STATES_SINCE = 6
"""The first version of DeleteTopics with an array of states instead of an array of names."""


Answered = list[tuple[int, str | None]]
Ask = Callable[[BrokerConnection], Awaitable[Answered]]
"""A function that sends one request about one topic, and returns the error codes and messages."""


class ListedOffset(NamedTuple):
    """The ListOffsets result of one partition. Offset -1 means that no record is that new."""

    offset: int
    timestamp: int
    leader_epoch: int


class NewTopic(NamedTuple):
    """A topic to create. Where a number is -1, the broker chooses it."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}


async def create_topics(cluster: Cluster, topics: Sequence[NewTopic]) -> None:
    """Create topics one after the other; Refused names the first one that fails, and why."""
    for topic in topics:
        await _once(
            cluster,
            f"create topic {topic.name!r}",
            _create(topic, timeout_ms=cluster.request_timeout_ms),
            already=ErrorCode.TOPIC_ALREADY_EXISTS,
        )


async def delete_topics(cluster: Cluster, names: Sequence[str]) -> None:
    """Delete topics one after the other; Refused names the first one that fails, and why."""
    for name in names:
        await _once(
            cluster,
            f"delete topic {name!r}",
            _delete(name, timeout_ms=cluster.request_timeout_ms),
            already=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )


def _create(topic: NewTopic, *, timeout_ms: int) -> Ask:
    configs = [
        CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
    ]
    wanted = CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=configs,
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=timeout_ms)

    async def ask(connection: BrokerConnection) -> Answered:
        response = await connection.request(request, CreateTopicsResponse)
        return [(row.error_code, row.error_message) for row in response.topics]

    return ask


def _delete(name: str, *, timeout_ms: int) -> Ask:
    async def ask(connection: BrokerConnection) -> Answered:
        version = connection.version_for(DeleteTopicsRequest)
        request = DeleteTopicsRequest(timeout_ms=timeout_ms)
        if version >= STATES_SINCE:
            request.topics = [DeleteTopicState(name=name)]
        else:
            request.topic_names = [name]
        response = await connection.request(request, DeleteTopicsResponse, version=version)
        return [(row.error_code, row.error_message) for row in response.responses]

    return ask


async def _once(cluster: Cluster, what: str, ask: Ask, *, already: ErrorCode) -> None:
    """Retry until it is done. `already` is a success if an earlier try may have done it."""
    may_be_done = False

    async def attempt() -> None:
        nonlocal may_be_done
        connection = await cluster.controller()
        before, may_be_done = may_be_done, True
        answered = await ask(connection)
        if not answered:
            raise BrokerUnavailable(f"{connection.address} says nothing of: {what}")
        code, detail = answered[0]
        may_be_done = before or error_code(code) in LEAVES_A_WRITE_OPEN
        if code != already:
            raise_for(code, what, detail)
        elif not before:
            raise RequestRefused(
                code, f"{what}: {already.name}" + (f": {detail}" if detail else "")
            )

    await cluster.patiently(attempt, what)


async def describe_topics(cluster: Cluster) -> list[TopicDescription]:
    """Return every topic of the cluster, sorted by name."""

    async def attempt() -> list[TopicDescription]:
        response = await cluster.refresh(None)
        return sorted(described(row) for row in response.topics if not row.error_code)

    return await cluster.patiently(attempt, "describe all topics")


def no_topic(name: str, topics: Iterable[str]) -> str:
    """Return the error message for a missing topic, with a similar name if there is one."""
    names = sorted(topics)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    shown = ", ".join(names[:TOPICS_SHOWN_MAX]) or "none"
    return f"the source has no topic {name!r}: {hint}topics that are there: {shown}"


async def describe_topic(cluster: Cluster, name: str) -> TopicDescription:
    """Wait until the topic exists and each partition has a leader, then return the topic."""

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
    """Ask the leader for the offset at a timestamp, or at LATEST, EARLIEST or MAX_TIMESTAMP."""

    async def ask(connection: BrokerConnection, leader: PartitionLeader) -> ListedOffset:
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
