"""The members of a classic group, and those joining its next generation.

Pure. Counts what a join asks about all members, so that a member comes or goes in the same time
whatever the size of its group. Must never remove a member without its counts.
"""

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.groups.facts import ClassicMember
from holdfast.groups.outbox import Token


class Joining(NamedTuple):
    """A member that waits for the next generation."""

    token: Token
    member: ClassicMember
    protocol_type: str


class _Counts(dict[str, int]):
    """The number of members that have each name; names that no member has are left out."""

    def change(self, name: str, by: int) -> None:
        count = self.get(name, 0) + by
        if count:
            self[name] = count
        else:
            del self[name]


class _Longest:
    """The largest of many numbers that come and go."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._heap: list[int] = []
        self._gone = 0

    def add(self, number: int) -> None:
        count = self._counts.get(number)
        if count is None:
            heapq.heappush(self._heap, -number)
        elif not count:
            self._gone -= 1
        self._counts[number] = (count or 0) + 1

    def remove(self, number: int) -> None:
        self._counts[number] -= 1
        self._gone += not self._counts[number]
        if 2 * self._gone > len(self._heap):
            self._counts = {number: count for number, count in self._counts.items() if count}
            self._heap = sorted(-number for number in self._counts)
            self._gone = 0

    def get(self) -> int:
        while self._heap:
            longest = -self._heap[0]
            if self._counts[longest]:
                return longest
            heapq.heappop(self._heap)
            del self._counts[longest]
            self._gone -= 1
        return 0


class Roster:
    """The members of the generation that are still here, and those that wait to join."""

    def __init__(
        self, members: Iterable[ClassicMember] = (), joining: Iterable[Joining] = ()
    ) -> None:
        self.here: dict[str, ClassicMember] = {}
        """Members as they are in the generation, in its order. Only methods change it."""
        self.joining: dict[str, Joining] = {}
        """Members that wait, in the order in which they came. Only methods change it."""
        self._late = 0
        self._able = _Counts()
        self._types = _Counts()
        self._ids: dict[str, str] = {}
        self._rebalance_ms = _Longest()
        for member in members:
            self.here[member.member_id] = member
            self._late += 1
            self._count(member, 1)
            self._hold(member)
        for each in joining:
            self.enter(each)

    def __contains__(self, member_id: object) -> bool:
        return member_id in self.here or member_id in self.joining

    def is_complete(self) -> bool:
        """True if all members of the generation that are here wait for the next one."""
        return not self._late

    def longest_rebalance_ms(self) -> int:
        return self._rebalance_ms.get()

    def joining_types(self) -> set[str]:
        """Return the protocol types of the members that wait."""
        return set(self._types)

    def holder(self, instance_id: str) -> str | None:
        """Return the member id that a group.instance.id has now."""
        return self._ids.get(instance_id)

    def members(self) -> dict[str, ClassicMember]:
        """Return all members, as they last joined."""
        return self.here | {i: joining.member for i, joining in self.joining.items()}

    def count_without(self, left_out: Iterable[str]) -> int:
        """Return the number of members, without those left out."""
        whole = self._late + len(self.joining)
        return whole - sum(member_id in self for member_id in set(left_out))

    def share_protocol(self, member: ClassicMember, left_out: Iterable[str]) -> bool:
        """True if a member knows a protocol that all others know, without those left out."""
        names = _names(member)
        able = {name: self._able.get(name, 0) for name in names}
        without = set(left_out)
        for other in filter(None, map(self._latest, without)):
            for name in _names(other) & names:
                able[name] -= 1
        others = self.count_without(without)
        return any(count == others for count in able.values())

    def enter(self, joining: Joining) -> None:
        """Make a member wait for the next generation; if it waits already, it keeps its place."""
        member = joining.member
        before = self.joining.get(member.member_id)
        if before is not None:
            self._uncount(before)
        elif member.member_id in self.here:
            self._late -= 1
            self._count(self.here[member.member_id], -1)
        self.joining[member.member_id] = joining
        self._count(member, 1)
        self._types.change(joining.protocol_type, 1)
        self._hold(member)
        if before is not None:
            self._let_go(before.member)

    def withdraw(self, member_id: str) -> Joining | None:
        """Stop a member's wait, and return its join; None if it did not wait."""
        joining = self.joining.pop(member_id, None)
        if joining is None:
            return None
        self._uncount(joining)
        member = self.here.get(member_id)
        if member is not None:
            self._late += 1
            self._count(member, 1)
        self._let_go(joining.member)
        return joining

    def remove(self, member_id: str) -> None:
        """Remove a member of the generation."""
        member = self.here.pop(member_id)
        if member_id not in self.joining:
            self._late -= 1
            self._count(member, -1)
        self._let_go(member)

    def _latest(self, member_id: str) -> ClassicMember | None:
        joining = self.joining.get(member_id)
        return joining.member if joining is not None else self.here.get(member_id)

    def _count(self, member: ClassicMember, by: int) -> None:
        for name in _names(member):
            self._able.change(name, by)

    def _uncount(self, joining: Joining) -> None:
        self._count(joining.member, -1)
        self._types.change(joining.protocol_type, -1)

    def _hold(self, member: ClassicMember) -> None:
        self._rebalance_ms.add(member.rebalance_timeout_ms)
        if member.instance_id is not None:
            self._ids[member.instance_id] = member.member_id

    def _let_go(self, member: ClassicMember) -> None:
        """Free a member's group.instance.id, unless its entry in the other dict still has it."""
        self._rebalance_ms.remove(member.rebalance_timeout_ms)
        name = member.instance_id
        if name is None or self._ids.get(name) != member.member_id:
            return
        joining = self.joining.get(member.member_id)
        places = (self.here.get(member.member_id), joining.member if joining is not None else None)
        if all(other is None or other.instance_id != name for other in places):
            del self._ids[name]


def _names(member: ClassicMember) -> set[str]:
    return {name for name, _ in member.protocols}
