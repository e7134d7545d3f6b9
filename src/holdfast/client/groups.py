"""Consumer groups as an administrator sees them: list, describe, committed offsets, reset.

Owns the requests and the reading of their answers, for groups of both protocols. A question goes
to the group's coordinator, and to whoever coordinates it next, until it is answered.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar
from uuid import UUID

from holdfast.client.cluster import Cluster
from holdfast.client.connection import Connection
from holdfast.client.refusals import BrokerUnavailable, Refused, UnsupportedByBroker, raise_for
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
from holdfast.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
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
    OffsetFetchResponse,
)

T = TypeVar("T")

BATCHED_SINCE = 4
GROUPS_SINCE = 8
NAMES_UNTIL = 9
"""The last versions of OffsetFetch and OffsetCommit in which topics go by name."""
GROUP_KEY = 0
DEAD = "Dead"
CLASSIC = "classic"
CONSUMER = "consumer"


class ListedGroup(NamedTuple):
    """A group, in one line."""

    group_id: str
    kind: str
    state: str
    protocol_type: str


class GroupMember(NamedTuple):
    """Who is in a group, and what it owns."""

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
    """Of partitions that another member owned: only Holdfast refuses and counts them."""


async def list_groups(cluster: Cluster) -> list[ListedGroup]:
    """Every group of every broker, by name."""

    async def attempt() -> list[ListedGroup]:
        await cluster.refresh([])
        found: dict[str, ListedGroup] = {}
        for node_id in cluster.brokers:
            connection = await cluster.broker(node_id)
            response = await connection.request(ListGroupsRequest(), ListGroupsResponse)
            raise_for(response.error_code, f"list the groups of broker {node_id}")
            for row in response.groups:
                kind = row.group_type.lower() or CLASSIC
                found[row.group_id] = ListedGroup(
                    row.group_id, kind, row.group_state, row.protocol_type
                )
        return [found[name] for name in sorted(found)]

    return await cluster.patiently(attempt, "list groups")


async def describe_group(cluster: Cluster, group_id: str) -> GroupDescription | None:
    """One group; None where there is none of this name."""

    async def ask(connection: Connection) -> GroupDescription | None:
        try:
            found = await _describe_consumer(connection, group_id)
        except UnsupportedByBroker:
            found = None
        return found or await _describe_classic(connection, group_id)

    return await _ask_coordinator(cluster, group_id, ask)


async def _describe_consumer(connection: Connection, group_id: str) -> GroupDescription | None:
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


async def _describe_classic(connection: Connection, group_id: str) -> GroupDescription | None:
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
    """All that the group has committed."""

    async def ask(connection: Connection) -> dict[TopicPartition, int]:
        version = min(connection.version_for(OffsetFetchRequest), NAMES_UNTIL)
        if version >= GROUPS_SINCE:
            asked = OffsetFetchRequestGroup(group_id=group_id, topics=None)
            request = OffsetFetchRequest(groups=[asked])
        else:
            request = OffsetFetchRequest(group_id=group_id, topics=None)
        response = await connection.request(request, OffsetFetchResponse, version=version)
        found: dict[TopicPartition, int] = {}
        if version < GROUPS_SINCE:
            raise_for(response.error_code, f"committed offsets of group {group_id!r}")
            for topic in response.topics:
                for part in topic.partitions:
                    found[TopicPartition(topic.name, part.partition_index)] = part.committed_offset
            return found
        for group in response.groups:
            raise_for(group.error_code, f"committed offsets of group {group_id!r}")
            for topic in group.topics:
                for part in topic.partitions:
                    found[TopicPartition(topic.name, part.partition_index)] = part.committed_offset
        return found

    return await _ask_coordinator(cluster, group_id, ask)


async def commit_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """Set committed offsets of a group that nobody is in: Refused where somebody is."""

    async def ask(connection: Connection) -> None:
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for where, offset in offsets.items():
            part = OffsetCommitRequestPartition(
                partition_index=where.partition, committed_offset=offset, committed_metadata=""
            )
            by_topic.setdefault(where.topic, []).append(part)
        request = OffsetCommitRequest(
            group_id=group_id,
            topics=[
                OffsetCommitRequestTopic(name=name, topic_id=UUID(int=0), partitions=parts)
                for name, parts in by_topic.items()
            ],
        )
        version = min(connection.version_for(OffsetCommitRequest), NAMES_UNTIL)
        response = await connection.request(request, OffsetCommitResponse, version=version)
        for topic in response.topics:
            for part in topic.partitions:
                where = f"{topic.name}-{part.partition_index}"
                if part.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                    raise Refused(part.error_code, f"group {group_id!r} has members")
                raise_for(part.error_code, f"commit {where} of group {group_id!r}")

    await _ask_coordinator(cluster, group_id, ask)


async def _ask_coordinator(
    cluster: Cluster, group_id: str, ask: Callable[[Connection], Awaitable[T]]
) -> T:
    async def attempt() -> T:
        return await ask(await _coordinator(cluster, group_id))

    return await cluster.patiently(attempt, f"group {group_id!r}")


async def _coordinator(cluster: Cluster, group_id: str) -> Connection:
    connection = await cluster.any_connection()
    version = connection.version_for(FindCoordinatorRequest)
    if version >= BATCHED_SINCE:
        request = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[group_id])
    else:
        request = FindCoordinatorRequest(key=group_id, key_type=GROUP_KEY)
    response = await connection.request(request, FindCoordinatorResponse, version=version)
    found = response.coordinators[0] if version >= BATCHED_SINCE else response
    raise_for(found.error_code, f"the coordinator of group {group_id!r}", found.error_message)
    await cluster.refresh([])
    return await cluster.broker(found.node_id)
