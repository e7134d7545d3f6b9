"""The durable part of a consumer group (KIP-848), as its facts have built it.

Pure. Owns how facts change it, and which member owns each partition. Must never decide anything.
"""

from collections import Counter

import msgspec

from holdfast.groups.consumer.assignors import UNIFORM
from holdfast.groups.consumer.reconciliation import (
    NOTHING,
    MemberStanding,
    MemberState,
    Partitions,
    Target,
    by_topic,
    flat,
)
from holdfast.groups.facts import (
    ConsumerGroupEpochMoved,
    ConsumerMember,
    ConsumerMemberLeft,
    ConsumerMemberSubscribed,
    GroupUpgraded,
    MemberReconciled,
    OwnedPartitions,
    StaticConsumerReplaced,
    TargetAssigned,
)
from holdfast.identifiers import PartitionId

ConsumerFact = (
    ConsumerMemberSubscribed
    | StaticConsumerReplaced
    | ConsumerMemberLeft
    | ConsumerGroupEpochMoved
    | TargetAssigned
    | MemberReconciled
    | GroupUpgraded
)


class ConsumerState:
    """Members of a consumer group, what they own, and what they are to own."""

    def __init__(self) -> None:
        self.group_epoch = 0
        self.assignment_epoch = 0
        self.assignor = UNIFORM
        """The assignor that made the target assignment."""
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.owners: dict[PartitionId, str] = {}
        """The owner of each partition, also if it is to give the partition up and has not yet."""
        self._owned_since: dict[PartitionId, int] = {}
        """The member epoch of its owner at which it got each partition."""
        self.left_ms = 0
        """When a member last left: an empty group has been empty since then."""
        self._standings: dict[str, MemberStanding] = {}
        self._instances: dict[str, str] = {}
        self._classic: set[str] = set()
        """Members that speak the classic protocol."""

    def standing(self, member_id: str) -> MemberStanding:
        return self._standings[member_id]

    def standings(self) -> list[MemberStanding]:
        return list(self._standings.values())

    def has_owned_since(self, member_id: str, partition: PartitionId, member_epoch: int) -> bool:
        """True if a member owned the partition at this member epoch of its own, and ever since."""
        is_owner = self.owners.get(partition) == member_id
        return is_owner and self._owned_since[partition] <= member_epoch

    def target(self, member_id: str) -> Target:
        return Target(self.assignment_epoch, self.targets[member_id])

    def holder(self, instance_id: str) -> str | None:
        """Return the member id that a group.instance.id has now."""
        return self._instances.get(instance_id)

    def expressions(self) -> set[str]:
        """Return the regular expressions by which members subscribe to topics."""
        return {m.topic_regex for m in self.members.values() if m.topic_regex is not None}

    def is_left_to_classic_members(self) -> bool:
        """True if all members are classic ones: none speaks the new protocol any more."""
        return bool(self.members) and len(self._classic) == len(self.members)

    def chosen_assignor(self) -> str:
        """Return the assignor that most members ask for; in a tie, the first by name."""
        votes = Counter(m.assignor for m in self.members.values() if m.assignor is not None)
        return max(sorted(votes), key=lambda name: votes[name]) if votes else UNIFORM

    def apply(self, fact: ConsumerFact) -> None:
        match fact:
            case ConsumerMemberSubscribed():
                self.group_epoch = fact.group_epoch
                self._put(fact.member)
            case StaticConsumerReplaced():
                self.group_epoch = fact.group_epoch
                self._replace(fact.old_member_id, fact.member)
            case ConsumerMemberLeft():
                self.group_epoch, self.left_ms = fact.group_epoch, fact.left_ms
                self._remove(fact.member_id)
            case ConsumerGroupEpochMoved():
                self.group_epoch = fact.group_epoch
            case TargetAssigned():
                self.assignment_epoch, self.assignor = fact.assignment_epoch, fact.assignor
                self.targets.update((i, flat(topics)) for i, topics in fact.targets)
            case MemberReconciled():
                if fact.member_id in self.members:
                    self._stand(fact.member_id, _standing(fact))
            case GroupUpgraded():
                self._begin(fact)

    def _begin(self, fact: GroupUpgraded) -> None:
        """Begin with the last generation: what its members own is also their target, for now."""
        self.group_epoch = self.assignment_epoch = fact.group_epoch
        for item in fact.members:
            assigned, pending = flat(item.assigned), flat(item.pending_revocation)
            state = MemberState.UNREVOKED_PARTITIONS if pending else MemberState.STABLE
            epoch, member_id = item.member_epoch, item.member.member_id
            self._put(item.member)
            self.targets[member_id] = assigned
            self._stand(member_id, MemberStanding(epoch, epoch, state, assigned, pending))

    def _put(self, member: ConsumerMember) -> None:
        before = self.members.get(member.member_id)
        if before is not None and before.instance_id is not None:
            self._instances.pop(before.instance_id, None)
        self.members[member.member_id] = member
        if member.classic is not None:
            self._classic.add(member.member_id)
        else:
            self._classic.discard(member.member_id)
        self._standings.setdefault(member.member_id, MemberStanding())
        self.targets.setdefault(member.member_id, NOTHING)
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id

    def _replace(self, old_member_id: str, member: ConsumerMember) -> None:
        target = self.targets.get(old_member_id, NOTHING)
        assigned = self._standings.get(old_member_id, MemberStanding()).assigned
        self._remove(old_member_id)
        self._put(member)
        self.targets[member.member_id] = target
        self._stand(member.member_id, MemberStanding(assigned=assigned))

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._classic.discard(member_id)
        if member.instance_id is not None:
            self._instances.pop(member.instance_id, None)
        self._stand(member_id, MemberStanding())
        del self._standings[member_id]
        self.targets.pop(member_id, None)

    def _stand(self, member_id: str, standing: MemberStanding) -> None:
        before = self._standings.get(member_id, MemberStanding())
        for partition in before.owned - standing.owned:
            if self.owners.get(partition) == member_id:
                del self.owners[partition], self._owned_since[partition]
        for partition in standing.owned:
            if self.owners.get(partition) != member_id:
                self._owned_since[partition] = standing.member_epoch
            self.owners[partition] = member_id
        self._standings[member_id] = standing

    def remember(self, member_id: str, owned_since: list[int]) -> None:
        """Restore the member epochs since which a member owns its partitions."""
        owned = sorted(self._standings[member_id].owned)
        self._owned_since.update(zip(owned, owned_since, strict=False))

    def stored(self) -> "StoredConsumers":
        return StoredConsumers(
            self.group_epoch,
            self.assignment_epoch,
            self.assignor,
            [
                _StoredMember(
                    member,
                    by_topic(self.targets[i]),
                    reconciled_fact("", i, self._standings[i]),
                    [self._owned_since[p] for p in sorted(self._standings[i].owned)],
                )
                for i, member in sorted(self.members.items())
            ],
            self.left_ms,
        )


