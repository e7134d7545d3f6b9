"""One bound on the bytes that a sink holds, whatever the number of partitions.

Pure. Owns the sum. Each holder reports how much it holds now, and is forgotten when it holds
nothing. Memory for a fetch is reserved before the request, because a response that has arrived
cannot be sent back.
"""

from collections.abc import Hashable


class Budget:
    """The bytes that are held, and the limit on them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.peak = 0
        self._by_holder: dict[Hashable, int] = {}

    def hold(self, holder: Hashable, size: int) -> None:
        """Record that this holder now holds `size` bytes; 0 forgets it."""
        self.held += size - self._by_holder.pop(holder, 0)
        if size:
            self._by_holder[holder] = size
        self.peak = max(self.peak, self.held)

    @property
    def free(self) -> int:
        """Bytes that may still be requested."""
        return max(0, self.limit - self.held)

    def __len__(self) -> int:
        return len(self._by_holder)
