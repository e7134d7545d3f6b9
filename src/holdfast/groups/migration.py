"""How a group with members changes its protocol: from classic to consumer (KIP-848), and back.

Pure functions that make the one fact that changes it, or say why it may not change. Must never make
a fact that loses track of what a member may still own.
"""

from collections.abc import Iterable, Mapping

from holdfast.groups.classic.generation import chosen_protocol, metadata_of
from holdfast.groups.consumer.reconciliation import JOIN_EPOCH, NOTHING, Partitions, by_topic
from holdfast.groups.consumer.state import ConsumerState
from holdfast.groups.facts import (
    ClassicMember,
    ClassicSide,
    ConsumerMember,
    GroupDowngraded,
    GroupUpgraded,
    UpgradedMember,
)
from holdfast.groups.state import Generation
from holdfast.groups.topics import Topics
from holdfast.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    assignment_bytes,
    read_assignment,
    read_subscription,
)

PLAIN_ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""Assignors whose user data in an assignment is not needed to continue."""


def consumer_member(member: ClassicMember, subscription: Subscription) -> ConsumerMember:
    """Return a classic member as a consumer group knows it."""
    return ConsumerMember(
        member.member_id,
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        sorted(set(subscription.topics)),
        classic=ClassicSide(member.session_timeout_ms, member.protocols),
    )


def classic_member(member: ConsumerMember, classic: ClassicSide) -> ClassicMember:
    """Return a classic member of a consumer group as a classic group knows it."""
    return ClassicMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        classic.session_timeout_ms,
        member.rebalance_timeout_ms,
        classic.protocols,
    )


def upgraded(
    group_id: str, generation: Generation, members: Mapping[str, ClassicMember], topics: Topics
) -> GroupUpgraded | str:
    """Return the fact that makes an assigned generation a consumer group, or why it cannot be one.

    `members` are those that are here, in the generation or joining the next one.
    """
    if generation.protocol_type != PROTOCOL_TYPE:
        return f"its protocol type is {generation.protocol_type}"
    is_plain = generation.protocol_name in PLAIN_ASSIGNORS
    assigned: dict[str, Partitions] = {}
    given = NOTHING
    for member_id in members:
        read = read_assignment((generation.assignments or {}).get(member_id, b""))
        if read is None:
            return f"the assignment of member {member_id} cannot be read"
        if read.has_user_data and not is_plain:
            return (
                f"its assignor {generation.protocol_name} sends user data to members, which a"
                " consumer group cannot keep"
            )
        # If a leader gives a partition to two members, only the first one gets it.
        assigned[member_id] = topics.identified(read.partitions) - given
        given |= assigned[member_id]
    found: list[UpgradedMember] = []
    for member_id, member in members.items():
        data = metadata_of(member, generation.protocol_name)
        subscription = read_subscription(data or next((d for _, d in member.protocols), b""))
        if subscription is None:
            return f"the subscription of member {member_id} cannot be read"
        pending = topics.identified(subscription.owned) - given
        given |= pending
        is_in_it = member_id in generation.members
        found.append(
            UpgradedMember(
                consumer_member(member, subscription),
                generation.number_of(member_id) if is_in_it else JOIN_EPOCH,
                by_topic(assigned[member_id]),
                by_topic(pending),
            )
        )
    return GroupUpgraded(group_id, generation.number, found)


def downgraded(
    group_id: str, group: ConsumerState, topics: Topics, *, now_ms: int
) -> GroupDowngraded:
    """Return the fact that makes the remaining members a classic group.

    They keep what they own until they rejoin.
    """
    members = dict(_classic(group.members.values()))
    assignments: list[tuple[str, bytes]] = []
    for member_id, member in members.items():
        subscription = read_subscription(member.protocols[0][1])
        version = subscription.version if subscription is not None else 0
        owned = topics.named(group.standing(member_id).owned)
        assignments.append((member_id, assignment_bytes(owned, version)))
    return GroupDowngraded(
        group_id,
        group.group_epoch,
        PROTOCOL_TYPE,
        chosen_protocol(members),
        list(members.values()),
        assignments,
        [(i, group.standing(i).member_epoch) for i in members],
        now_ms,
    )


def _classic(members: Iterable[ConsumerMember]) -> Iterable[tuple[str, ClassicMember]]:
    for member in members:
        if member.classic is not None:
            yield member.member_id, classic_member(member, member.classic)
