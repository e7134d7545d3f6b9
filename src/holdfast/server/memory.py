"""The bytes of requests in memory, over all connections, and who waits for some of them.

Owns the count behind queued.max.request.bytes. Must never make a connection wait that already holds
a reservation: a frame that was let in can always be finished, so waiting cannot become a deadlock.
"""

from collections import deque
from collections.abc import Callable

Wake = Callable[[], None]


class RequestMemory:
    """Counts bytes; wakes those who wait, first come first served, as bytes are given back."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._waiting: deque[tuple[int, Wake]] = deque()

    @property
    def is_full(self) -> bool:
        return self.used_bytes >= self.bytes_max

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def take(self, count: int) -> None:
        """Count bytes that are in memory already."""
        self.used_bytes += count

    def try_reserve(self, count: int) -> bool:
        """Count bytes that are about to come, if there is room; a lone frame always has room."""
        if self._waiting or not self._fits(count):
            return False
        self.used_bytes += count
        return True

    def wait_for(self, count: int, wake: Wake) -> None:
        """Call `wake` once, with `count` bytes reserved for it, when there is room."""
        self._waiting.append((count, wake))

    def stop_waiting(self, wake: Wake) -> None:
        self._waiting = deque(entry for entry in self._waiting if entry[1] != wake)
        self.give_back(0)

    def give_back(self, count: int) -> None:
        self.used_bytes -= count
        while self._waiting and self._fits(self._waiting[0][0]):
            wanted, wake = self._waiting.popleft()
            self.used_bytes += wanted
            wake()

    def _fits(self, count: int) -> bool:
        if count == 0:
            return not self.is_full
        return self.used_bytes + count <= self.bytes_max or self.used_bytes == 0
