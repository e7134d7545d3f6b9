"""Kafka's assignor "cooperative-sticky": which member owns which partition, and what must wait.

Pure functions of what the members of a group report when they join. Owns balance (as even as the
subscriptions allow), stickiness (a partition that need not move stays) and cooperation: must never
give a partition to a member while another member says that it owns it.
"""

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.protocol.consumer_protocol import (
    NO_GENERATION,
    TopicPartition,
    read_subscription,
    sticky_generation,
)

COOPERATIVE_STICKY = "cooperative-sticky"

Assignments = dict[str, frozenset[TopicPartition]]


class StickyMember(NamedTuple):
    """The topics that a member wants, and the partitions that it says it owns."""

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION


def read_claim(metadata: bytes) -> StickyMember | None:
    """Return the claim in a JoinGroup's metadata; None if it cannot be read."""
    read = read_subscription(metadata)
    if read is None:
        return None
    generation = read.generation
    if generation == NO_GENERATION and read.user_data:
        generation = sticky_generation(read.user_data)
    return StickyMember(frozenset(read.topics), frozenset(read.owned), generation)


def assign(members: Mapping[str, StickyMember], counts: Mapping[str, int]) -> Assignments:
    """Return what each member is to own after this round.

    A partition that moves from one member to another is withheld from the new one in this round:
    the old one gives it up and joins again, and then the partition is free.
    """
    wanted = balance(members, counts)
    claimed: dict[TopicPartition, set[str]] = {}
    for member_id, claim in members.items():
        for partition in claim.owned:
            claimed.setdefault(partition, set()).add(member_id)
    return {
        member_id: frozenset(
            partition for partition in partitions if claimed.get(partition, set()) <= {member_id}
        )
        for member_id, partitions in wanted.items()
    }


def balance(members: Mapping[str, StickyMember], counts: Mapping[str, int]) -> Assignments:
    """Return where all partitions should be in the end."""
    draft = _Draft(members, counts)
    draft.fill()
    while draft.even_out():
        pass
    return {member_id: frozenset(held) for member_id, held in draft.held.items()}


def owners(
    members: Mapping[str, StickyMember], counts: Mapping[str, int]
) -> dict[str, set[TopicPartition]]:
    """Return the partitions of each member whose claim to them is valid.

    A member that claims in an older generation than others has missed what the group decided since.
    A member that names no generation, as old clients do, has what no other member claims. A
    partition that two members claim in the same generation belongs to neither.
    """
    newest = max((claim.generation for claim in members.values()), default=NO_GENERATION)
    claims: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member_id, claim in members.items():
        if claim.generation not in (newest, NO_GENERATION):
            continue
        for where in claim.owned:
            if where.topic in claim.topics and 0 <= where.partition < counts.get(where.topic, 0):
                claims.setdefault(where, []).append((claim.generation, member_id))
    held: dict[str, set[TopicPartition]] = {member_id: set() for member_id in members}
    for where, claimants in claims.items():
        latest = max(generation for generation, _ in claimants)
        names = [member_id for generation, member_id in claimants if generation == latest]
        if len(names) == 1:
            held[names[0]].add(where)
    return held


class _Draft:
    """An assignment that is being made."""

    def __init__(self, members: Mapping[str, StickyMember], counts: Mapping[str, int]) -> None:
        self._members = members
        self._counts = counts
        self.held = owners(members, counts)
        self._kept = {member_id: frozenset(held) for member_id, held in self.held.items()}
        self._stacks: dict[str, list[TopicPartition]] = {
            member_id: sorted(held) for member_id, held in self.held.items()
        }
        """The partitions of each member, the first to move at the end. Those that the member owned
        before move last. With this order a move need not look at all partitions."""

    def fill(self) -> None:
        """Give free partitions to the least loaded subscribers, topics of few subscribers first."""
        taken = {partition for held in self.held.values() for partition in held}
        subscribers = {
            topic: [i for i, claim in sorted(self._members.items()) if topic in claim.topics]
            for topic in self._counts
        }
        for topic in sorted(self._counts, key=lambda t: (len(subscribers[t]), t)):
            if not subscribers[topic]:
                continue
            for number in range(self._counts[topic]):
                partition = TopicPartition(topic, number)
                if partition not in taken:
                    self._give(min(subscribers[topic], key=self._load), partition)

    def even_out(self) -> bool:
        """Move one partition to a member with at least two fewer; False if none can move."""
        by_load = sorted(self.held, key=self._load)
        for giver in reversed(by_load):
            for taker in by_load:
                if len(self.held[giver]) - len(self.held[taker]) < 2:
                    break
                partition = self._movable(giver, taker)
                if partition is not None:
                    self.held[giver].remove(partition)
                    self._give(taker, partition)
                    return True
        return False

    def _load(self, member_id: str) -> tuple[int, str]:
        return len(self.held[member_id]), member_id

    def _give(self, member_id: str, partition: TopicPartition) -> None:
        self.held[member_id].add(partition)
        is_its_own = partition in self._kept[member_id]
        self._stacks[member_id].insert(0 if is_its_own else len(self._stacks[member_id]), partition)

    def _movable(self, giver: str, taker: str) -> TopicPartition | None:
        """Take a partition for the taker off the giver's stack, one that it had before if any."""
        stack, topics = self._stacks[giver], self._members[taker].topics
        back = self.held[giver] & self._kept[taker]
        if back:
            stack.remove(min(back))
            return min(back)
        for index in range(len(stack) - 1, -1, -1):
            if stack[index].topic in topics:
                return stack.pop(index)
        return None
