"""The names with facts that are decided but not durable yet: answers about them must wait.

Pure. Owns the number of such facts for each name, and keeps nothing for a name without any.
"""


class Unsettled:
    """The number of facts about each name that are not durable yet, also for a deleted name."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._counts

    def decided(self, name: str) -> None:
        self._counts[name] = self._counts.get(name, 0) + 1

    def published(self, name: str) -> None:
        left = self._counts.get(name, 1) - 1
        if left:
            self._counts[name] = left
        else:
            self._counts.pop(name, None)
