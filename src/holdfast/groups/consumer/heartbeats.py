"""Heartbeat messages of consumer groups: checking, reading and answering one.

Pure functions over one request. What depends on the group is in `consumer`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.expressions import expression_problem
from holdfast.groups.consumer.assignors import ASSIGNORS
from holdfast.groups.consumer.reconciliation import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Partitions,
    by_topic,
)
from holdfast.groups.facts import ConsumerMember, OwnedPartitions
from holdfast.identifiers import PartitionId
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
)
from holdfast.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponseTopicPartitions as AssignedTopic,
)

CLIENT_GENERATED_MEMBER_ID_SINCE = 1


class HeartbeatRefusal(NamedTuple):
    """The reason why a heartbeat is refused."""

    error: ErrorCode
    message: str

    def response(self) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(error_code=self.error, error_message=self.message)


def request_problem(
    request: ConsumerGroupHeartbeatRequest, version: int
) -> HeartbeatRefusal | None:
    """Return what is wrong with a heartbeat, whatever its group; None if nothing is."""
    problem = _field_problem(request, version)
    if problem is not None:
        return HeartbeatRefusal(ErrorCode.INVALID_REQUEST, problem)
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        known = ", ".join(ASSIGNORS)
        message = f"ServerAssignor {request.server_assignor} is not supported; use one of: {known}."
        return HeartbeatRefusal(ErrorCode.UNSUPPORTED_ASSIGNOR, message)
    problem = expression_problem(request.subscribed_topic_regex or "")
    if problem is not None:
        message = f"SubscribedTopicRegex is not a valid regular expression: {problem}."
        return HeartbeatRefusal(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
    return None


def _field_problem(request: ConsumerGroupHeartbeatRequest, version: int) -> str | None:
    is_named_by_client = version >= CLIENT_GENERATED_MEMBER_ID_SINCE
    if not request.member_id and (is_named_by_client or request.member_epoch != JOIN_EPOCH):
        return "MemberId can't be empty."
    if not request.group_id.strip():
        return "GroupId can't be empty."
    if request.instance_id == "":
        return "InstanceId can't be empty."
    if request.rack_id == "":
        return "RackId can't be empty."
    if request.member_epoch < STATIC_LEAVE_EPOCH:
        return f"MemberEpoch {request.member_epoch} is invalid."
    if request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        return "InstanceId can't be null."
    if request.member_epoch != JOIN_EPOCH:
        return None
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "SubscribedTopicNames or SubscribedTopicRegex must be set when (re-)joining."
    return None


def is_leaving(request: ConsumerGroupHeartbeatRequest) -> bool:
    return request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH)


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """True if a member reports everything, and so wants its whole assignment in the response."""
    if request.member_epoch == JOIN_EPOCH:
        return True
    is_subscribing = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    has_owned = request.topic_partitions is not None
    return request.rebalance_timeout_ms != -1 and is_subscribing and has_owned


def reported_partitions(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    """Return what a member says it owns; None if it does not say."""
    if request.topic_partitions is None:
        return None
    return frozenset(
        PartitionId(topic.topic_id, number)
        for topic in request.topic_partitions
        for number in topic.partitions
    )


def subscribed(before: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    """Return a member after its heartbeat: what the request leaves out stays as it was."""
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    regex = request.subscribed_topic_regex
    return ConsumerMember(
        before.member_id,
        request.instance_id if request.instance_id is not None else before.instance_id,
        request.rack_id if request.rack_id is not None else before.rack_id,
        before.client_id,
        before.client_host,
        timeout_ms if timeout_ms != -1 else before.rebalance_timeout_ms,
        sorted(set(names)) if names is not None else before.topic_names,
        (regex or None) if regex is not None else before.topic_regex,
        request.server_assignor if request.server_assignor is not None else before.assignor,
    )


def assignment(partitions: Partitions) -> HeartbeatAssignment:
    return HeartbeatAssignment(topic_partitions=_topics(by_topic(partitions)))


def _topics(owned: Iterable[OwnedPartitions]) -> list[AssignedTopic]:
    return [AssignedTopic(topic_id=t.topic_id, partitions=t.partitions) for t in owned]
