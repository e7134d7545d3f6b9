"""How a member of a consumer group moves from what it owns to what it is to own.

Pure. Owns the rule that no partition is given while another member still has it. A member first
gives up what it must; its epoch stays until its report of owned partitions confirms that. Then it
gets what is free, and the rest when other members have released it.
"""

import enum
from collections.abc import Callable, Iterable
from typing import NamedTuple

from holdfast.groups.facts import OwnedPartitions
from holdfast.identifiers import PartitionId

Partitions = frozenset[PartitionId]
NOTHING: Partitions = frozenset()
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


class MemberState(enum.IntEnum):
    """The state of a member on its way to the target; the names are Kafka's."""

    STABLE = 1
    UNREVOKED_PARTITIONS = 2
    """The member must give up partitions, and has not reported yet that it did."""
    UNRELEASED_PARTITIONS = 3
    """The member waits for partitions that others must give up."""


class MemberStanding(NamedTuple):
    """The epoch, the state and the partitions of a member now."""

    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    pending_revocation: Partitions = NOTHING

    @property
    def owned(self) -> Partitions:
        """The partitions that no other member may have."""
        return self.assigned | self.pending_revocation

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def at(self, member_epoch: int) -> "MemberStanding":
        """Return the same standing in another member epoch."""
        if member_epoch == self.member_epoch:
            return self
        return self._replace(member_epoch=member_epoch, previous_member_epoch=self.member_epoch)

    def left_for_a_while(self) -> "MemberStanding":
        """Return the standing of a static member that will come back: its place is kept."""
        return self.at(STATIC_LEAVE_EPOCH)._replace(
            state=MemberState.STABLE, pending_revocation=NOTHING
        )


class Target(NamedTuple):
    """What a member is to own, as of the epoch of the target assignment."""

    assignment_epoch: int
    partitions: Partitions


def reconciled(
    standing: MemberStanding,
    target: Target,
    reported: Partitions | None,
    is_free: Callable[[PartitionId], bool],
) -> MemberStanding:
    """Return a member's next standing, as far as its report and the free partitions allow."""
    match standing.state:
        case MemberState.STABLE:
            if standing.member_epoch == target.assignment_epoch:
                return standing
            return _next(standing, target, reported, is_free)
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_owns(reported, standing.pending_revocation):
                return standing
            return _next(standing.at(standing.member_epoch + 1), target, reported, is_free)
        case MemberState.UNRELEASED_PARTITIONS:
            return _next(standing, target, reported, is_free)


def _next(
    standing: MemberStanding,
    target: Target,
    reported: Partitions | None,
    is_free: Callable[[PartitionId], bool],
) -> MemberStanding:
    kept = standing.assigned & target.partitions
    to_revoke = standing.assigned - target.partitions
    if to_revoke and _still_owns(reported, to_revoke):
        return standing._replace(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=to_revoke
        )
    wanted = target.partitions - kept
    # What the member itself has just given up is free for it, too.
    given = frozenset(p for p in wanted if p in standing.owned or is_free(p))
    state = MemberState.STABLE if given == wanted else MemberState.UNRELEASED_PARTITIONS
    return standing.at(target.assignment_epoch)._replace(
        state=state, assigned=kept | given, pending_revocation=NOTHING
    )


def _still_owns(reported: Partitions | None, partitions: Partitions) -> bool:
    """True if a member still owns some of these; without a report it has given up nothing."""
    return reported is None or not reported.isdisjoint(partitions)


def by_topic(partitions: Iterable[PartitionId]) -> list[OwnedPartitions]:
    """Return partitions as facts and messages carry them, in one order."""
    topics: dict[object, OwnedPartitions] = {}
    for topic_id, number in sorted(partitions):
        topics.setdefault(topic_id, OwnedPartitions(topic_id, [])).partitions.append(number)
    return list(topics.values())


def flat(topics: Iterable[OwnedPartitions]) -> Partitions:
    return frozenset(PartitionId(t.topic_id, number) for t in topics for number in t.partitions)
