"""Fetch of many partitions from one broker, in one request without a session.

Owns how the response is read. What it says about leaders goes to the `Cluster`, for its next
`leader()`. Must never move an offset, or send the request twice.
"""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.client.address import Address
from holdfast.client.cluster import Cluster, PartitionLeader, TopicDescription
from holdfast.client.fetch import (
    NAMES_UNTIL,
    PartitionFetch,
    PartitionToFetch,
    fetch_request,
    fetched_row,
    send_fetch,
)
from holdfast.client.refusals import RETRIABLE, RefusedForNow, RequestRefused, error_code, raise_for
from holdfast.errors import RetryError
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.protocol.messages.fetch import PartitionData

ABOUT_THE_LEADER = RETRIABLE | {ErrorCode.UNKNOWN_SERVER_ERROR}
"""Errors after which the leader or the topic may have changed, so metadata is fetched again."""


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
    request = fetch_request(
        ((row, _leader_of(known[row.topic], row.partition)) for row in asked),
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        read_committed=read_committed,
        rack=rack,
    )
    try:
        connection = await cluster.broker(node_id)
        timeout_ms = cluster.request_timeout_ms + max_wait_ms
        version, response = await send_fetch(connection, request, timeout_ms=timeout_ms)
        raise_for(response.error_code, f"fetch from broker {node_id}")
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


def _leader_of(topic: TopicDescription, partition: int) -> PartitionLeader:
    return topic.leaders.get(partition) or PartitionLeader(-1, -1, topic.topic_id)


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


def _tell(
    cluster: Cluster, where: TopicPartition, answer: Unfetched, known: TopicDescription
) -> None:
    """Pass on to the cluster what the result says about the leader."""
    if answer.code in ABOUT_THE_LEADER:
        hint = answer.leader
        leader = PartitionLeader(*hint, known.topic_id) if hint is not None else None
        cluster.learn_leader(where.topic, where.partition, leader)
