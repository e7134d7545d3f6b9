"""OffsetCommit: commit offsets of a group.

A member of the new protocol (KIP-848) must use version 9 or later, as in Kafka.
"""

from collections.abc import Awaitable, Sequence
from typing import Protocol
from uuid import UUID

from holdfast.broker.api import Api, ToCoordinator
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.groups.lane_groups import LaneGroups
from holdfast.broker.lanes.leadership import coordinator_error
from holdfast.cluster.state import Topic
from holdfast.groups.commits import NOT_OWNED, CommitDecision, RequestedCommit
from holdfast.groups.committers import Committer
from holdfast.identifiers import PartitionId
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


def _group(request: OffsetCommitRequest) -> str:
    return request.group_id


def _error_codes(response: OffsetCommitResponse) -> list[int]:
    return [part.error_code for topic in response.topics for part in topic.partitions]


API = Api(
    key=ApiKey.OFFSET_COMMIT,
    versions=range(2, 11),
    deviations=(
        "A commit for a partition that is now assigned to another member of the group is"
        " refused with STALE_MEMBER_EPOCH, for that partition only, whatever the generation of"
        " the member. Kafka accepts it. So a late commit cannot move the offset of a partition"
        " that its consumer has lost.",
    ),
    forward_to=ToCoordinator(group_id=_group, error_codes=_error_codes),
)

TOPIC_IDS_SINCE = 10


def handle(
    broker: Broker, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    groups = broker.groups_of(request.group_id)
    by_id = context.api_version >= TOPIC_IDS_SINCE
    if isinstance(groups, ErrorCode):
        return _response(request, [], groups, by_id=by_id)
    judged = groups.problem() or groups.coordinator.commit(
        request.group_id,
        Committer(
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            version=context.api_version,
        ),
        [item for topic in request.topics for item in _asked(broker, topic, by_id=by_id)],
        groups.now(),
        retention_ms=request.retention_time_ms,
    )
    if isinstance(judged, ErrorCode) or judged.refused_as_not_owned:
        return _refused(groups, request, judged, by_id=by_id)
    errors = judged.errors
    return groups.answered(
        request.group_id, lambda problem: _response(request, errors, problem, by_id=by_id)
    )


async def _refused(
    groups: LaneGroups,
    request: OffsetCommitRequest,
    judged: ErrorCode | CommitDecision,
    *,
    by_id: bool,
) -> OffsetCommitResponse:
    """Return a response with refusals. Only the newest coordinator may refuse."""
    if isinstance(judged, ErrorCode):
        problem = await coordinator_error(groups.lane, judged)
        return _response(request, [], problem, by_id=by_id)
    problem = await groups.vouched(request.group_id, NOT_OWNED)
    return _response(request, judged.errors, problem, by_id=by_id)


def _asked(
    broker: Broker, topic: OffsetCommitRequestTopic, *, by_id: bool
) -> list[RequestedCommit]:
    state = broker.state
    known = state.usable(topic.topic_id) if by_id else state.topic_named(topic.name)
    return asked_offsets(known, known.name if known is not None else topic.name, topic.partitions)


class OffsetOfPartition(Protocol):
    """The fields of one partition in OffsetCommit or TxnOffsetCommit."""

    @property
    def partition_index(self) -> int: ...
    @property
    def committed_offset(self) -> int: ...
    @property
    def committed_leader_epoch(self) -> int: ...
    @property
    def committed_metadata(self) -> str | None: ...


def asked_offsets(
    known: Topic | None, name: str, partitions: Sequence[OffsetOfPartition]
) -> list[RequestedCommit]:
    """Return a topic's offsets for the coordinator. `known` is None if the topic cannot be used."""
    return [
        RequestedCommit(
            TopicPartition(name, part.partition_index),
            PartitionId(known.topic_id, part.partition_index)
            if known is not None and known.lane_of(part.partition_index) is not None
            else None,
            part.committed_offset,
            part.committed_leader_epoch,
            part.committed_metadata,
        )
        for part in partitions
    ]


def _response(
    request: OffsetCommitRequest,
    errors: list[ErrorCode],
    problem: ErrorCode | None,
    *,
    by_id: bool,
) -> OffsetCommitResponse:
    each = iter(errors)
    topics: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        partitions: list[OffsetCommitResponsePartition] = []
        for part in topic.partitions:
            error = problem if problem is not None else next(each)
            if by_id and error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                error = ErrorCode.UNKNOWN_TOPIC_ID
            partitions.append(
                OffsetCommitResponsePartition(
                    partition_index=part.partition_index, error_code=error
                )
            )
        name = "" if by_id else topic.name
        topic_id = topic.topic_id if by_id else UUID(int=0)
        topics.append(
            OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=partitions)
        )
    return OffsetCommitResponse(topics=topics)
