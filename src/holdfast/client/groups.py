"""Administration of consumer groups: list, describe, read and reset committed offsets.

Owns these requests, and how their responses are read, for groups of both protocols. A request goes
to the group's coordinator, and after a change to the next coordinator, until it is answered.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from holdfast.client.cluster import Cluster
from holdfast.client.connection import BrokerConnection
from holdfast.client.coordinators import ask_coordinator
from holdfast.client.refusals import (
    BrokerUnavailable,
    RequestRefused,
    UnsupportedByBroker,
    error_code,
    raise_for,
)
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition, assigned_partitions
from holdfast.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from holdfast.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from holdfast.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from holdfast.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from holdfast.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

GROUPS_SINCE = 8
STABLE_SINCE = 7
NAMES_UNTIL = 9
"""The last version of OffsetFetch and OffsetCommit that names topics; later ones use topic ids."""
DEAD = "Dead"
CLASSIC = "classic"
CONSUMER = "consumer"


class GroupListing(NamedTuple):
    """One group as ListGroups shows it."""

    group_id: str
    kind: str
    state: str
    protocol_type: str


class GroupMember(NamedTuple):
    """A member of a group, and the partitions it owns."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    owns: list[TopicPartition]


class GroupDescription(NamedTuple):
    """A group and its members."""

    group_id: str
    kind: str
    state: str
    assignor: str
    members: list[GroupMember]
    refused_commits: int
    """Commits of partitions that another member owned. Only Holdfast refuses and counts them."""


class GroupOffset(NamedTuple):
    """A committed offset, and the text that is stored with it."""

    offset: int
    metadata: str


async def list_groups(cluster: Cluster) -> list[GroupListing]:
    """Return every group of every broker, sorted by name."""

    async def attempt() -> list[GroupListing]:
        await cluster.refresh([])
        found: dict[str, GroupListing] = {}
        for node_id in cluster.brokers:
            connection = await cluster.broker(node_id)
            response = await connection.request(ListGroupsRequest(), ListGroupsResponse)
            raise_for(response.error_code, f"list the groups of broker {node_id}")
            for row in response.groups:
                kind = row.group_type.lower() or CLASSIC
                found[row.group_id] = GroupListing(
                    row.group_id, kind, row.group_state, row.protocol_type
                )
        return [found[name] for name in sorted(found)]

    return await cluster.patiently(attempt, "list groups")


async def describe_group(cluster: Cluster, group_id: str) -> GroupDescription | None:
    """Return the group; None if there is none of this name."""

    async def ask(connection: BrokerConnection) -> GroupDescription | None:
        try:
            found = await _describe_consumer(connection, group_id)
        except UnsupportedByBroker:
            found = None
        return found or await _describe_classic(connection, group_id)

    return await ask_coordinator(cluster, group_id, ask)


async def _describe_consumer(
    connection: BrokerConnection, group_id: str
) -> GroupDescription | None:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    response = await connection.request(request, ConsumerGroupDescribeResponse)
    for group in response.groups:
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise_for(group.error_code, f"describe group {group_id!r}", group.error_message)
        return GroupDescription(
            group_id,
            CONSUMER,
            group.group_state,
            group.assignor_name,
            [
                GroupMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    [
                        TopicPartition(topic.topic_name, partition)
                        for topic in member.assignment.topic_partitions
                        for partition in topic.partitions
                    ],
                )
                for member in group.members
            ],
            group.holdfast_refused_commits,
        )
    raise BrokerUnavailable(f"{connection.address} says nothing of group {group_id!r}")


async def _describe_classic(connection: BrokerConnection, group_id: str) -> GroupDescription | None:
    request = DescribeGroupsRequest(groups=[group_id])
    response = await connection.request(request, DescribeGroupsResponse)
    for group in response.groups:
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or group.group_state == DEAD:
            return None
        raise_for(group.error_code, f"describe group {group_id!r}", group.error_message)
        return GroupDescription(
            group_id,
            CLASSIC,
            group.group_state,
            group.protocol_data,
            [
                GroupMember(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    assigned_partitions(bytes(member.member_assignment)) or [],
                )
                for member in group.members
            ],
            group.holdfast_refused_commits,
        )
    raise BrokerUnavailable(f"{connection.address} says nothing of group {group_id!r}")