class _StoredMember(msgspec.Struct, frozen=True, array_like=True):
    member: ConsumerMember
    target: list[OwnedPartitions]
    standing: MemberReconciled
    owned_since: list[int] = []
    """Member epochs, in the order of the partitions. If not stored, the current epoch counts."""


class StoredConsumers(msgspec.Struct, frozen=True, array_like=True):
    """A consumer group in the snapshot of its lane."""

    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: list[_StoredMember]
    left_ms: int = 0


def restored(stored: StoredConsumers) -> ConsumerState:
    state = ConsumerState()
    for item in stored.members:
        state.apply(ConsumerMemberSubscribed("", item.member, stored.group_epoch))
        state.apply(item.standing)
        state.remember(item.member.member_id, item.owned_since)
    state.group_epoch, state.left_ms = stored.group_epoch, stored.left_ms
    targets = [(item.member.member_id, item.target) for item in stored.members]
    state.apply(TargetAssigned("", stored.assignment_epoch, stored.assignor, targets))
    return state


def reconciled_fact(group_id: str, member_id: str, standing: MemberStanding) -> MemberReconciled:
    return MemberReconciled(
        group_id,
        member_id,
        standing.member_epoch,
        standing.previous_member_epoch,
        int(standing.state),
        by_topic(standing.assigned),
        by_topic(standing.pending_revocation),
    )


def _standing(fact: MemberReconciled) -> MemberStanding:
    return MemberStanding(
        fact.member_epoch,
        fact.previous_member_epoch,
        MemberState(fact.state),
        flat(fact.assigned),
        flat(fact.pending_revocation),
    )
