"""OffsetFetch: the committed offsets of groups.

Offsets are reported only when they are durable, and only under a proved claim. Otherwise a consumer
could be sent back behind an offset that another coordinator has already reported. Without the wait
before version 7, a client would read again the records that, for example, its own transaction is
just committing.
"""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from holdfast.broker.api import Api, ToCoordinator
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.groups.lane_groups import LaneGroups
from holdfast.broker.lanes.leadership import coordinator_error, coordinator_problem
from holdfast.groups.state import Group
from holdfast.identifiers import PartitionId
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)


def _only_group(request: OffsetFetchRequest) -> str | None:
    groups = [each.group_id for each in request.groups] or [request.group_id]
    return groups[0] if len(groups) == 1 else None


def _error_codes(response: OffsetFetchResponse) -> list[int]:
    return [response.error_code, *(group.error_code for group in response.groups)]


API = Api(
    key=ApiKey.OFFSET_FETCH,
    versions=range(1, 11),
    deviations=(
        "Only the proved owner answers, and only with durable offsets.",
        "Before version 7 clients cannot ask for stable offsets (KIP-447), so the request waits"
        " some seconds for open transactions that would change them. Kafka reports the old"
        " offsets.",
    ),
    forward_to=ToCoordinator(group_id=_only_group, error_codes=_error_codes),
)

GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10
REQUIRE_STABLE_SINCE = 7
PENDING_WAIT_S = 5.0
NO_OFFSET = -1


class _Wanted(NamedTuple):
    """A partition that is asked for. `partition` is None if there is no such partition."""

    name: str
    topic_id: UUID
    number: int
    partition: PartitionId | None


async def handle(
    broker: Broker, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse:
    version = context.api_version
    if version >= GROUPS_SINCE:
        return OffsetFetchResponse(
            groups=[
                await _group(broker, asked, version, require_stable=request.require_stable)
                for asked in request.groups
            ]
        )
    topics = (
        [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
        if request.topics is not None
        else None
    )
    asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    found = await _group(broker, asked, version, require_stable=request.require_stable)
    return OffsetFetchResponse(
        error_code=found.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=part.partition_index,
                        committed_offset=part.committed_offset,
                        committed_leader_epoch=part.committed_leader_epoch,
                        metadata=part.metadata,
                        error_code=part.error_code,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in found.topics
        ],
    )


async def _group(
    broker: Broker, asked: OffsetFetchRequestGroup, version: int, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    groups = broker.groups_of(asked.group_id)
    if isinstance(groups, ErrorCode):
        return _refused(asked, groups)
    problem = groups.problem() or groups.coordinator.offset_fetch_problem(
        asked.group_id, asked.member_id, asked.member_epoch
    )
    if problem is not None:
        return _refused(asked, await coordinator_error(groups.lane, problem))
    if version < REQUIRE_STABLE_SINCE:
        asked_for = _asked_for(broker, groups, asked, version)
        partitions = [found.partition for found in asked_for if found.partition is not None]
        await groups.wait_while_pending(asked.group_id, partitions, PENDING_WAIT_S)
    # Read first, then wait: a decision made during the wait may not be durable when this leaves.
    found = _found(broker, groups, asked, version, require_stable=require_stable)
    problem = await groups.settled(asked.group_id) or await coordinator_problem(groups.lane)
    return found if problem is None else _refused(asked, problem)


def _found(
    broker: Broker,
    groups: LaneGroups,
    asked: OffsetFetchRequestGroup,
    version: int,
    *,
    require_stable: bool,
) -> OffsetFetchResponseGroup:
    group = groups.coordinator.state.groups.get(asked.group_id)
    wanted = _asked_for(broker, groups, asked, version)
    by_topic: dict[tuple[str, UUID], list[OffsetFetchResponsePartitions]] = {}
    for item in wanted:
        answer = _partition(group, item, version, require_stable=require_stable)
        by_topic.setdefault((item.name, item.topic_id), []).append(answer)
    return OffsetFetchResponseGroup(
        group_id=asked.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name="" if version >= TOPIC_IDS_SINCE else name,
                topic_id=topic_id,
                partitions=partitions,
            )
            for (name, topic_id), partitions in by_topic.items()
        ],
    )


def _asked_for(
    broker: Broker, groups: LaneGroups, asked: OffsetFetchRequestGroup, version: int
) -> Sequence[_Wanted]:
    if asked.topics is None:
        return _all_of(broker, groups.coordinator.state.groups.get(asked.group_id))
    return [wanted for topic in asked.topics for wanted in _named(broker, topic, version)]


def _refused(asked: OffsetFetchRequestGroup, problem: ErrorCode) -> OffsetFetchResponseGroup:
    """Return the error of the group, and of each partition: version 1 has no other place for it."""
    return OffsetFetchResponseGroup(
        group_id=asked.group_id,
        error_code=problem,
        topics=[
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[_nothing(index, problem) for index in topic.partition_indexes],
            )
            for topic in asked.topics or ()
        ],
    )


def _nothing(index: int, error: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error
    )


def _named(broker: Broker, topic: OffsetFetchRequestTopics, version: int) -> list[_Wanted]:
    by_id = version >= TOPIC_IDS_SINCE
    known = broker.state.usable(topic.topic_id) if by_id else broker.state.topic_named(topic.name)
    return [
        _Wanted(
            topic.name,
            topic.topic_id,
            index,
            PartitionId(known.topic_id, index) if known is not None else None,
        )
        for index in topic.partition_indexes
    ]


def _all_of(broker: Broker, group: Group | None) -> Sequence[_Wanted]:
    """Return every partition that the group has committed, except those of deleted topics."""
    found: list[_Wanted] = []
    for partition in group.offsets if group is not None else ():
        topic = broker.state.usable(partition.topic_id)
        if topic is not None:
            found.append(_Wanted(topic.name, topic.topic_id, partition.partition, partition))
    return found


def _partition(
    group: Group | None, wanted: _Wanted, version: int, *, require_stable: bool
) -> OffsetFetchResponsePartitions:
    if wanted.partition is None:
        by_id = version >= TOPIC_IDS_SINCE
        return _nothing(wanted.number, ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.NONE)
    if group is None:
        return _nothing(wanted.number)
    if require_stable and group.is_pending(wanted.partition):
        return _nothing(wanted.number, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = group.offsets.get(wanted.partition)
    if committed is None:
        return _nothing(wanted.number)
    return OffsetFetchResponsePartitions(
        partition_index=wanted.number,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )
