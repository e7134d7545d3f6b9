"""One bound on the bytes that a sink holds, whatever the number of partitions.

Pure. Owns the sum. Every holder says how much it holds now; who lets go is forgotten. What is asked
of a broker is reserved before, because an answer that has come cannot be sent back.
"""

from collections.abc import Hashable


class Budget:
    """Bytes held of bytes allowed."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.peak = 0
        self._by_holder: dict[Hashable, int] = {}

    def hold(self, holder: Hashable, size: int) -> None:
        """This holder holds so many bytes now; 0 forgets it."""
        self.held += size - self._by_holder.pop(holder, 0)
        if size:
            self._by_holder[holder] = size
        self.peak = max(self.peak, self.held)

    @property
    def free(self) -> int:
        """What may still be asked for."""
        return max(0, self.limit - self.held)

    def __len__(self) -> int:
        return len(self._by_holder)
