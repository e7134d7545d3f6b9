"""Server-side assignors of consumer groups: which member is to own which partition.

Pure functions of members, topics and the previous target assignment. Owns `uniform` (balanced and
sticky over all topics) and `range` (the same partition numbers of co-partitioned topics go to the
same member).
"""

import heapq
from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from holdfast.identifiers import PartitionId

UNIFORM = "uniform"
RANGE = "range"


class Subscriber(NamedTuple):
    """A member, as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    target: frozenset[PartitionId]
    """The member's partitions in the previous target assignment."""


Targets = dict[str, frozenset[PartitionId]]
Assignor = Callable[[list[Subscriber], Mapping[UUID, int]], Targets]


def assign_range(members: list[Subscriber], partitions: Mapping[UUID, int]) -> Targets:
    """Assign each topic to its subscribers in contiguous ranges, in one order for all topics."""
    ordered = sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or m.member_id))
    targets: dict[str, set[PartitionId]] = {m.member_id: set() for m in members}
    for topic_id, count in partitions.items():
        subscribers = [m for m in ordered if topic_id in m.topics]
        if not subscribers:
            continue
        share, extra = divmod(count, len(subscribers))
        start = 0
        for i, member in enumerate(subscribers):
            end = start + share + (i < extra)
            targets[member.member_id].update(PartitionId(topic_id, n) for n in range(start, end))
            start = end
    return {i: frozenset(found) for i, found in targets.items()}


def assign_uniform(members: list[Subscriber], partitions: Mapping[UUID, int]) -> Targets:
    """Assign as evenly as the subscriptions allow, and keep as much as possible where it was."""
    draft = _Draft(members, partitions)
    draft.keep()
    draft.fill()
    while draft.even_out():
        pass
    return {
        i: frozenset(PartitionId(t, n) for t, numbers in topics.items() for n in numbers)
        for i, topics in draft.held.items()
    }


class _Draft:
    """An assignment that is being made."""

    def __init__(self, members: list[Subscriber], partitions: Mapping[UUID, int]) -> None:
        self._members = sorted(members, key=lambda m: m.member_id)
        self._partitions = partitions
        self.held: dict[str, dict[UUID, set[int]]] = {m.member_id: {} for m in members}
        self._load = {m.member_id: 0 for m in members}
        self._taken: dict[UUID, set[int]] = {topic_id: set() for topic_id in partitions}
        self._subscribers: dict[UUID, list[str]] = {
            topic_id: [m.member_id for m in self._members if topic_id in m.topics]
            for topic_id in partitions
        }

    def _give(self, member_id: str, topic_id: UUID, number: int) -> None:
        self.held[member_id].setdefault(topic_id, set()).add(number)
        self._load[member_id] += 1
        self._taken[topic_id].add(number)

    def keep(self) -> None:
        """Let each member keep what it was to own and still wants, up to its share of the whole."""
        share, extra = self._share()
        for member in self._members:
            for topic_id, number in sorted(member.target):
                if topic_id not in member.topics or number >= self._partitions.get(topic_id, 0):
                    continue
                has_room = self._load[member.member_id] < share + (extra > 0)
                if has_room and number not in self._taken[topic_id]:
                    self._give(member.member_id, topic_id, number)
            extra -= self._load[member.member_id] > share

    def _share(self) -> tuple[int, int]:
        """Return a member's share, and how many get one more, if all members want the same topics.

        Otherwise there is no limit. Then the result is the same, but made by single moves.
        """
        if len({member.topics for member in self._members}) != 1:
            return sum(self._partitions.values()), 0
        total = sum(self._partitions.get(t, 0) for t in self._members[0].topics)
        return divmod(total, len(self._members))

    def fill(self) -> None:
        """Give free partitions to the least loaded subscribers, topics of few subscribers first."""
        rarest = sorted(self._partitions, key=lambda t: (len(self._subscribers[t]), t))
        for topic_id in rarest:
            heap = [(self._load[i], i) for i in self._subscribers[topic_id]]
            heapq.heapify(heap)
            for number in range(self._partitions[topic_id] if heap else 0):
                if number not in self._taken[topic_id]:
                    load, member_id = heap[0]
                    self._give(member_id, topic_id, number)
                    heapq.heapreplace(heap, (load + 1, member_id))

    def even_out(self) -> bool:
        """Move one partition from the fullest member that can give one to the emptiest that may
        have it. False if no move helps. Each move brings two loads closer together, so the moves
        end. From fullest to emptiest, they are the fewest possible if all want the same topics.
        """
        load = self._load
        emptiest = {
            topic_id: min(subscribers, key=lambda i: (load[i], i))
            for topic_id, subscribers in self._subscribers.items()
            if subscribers
        }
        least = min(load.values(), default=0)
        for giver in sorted(load, key=lambda i: (-load[i], i)):
            if load[giver] - least < 2:
                return False
            topics = (topic_id for topic_id, numbers in self.held[giver].items() if numbers)
            takers = ((load[emptiest[t]], emptiest[t], t) for t in topics)
            lowest, taker, topic_id = min(takers)
            if load[giver] - lowest >= 2:
                number = max(self.held[giver][topic_id])
                self.held[giver][topic_id].remove(number)
                load[giver] -= 1
                self._give(taker, topic_id, number)
                return True
        return False


ASSIGNORS: Mapping[str, Assignor] = {UNIFORM: assign_uniform, RANGE: assign_range}
