"""Which names have facts that are decided and not durable yet: an answer about those has to wait.

Pure. Owns the count of such facts for each name; holds nothing about a name that has none.
"""


class Unsettled:
    """How many facts about each name are not durable, also about one that was deleted."""

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
