"""Classic members of a consumer group, while the group changes its protocol.

Pure. Owns how JoinGroup, SyncGroup, Heartbeat and LeaveGroup become steps of reconciliation: a join
reports what a member owns, its response has a member epoch in place of a generation, and a sync
fetches what was assigned. Must never take an assignment from a leader: there is none.
"""

from typing import NamedTuple

from holdfast.groups.classic.generation import common_protocols
from holdfast.groups.classic.roster import Joining
from holdfast.groups.consumer.consumer_group import ConsumerGroup
from holdfast.groups.consumer.reconciliation import MemberStanding, MemberState
from holdfast.groups.consumer.state import ConsumerState
from holdfast.groups.facts import ClassicMember, ClassicSide
from holdfast.groups.migration import classic_member, consumer_member
from holdfast.groups.rules import GroupRules
from holdfast.groups.topics import Topics
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    assignment_bytes,
    read_subscription,
)
from holdfast.protocol.messages.join_group import JoinGroupResponse
from holdfast.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class AcceptedJoin(NamedTuple):
    """A join that a consumer group accepts."""

    member: ClassicMember
    subscription: Subscription
    replaces: str | None
    """The previous member id of the group.instance.id, if it was another one."""


def joined(
    durable: ConsumerState, joining: Joining, *, has_id: bool, rules: GroupRules
) -> AcceptedJoin | ErrorCode:
    """Check a join, and return it in its parts, or why it is refused."""
    member = joining.member
    read = read_subscription(member.protocols[0][1]) if member.protocols else None
    if joining.protocol_type != PROTOCOL_TYPE or read is None:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    holder = durable.holder(member.instance_id) if member.instance_id is not None else None
    if holder is not None and has_id and holder != member.member_id:
        return ErrorCode.FENCED_INSTANCE_ID
    known = durable.members.get(member.member_id)
    if known is not None and known.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_new = known is None and holder is None
    if is_new and len(durable.members) >= rules.group_consumer_max_size:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    others = [
        classic_member(other, other.classic)
        for i, other in durable.members.items()
        if other.classic is not None and i not in (holder, member.member_id)
    ]
    if others and not common_protocols([member, *others]):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return AcceptedJoin(member, read, holder if holder != member.member_id else None)


def member_problem(
    durable: ConsumerState, member_id: str, instance_id: str | None
) -> ErrorCode | None:
    """Return why a request does not come from a classic member of this group; None if it does."""
    holder = durable.holder(instance_id) if instance_id is not None else member_id
    if holder is not None and holder != member_id:
        return ErrorCode.FENCED_INSTANCE_ID
    known = durable.members.get(member_id) if holder is not None else None
    is_classic = known is not None and known.classic is not None
    return None if is_classic else ErrorCode.UNKNOWN_MEMBER_ID


def has_a_next_step(durable: ConsumerState, member_id: str) -> bool:
    """True if a member makes progress by joining again."""
    standing = durable.standing(member_id)
    if standing.member_epoch < durable.group_epoch:
        return True
    match standing.state:
        case MemberState.STABLE:
            return False
        case MemberState.UNREVOKED_PARTITIONS:
            return True
        case MemberState.UNRELEASED_PARTITIONS:
            # An eager member stops work for each join, so it joins when all it waits for is free.
            missing = durable.targets[member_id] - standing.assigned
            return not any(partition in durable.owners for partition in missing)


def join(
    group: ConsumerGroup, wanted: AcceptedJoin, topics: Topics, now: float
) -> JoinGroupResponse:
    """Let a member whose join has been checked take its next step."""
    member = consumer_member(wanted.member, wanted.subscription)
    if wanted.replaces is not None:
        group.replace_static(wanted.replaces, member)
    else:
        group.subscribe(member)
    member_id = member.member_id
    group.touch(member_id, now)
    reported = topics.identified(wanted.subscription.owned)
    step = group.advance(member_id, reported, topics, now)
    group.wait_no_more(member_id)
    group.wait_for(member_id, now)  # to sync
    return JoinGroupResponse(
        generation_id=step.after.member_epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=wanted.member.protocols[0][0],
        leader="",
        member_id=member_id,
    )


def sync(
    group: ConsumerGroup, request: SyncGroupRequest, topics: Topics, now: float
) -> SyncGroupResponse:
    """Return what was assigned to a member when it joined."""
    durable, member_id = group.durable, request.member_id
    problem = member_problem(durable, member_id, request.group_instance_id)
    if problem is not None:
        return SyncGroupResponse(error_code=problem)
    standing, classic = durable.standing(member_id), durable.members[member_id].classic
    problem = _sync_problem(request, standing, classic)
    if problem is None and standing.state is not MemberState.UNREVOKED_PARTITIONS:
        is_late = durable.group_epoch > standing.member_epoch
        problem = ErrorCode.REBALANCE_IN_PROGRESS if is_late else None
    if problem is not None or classic is None:
        return SyncGroupResponse(error_code=problem or ErrorCode.UNKNOWN_MEMBER_ID)
    group.touch(member_id, now)
    group.wait_no_more(member_id)
    name, data = classic.protocols[0]
    read = read_subscription(data)
    version = read.version if read is not None else 0
    return SyncGroupResponse(
        protocol_type=PROTOCOL_TYPE,
        protocol_name=name,
        assignment=assignment_bytes(topics.named(standing.assigned), version),
    )


def _sync_problem(
    request: SyncGroupRequest, standing: MemberStanding, classic: ClassicSide | None
) -> ErrorCode | None:
    if request.generation_id != standing.member_epoch:
        return ErrorCode.ILLEGAL_GENERATION
    names = [name for name, _ in classic.protocols] if classic is not None else []
    if request.protocol_type not in (None, PROTOCOL_TYPE):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name is not None and request.protocol_name not in names[:1]:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return None


def heartbeat(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    generation: int,
    topics: Topics,
    now: float,
) -> ErrorCode:
    """Take a heartbeat; REBALANCE_IN_PROGRESS if the member makes progress by joining again."""
    problem = member_problem(group.durable, member_id, instance_id)
    if problem is not None:
        return problem
    if generation != group.durable.standing(member_id).member_epoch:
        return ErrorCode.ILLEGAL_GENERATION
    group.touch(member_id, now)
    group.follow(topics)
    if not has_a_next_step(group.durable, member_id):
        return ErrorCode.NONE
    group.wait_for(member_id, now)
    return ErrorCode.REBALANCE_IN_PROGRESS


def leave(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    """Remove a member that leaves; a static one may be removed by its instance id alone."""
    if instance_id is not None and not member_id:
        member_id = group.durable.holder(instance_id) or ""
    problem = member_problem(group.durable, member_id, instance_id)
    if problem is None:
        group.remove(member_id)
    return problem or ErrorCode.NONE
