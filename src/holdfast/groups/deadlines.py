"""Which group has to be looked at next.

Pure. A deadline that moves later costs nothing: the group is looked at too early once, and says
then when it is due. So a heartbeat, which only moves deadlines later, need not touch this.
"""

import heapq

NEVER = float("inf")


class Deadlines:
    """The earliest time for each name."""

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
        """The names whose time has come; each has to be set again."""
        found: list[str] = []
        while self._heap and self._heap[0][0] <= now:
            at, name = heapq.heappop(self._heap)
            if self._at.get(name) == at:
                del self._at[name]
                found.append(name)
        return found
