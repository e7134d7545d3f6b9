"""Replays what the lanes decided about groups: partition owners and committed offsets over time.

Pure. Uses rules of its own, apart from the broker's. Owns the two rules by which all group checkers
judge: what makes a member the owner, and when a committed offset counts.
"""

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.verify.checkers.lanes import chains
from holdfast.verify.history import History
from holdfast.verify.vocabulary import (
    AssignmentLanded,
    Decision,
    GenerationLanded,
    MemberGone,
    MemberOwns,
    MemberRenamed,
    OffsetsEnded,
    OffsetsForgotten,
    OffsetsLanded,
    Partition,
)


def decisions(history: History) -> Iterator[tuple[int, Decision]]:
    """Yield each decision with the event that stored it; all decisions of a group are in one
    lane."""
    landings = [
        landing
        for chain in chains(history).values()
        for landing in chain.values()
        if landing.decisions
    ]
    for landing in sorted(landings, key=lambda landing: landing.sequence):
        for decision in landing.decisions:
            yield landing.sequence, decision


class Owners:
    """The owners of each group's partitions, updated decision by decision."""

    def __init__(self) -> None:
        self._members: dict[str, dict[str, frozenset[Partition]]] = {}

    def of(self, group: str, partition: Partition) -> list[str]:
        """Return the owners of a partition; more than one is an overlap."""
        return [m for m, owned in self._members.get(group, {}).items() if partition in owned]

    def apply(self, decision: Decision) -> None:
        match decision:
            case GenerationLanded():
                self._members[decision.group] = {}
            case AssignmentLanded():
                self._members[decision.group] = {m: frozenset(p) for m, p in decision.owners}
            case MemberRenamed():
                members = self._members.setdefault(decision.group, {})
                members[decision.new] = members.pop(decision.old, frozenset())
            case MemberOwns():
                owned = frozenset((*decision.assigned, *decision.giving_up))
                self._members.setdefault(decision.group, {})[decision.member] = owned
            case MemberGone():
                self._members.get(decision.group, {}).pop(decision.member, None)
            case _:
                pass


class Counted(NamedTuple):
    """A group's committed offset in a partition, which counts from an event on."""

    event: int
    offset: int
    commit: int


class Registers:
    """The committed offsets of each group and partition, over time."""

    def __init__(self, history: History) -> None:
        self.counted: dict[tuple[str, Partition], list[Counted]] = {}
        self.landed: dict[tuple[str, Partition, int], int] = {}
        """(group, partition, commit) -> the event that made it durable, though it may not count
        yet."""
        self.ended: list[tuple[int, int, bool]] = []
        """(event, commit, committed) of each offset commit in a transaction that has ended."""
        self._pending: dict[tuple[str, int], tuple[int, dict[Partition, tuple[int, int]]]] = {}
        for event, decision in decisions(history):
            match decision:
                case OffsetsLanded():
                    self._land(event, decision)
                case OffsetsEnded():
                    self._end(event, decision)
                case OffsetsForgotten():
                    for partition in decision.partitions:
                        self._count(decision.group, partition, Counted(event, -1, -1))
                case _:
                    pass

    def _land(self, event: int, decision: OffsetsLanded) -> None:
        group = decision.group
        for partition, offset, commit in decision.offsets:
            self.landed.setdefault((group, partition, commit), event)
            if decision.producer_id < 0:
                self._count(group, partition, Counted(event, offset, commit))
                continue
            key = (group, decision.producer_id)
            epoch, pending = self._pending.get(key, (decision.producer_epoch, {}))
            if epoch != decision.producer_epoch:
                pending = {}
            pending[partition] = (offset, commit)
            self._pending[key] = (decision.producer_epoch, pending)

    def _end(self, event: int, decision: OffsetsEnded) -> None:
        _, pending = self._pending.pop((decision.group, decision.producer_id), (0, {}))
        for partition, (offset, commit) in pending.items():
            self.ended.append((event, commit, decision.committed))
            if decision.committed:
                self._count(decision.group, partition, Counted(event, offset, commit))

    def _count(self, group: str, partition: Partition, counted: Counted) -> None:
        self.counted.setdefault((group, partition), []).append(counted)
