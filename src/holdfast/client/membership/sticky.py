"""Kafka's assignor "cooperative-sticky": who is to own which partition, and what must wait.

Pure functions of what the members of a group say when they join. Owns balance (as even as the
subscriptions allow), stickiness (what need not move stays) and cooperation: must never give a
partition to a member while another one says that it owns it.
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


class Claim(NamedTuple):
    """What a member wants, and what it says it owns."""

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION


def read_claim(metadata: bytes) -> Claim | None:
    """The claim in a JoinGroup's metadata; None where it is not understood."""
    read = read_subscription(metadata)
    if read is None:
        return None
    generation = read.generation
    if generation == NO_GENERATION and read.user_data:
        generation = sticky_generation(read.user_data)
    return Claim(frozenset(read.topics), frozenset(read.owned), generation)


def assign(members: Mapping[str, Claim], counts: Mapping[str, int]) -> Assignments:
    """What each member is to have after this round.

    A partition that goes from one member to another is withheld from the new one in this round:
    the old one gives it up, joins again, and then it is free.
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


def balance(members: Mapping[str, Claim], counts: Mapping[str, int]) -> Assignments:
    """Where all partitions should be in the end."""
    draft = _Draft(members, counts)
    draft.fill()
    while draft.even_out():
        pass
    return {member_id: frozenset(held) for member_id, held in draft.held.items()}


def owners(
    members: Mapping[str, Claim], counts: Mapping[str, int]
) -> dict[str, set[TopicPartition]]:
    """What each member has by right.

    Who claims in an older generation than others has missed what the group decided since; and a
    partition that two claim in the same generation is nobody's.
    """
    newest = max((claim.generation for claim in members.values()), default=NO_GENERATION)
    claims: dict[TopicPartition, list[str]] = {}
    for member_id in sorted(members):
        claim = members[member_id]
        if claim.generation < newest:
            continue
        for partition in claim.owned:
            if partition.topic in claim.topics and 0 <= partition.partition < counts.get(
                partition.topic, 0
            ):
                claims.setdefault(partition, []).append(member_id)
    held: dict[str, set[TopicPartition]] = {member_id: set() for member_id in members}
    for partition, claimants in claims.items():
        if len(claimants) == 1:
            held[claimants[0]].add(partition)
    return held


class _Draft:
    """An assignment in the making."""

    def __init__(self, members: Mapping[str, Claim], counts: Mapping[str, int]) -> None:
        self._members = members
        self._counts = counts
        self.held = owners(members, counts)
        self._kept = {member_id: frozenset(held) for member_id, held in self.held.items()}
        self._subscribers = {
            topic: [
                member_id for member_id in sorted(members) if topic in members[member_id].topics
            ]
            for topic in counts
        }

    def fill(self) -> None:
        """Give what nobody has to whoever has least, the topics of few subscribers first."""
        taken = {partition for held in self.held.values() for partition in held}
        for topic in sorted(self._counts, key=lambda t: (len(self._subscribers[t]), t)):
            subscribers = self._subscribers[topic]
            if not subscribers:
                continue
            for number in range(self._counts[topic]):
                partition = TopicPartition(topic, number)
                if partition not in taken:
                    least = min(subscribers, key=lambda m: (len(self.held[m]), m))
                    self.held[least].add(partition)

    def even_out(self) -> bool:
        """Move one partition to a member that has at least two less, if there is such a pair."""
        by_load = sorted(self.held, key=lambda m: (len(self.held[m]), m))
        for giver in reversed(by_load):
            for taker in by_load:
                if len(self.held[giver]) - len(self.held[taker]) < 2:
                    break
                movable = [p for p in self.held[giver] if p.topic in self._members[taker].topics]
                if movable:
                    partition = min(movable, key=lambda p: self._reluctance(giver, taker, p))
                    self.held[giver].remove(partition)
                    self.held[taker].add(partition)
                    return True
        return False

    def _reluctance(
        self, giver: str, taker: str, partition: TopicPartition
    ) -> tuple[bool, bool, TopicPartition]:
        """What goes back to its owner moves first, what an owner would lose last."""
        return (
            partition in self._kept[giver],
            partition not in self._kept[taker],
            TopicPartition(partition.topic, -partition.partition),
        )
