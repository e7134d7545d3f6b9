"""Deadlines of groups and their members: which group has to be looked at next.

Pure. A deadline that moves later costs nothing: the group is looked at too early once, and then
says when it is due. So a heartbeat, which only moves deadlines later, need not touch this.
"""

import heapq
from collections.abc import Callable

NEVER = float("inf")


class MemberDeadlines(dict[str, float]):
    """A deadline for each member of a group, and a lower bound of them all, `earliest`.

    Reading the bound costs nothing, however many members there are. It is exact after `recount`.
    """

    earliest = NEVER

    def __setitem__(self, member_id: str, at: float) -> None:
        super().__setitem__(member_id, at)
        self.earliest = min(self.earliest, at)

    def recount(self, is_left_out: Callable[[str], bool] = lambda _: False) -> None:
        """Make `earliest` exact, without the members that are left out."""
        counted = (at for member_id, at in self.items() if not is_left_out(member_id))
        self.earliest = min(counted, default=NEVER)


class Deadlines:
    """The earliest deadline of each name."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._at: dict[str, float] = {}

    def set(self, name: str, at: float) -> None:
        """Look at `name` no later than `at`."""
        if at < self._at.get(name, NEVER):
            self._at[name] = at
            heapq.heappush(self._heap, (at, name))

    def first(self) -> float:
        return self._heap[0][0] if self._heap else NEVER

    def due(self, now: float) -> list[str]:
        """Return the names whose deadline has come; each has to be set again."""
        found: list[str] = []
        while self._heap and self._heap[0][0] <= now:
            at, name = heapq.heappop(self._heap)
            if self._at.get(name) == at:
                del self._at[name]
                found.append(name)
        return found
