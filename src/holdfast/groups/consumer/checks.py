"""Checks that a request comes from a current member of a consumer group.

Pure functions over the durable part of a group. Owns the fencing by member epoch and instance id.
"""

from holdfast.groups.consumer.heartbeats import HeartbeatRefusal, is_leaving, reported_partitions
from holdfast.groups.consumer.reconciliation import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from holdfast.groups.consumer.state import ConsumerState
from holdfast.groups.rules import GroupRules
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def member_problem(
    group_id: str,
    group: ConsumerState,
    request: ConsumerGroupHeartbeatRequest,
    member_id: str,
    rules: GroupRules,
) -> HeartbeatRefusal | None:
    """Return why a heartbeat is refused; None if it is from a member, or from one that may join."""
    instance_id = request.instance_id
    if request.member_epoch == JOIN_EPOCH:
        return _join_problem(group_id, group, member_id, instance_id, rules)
    holder = group.holder(instance_id) if instance_id is not None else member_id
    known = group.members.get(holder) if holder is not None else None
    if known is None or known.classic is not None:
        message = f"Member {member_id} is not a member of group {group_id}."
        return HeartbeatRefusal(ErrorCode.UNKNOWN_MEMBER_ID, message)
    if holder != member_id:
        message = f"Instance id {instance_id} is fenced: member {holder} has it now."
        return HeartbeatRefusal(ErrorCode.FENCED_INSTANCE_ID, message)
    return None if is_leaving(request) else _fencing(group, request, member_id)


def _join_problem(
    group_id: str,
    group: ConsumerState,
    member_id: str,
    instance_id: str | None,
    rules: GroupRules,
) -> HeartbeatRefusal | None:
    holder = group.holder(instance_id) if instance_id is not None else None
    if holder is not None:
        has_left = group.standing(holder).member_epoch == STATIC_LEAVE_EPOCH
        is_classic = group.members[holder].classic is not None
        if has_left or is_classic or holder == member_id:  # or the answer to its join was lost
            return None
        message = f"Instance id {instance_id} is still owned by member {holder}."
        return HeartbeatRefusal(ErrorCode.UNRELEASED_INSTANCE_ID, message)
    size_max = rules.group_consumer_max_size
    if member_id not in group.members and len(group.members) >= size_max:
        message = f"Group {group_id} has its maximum of {size_max} members."
        return HeartbeatRefusal(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
    return None


def _fencing(
    group: ConsumerState, request: ConsumerGroupHeartbeatRequest, member_id: str
) -> HeartbeatRefusal | None:
    standing, said = group.standing(member_id), request.member_epoch
    if said == standing.member_epoch:
        return None
    reported = reported_partitions(request)
    if (
        said < standing.member_epoch
        and said == standing.previous_member_epoch
        and reported is not None
        and reported <= standing.assigned
    ):
        return None  # the answer that moved its epoch on was lost
    message = f"Member {member_id} has member epoch {standing.member_epoch}, not {said}."
    return HeartbeatRefusal(ErrorCode.FENCED_MEMBER_EPOCH, message)


def commit_problem(group: ConsumerState, member_id: str, member_epoch: int) -> ErrorCode | None:
    """Return why no offset may be committed, or None. Any client may commit to a group without
    members. A member of the new protocol may commit in an older epoch of its own what it has owned
    ever since."""
    if member_epoch < 0 and not group.members:
        return None
    member = group.members.get(member_id)
    speaks_new = member is not None and member.classic is None
    if speaks_new and 0 <= member_epoch < group.standing(member_id).member_epoch:
        return None
    return _epoch_problem(group, member_id, member_epoch)


def fetch_problem(
    group: ConsumerState, member_id: str | None, member_epoch: int
) -> ErrorCode | None:
    """Return why committed offsets may not be fetched; a client that names no member may fetch."""
    if not member_id and member_epoch < 0:
        return None
    return _epoch_problem(group, member_id or "", member_epoch)


def _epoch_problem(group: ConsumerState, member_id: str, member_epoch: int) -> ErrorCode | None:
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.standing(member_id).member_epoch == member_epoch:
        return None
    is_classic = member.classic is not None
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