async def committed_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, int]:
    """Return all committed offsets of the group."""
    found = await committed_positions(cluster, group_id)
    return {where: committed.offset for where, committed in found.items()}


async def committed_positions(
    cluster: Cluster,
    group_id: str,
    partitions: Sequence[TopicPartition] | None = None,
    *,
    stable: bool = False,
) -> dict[TopicPartition, GroupOffset]:
    """Return the group's committed offsets, each with the text that is stored with it.

    With `stable`, wait for the end of any transaction that would change them. Name the partitions
    then: if asked for all, Kafka leaves out those that only an open transaction has.
    """
    by_topic: dict[str, list[int]] | None = None if partitions is None else {}
    if by_topic is not None:
        for where in partitions or ():
            by_topic.setdefault(where.topic, []).append(where.partition)

    async def ask(connection: BrokerConnection) -> dict[TopicPartition, GroupOffset]:
        version = min(connection.version_for(OffsetFetchRequest), NAMES_UNTIL)
        if stable and version < STABLE_SINCE:
            raise UnsupportedByBroker(f"{connection.address} cannot wait for open transactions")
        request = _offset_fetch(group_id, by_topic, version, stable=stable)
        response = await connection.request(request, OffsetFetchResponse, version=version)
        what = f"committed offsets of group {group_id!r}"
        found: dict[TopicPartition, GroupOffset] = {}
        answered = (
            [(response.error_code, response.topics)]
            if version < GROUPS_SINCE
            else [(group.error_code, group.topics) for group in response.groups]
        )
        for code, topics in answered:
            raise_for(code, what)
            for topic in topics:
                for part in topic.partitions:
                    where = TopicPartition(topic.name, part.partition_index)
                    raise_for(part.error_code, f"{what}: {topic.name}-{part.partition_index}")
                    if part.committed_offset >= 0:
                        found[where] = GroupOffset(part.committed_offset, part.metadata or "")
        return found

    return await ask_coordinator(cluster, group_id, ask)


def _offset_fetch(
    group_id: str, by_topic: Mapping[str, list[int]] | None, version: int, *, stable: bool
) -> OffsetFetchRequest:
    if version >= GROUPS_SINCE:
        topics = (
            None
            if by_topic is None
            else [
                OffsetFetchRequestTopics(name=name, topic_id=UUID(int=0), partition_indexes=numbers)
                for name, numbers in by_topic.items()
            ]
        )
        asked = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
        return OffsetFetchRequest(groups=[asked], require_stable=stable)
    rows = (
        None
        if by_topic is None
        else [
            OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
            for name, numbers in by_topic.items()
        ]
    )
    return OffsetFetchRequest(group_id=group_id, topics=rows, require_stable=stable)


async def commit_offsets(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    *,
    deadline_ms: int | None = None,
) -> None:
    """Set committed offsets of a group without members; Refused if it has members."""

    async def ask(connection: BrokerConnection) -> None:
        answers = await send_commit(connection, group_id, offsets)
        for (topic, partition), code in answers.items():
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                raise RequestRefused(code, f"group {group_id!r} has members")
            raise_for(code, f"commit {topic}-{partition} of group {group_id!r}")

    await ask_coordinator(cluster, group_id, ask, deadline_ms=deadline_ms)


async def send_commit(
    connection: BrokerConnection,
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    *,
    epoch: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
) -> dict[TopicPartition, ErrorCode]:
    """Commit offsets, for a member or for a group without members; return what was answered."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for where, offset in offsets.items():
        part = OffsetCommitRequestPartition(
            partition_index=where.partition, committed_offset=offset, committed_metadata=""
        )
        by_topic.setdefault(where.topic, []).append(part)
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[
            OffsetCommitRequestTopic(name=name, topic_id=UUID(int=0), partitions=parts)
            for name, parts in by_topic.items()
        ],
    )
    version = min(connection.version_for(OffsetCommitRequest), NAMES_UNTIL)
    response = await connection.request(request, OffsetCommitResponse, version=version)
    return {
        TopicPartition(topic.name, part.partition_index): error_code(part.error_code)
        for topic in response.topics
        for part in topic.partitions
    }
