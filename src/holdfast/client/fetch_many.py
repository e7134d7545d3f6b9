"""Fetch of many partitions from one broker, in one request without a session.

Owns the request, and how its response is read. What the response says about leaders goes to the
`Cluster`, for its next `leader()`. Must never move an offset, or send the request twice.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from holdfast.client.address import Address
from holdfast.client.cluster import Cluster, PartitionLeader, TopicDescription
from holdfast.client.fetch import NO_SESSION_EPOCH, PartitionFetch, fetched_row
from holdfast.client.refusals import RETRIABLE, RefusedForNow, RequestRefused, error_code, raise_for
from holdfast.errors import RetryError
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

NAMES_UNTIL = 12
"""The last version of Fetch that names topics; later ones use topic ids."""
NO_TOPIC_ID = UUID(int=0)
ABOUT_THE_LEADER = RETRIABLE | {ErrorCode.UNKNOWN_SERVER_ERROR}
"""Errors after which the leader or the topic may have changed, so metadata is fetched again."""


class PartitionToFetch(NamedTuple):
    """A partition to fetch: from which offset, and how many bytes at most."""

    topic: str
    partition: int
    offset: int
    max_bytes: int


class LeaderHint(NamedTuple):
    """The current leader, as named by a broker that is not the leader (KIP-951)."""

    node_id: int
    leader_epoch: int


class Unfetched(NamedTuple):
    """The reason why there are no batches. NONE means only that another replica is to be asked."""

    code: ErrorCode
    leader: LeaderHint | None = None
    preferred_replica: int | None = None


async def fetch_many(
    cluster: Cluster,
    node_id: int,
    wanted: Sequence[PartitionToFetch],
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 16 * 1024 * 1024,
    read_committed: bool = False,
    rack: str | None = None,
) -> dict[TopicPartition, PartitionFetch | Unfetched]:
    """Return one result for each partition; RetryError if the broker as a whole gives none.

    In both cases the cluster drops or replaces leaders that may have changed: ask `leader()`.
    """
    known: dict[str, TopicDescription] = {}
    found: dict[TopicPartition, PartitionFetch | Unfetched] = {}
    for topic in dict.fromkeys(row.topic for row in wanted):
        try:
            known[topic] = await cluster.topic(topic)
        except (RefusedForNow, RequestRefused) as refusal:
            gone = [row for row in wanted if row.topic == topic]
            found |= {TopicPartition(topic, row.partition): Unfetched(refusal.code) for row in gone}
    asked = [row for row in wanted if row.topic in known]
    if not asked:
        return found
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        session_epoch=NO_SESSION_EPOCH,
        topics=_topics(asked, known),
        rack_id=rack or "",
    )
    try:
        version, response = await _ask(cluster, node_id, request, known)
    except RetryError:
        for topic in known:
            cluster.learn_leader(topic, 0, None)
        raise
    cluster.learn({row.node_id: Address(row.host, row.port) for row in response.node_endpoints})
    by_id = {topic.topic_id: topic.name for topic in known.values()}
    offsets = {TopicPartition(row.topic, row.partition): row.offset for row in asked}
    for topic in response.responses:
        name = topic.topic if version <= NAMES_UNTIL else by_id.get(topic.topic_id, "")
        for row in topic.partitions:
            where = TopicPartition(name, row.partition_index)
            if where in offsets:
                found[where] = read_row(row, offsets[where])
    for where in offsets:
        answer = found.setdefault(where, Unfetched(ErrorCode.UNKNOWN_SERVER_ERROR))
        if isinstance(answer, Unfetched):
            _tell(cluster, where, answer, known[where.topic])
    return found


async def _ask(
    cluster: Cluster, node_id: int, request: FetchRequest, known: Mapping[str, TopicDescription]
) -> tuple[int, FetchResponse]:
    connection = await cluster.broker(node_id)
    version = connection.version_for(FetchRequest)
    if any(topic.topic_id == NO_TOPIC_ID for topic in known.values()):
        version = min(version, NAMES_UNTIL)
    timeout_ms = cluster.request_timeout_ms + request.max_wait_ms
    response = await connection.request(
        request, FetchResponse, version=version, timeout_ms=timeout_ms
    )
    raise_for(response.error_code, f"fetch from broker {node_id}")
    return version, response


def read_row(row: PartitionData, offset: int) -> PartitionFetch | Unfetched:
    """Return the result of one partition from its row in the response."""
    leader, code = row.current_leader, error_code(row.error_code)
    hint = None
    if leader is not None and leader.leader_id >= 0:
        hint = LeaderHint(leader.leader_id, leader.leader_epoch)
    preferred = row.preferred_read_replica if row.preferred_read_replica >= 0 else None
    if code != ErrorCode.NONE or preferred is not None:
        return Unfetched(code, hint, preferred)
    return fetched_row(row, offset)


def _topics(
    wanted: Sequence[PartitionToFetch], known: Mapping[str, TopicDescription]
) -> list[FetchTopic]:
    by_topic: dict[str, list[FetchPartition]] = {}
    for row in wanted:
        leader = known[row.topic].leaders.get(row.partition)
        part = FetchPartition(
            partition=row.partition,
            current_leader_epoch=leader.leader_epoch if leader is not None else -1,
            fetch_offset=row.offset,
            partition_max_bytes=row.max_bytes,
        )
        by_topic.setdefault(row.topic, []).append(part)
    return [
        FetchTopic(topic=name, topic_id=known[name].topic_id, partitions=parts)
        for name, parts in by_topic.items()
    ]


def _tell(
    cluster: Cluster, where: TopicPartition, answer: Unfetched, known: TopicDescription
) -> None:
    """Pass on to the cluster what the result says about the leader."""
    if answer.code in ABOUT_THE_LEADER:
        hint = answer.leader
        leader = PartitionLeader(*hint, known.topic_id) if hint is not None else None
        cluster.learn_leader(where.topic, where.partition, leader)
