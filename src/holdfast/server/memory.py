"""The bytes of requests in memory, over all connections, and who waits for some of them.

Owns the count behind queued.max.request.bytes. Must never let frames wait for each other for ever:
where all counted bytes belong to unfinished frames, one of them at a time may grow above the bound.
"""

from collections import deque
from typing import Protocol


class Receiver(Protocol):
    """A connection, as far as memory is concerned."""

    def memory_is_there(self) -> None:
        """The bytes that it waited for are counted: it may go on. Called once for each wait."""
        ...


class RequestMemory:
    """Counts bytes; lets those who wait go on, first come first served, as bytes are given back.

    What has arrived is counted whether there is room or not, so the bound can be exceeded by one
    receive buffer for each connection, and by one frame.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._whole_bytes = 0
        self._waiting: deque[tuple[int, Receiver]] = deque()
        self._privileged: Receiver | None = None

    @property
    def is_full(self) -> bool:
        return self.used_bytes >= self.bytes_max

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def take(self, count: int) -> None:
        """Count bytes that have arrived."""
        self.used_bytes += count

    def take_whole(self, owner: Receiver, count: int) -> None:
        """Frames of this many counted bytes are whole: an answer will give them back."""
        self._whole_bytes += count
        if self._privileged is owner:
            self._privileged = None

    def try_reserve(self, owner: Receiver, count: int) -> bool:
        """Count bytes that a frame under way is about to need, if there is room."""
        if self._privileged is owner:
            self.used_bytes += count
            return True
        return not self._waiting and self._grant(owner, count)

    def wait_for(self, owner: Receiver, count: int) -> None:
        """Tell the owner once, with `count` bytes reserved for it, when there is room."""
        self._waiting.append((count, owner))

    def give_back(self, count: int) -> None:
        """Whole frames of this many bytes are answered."""
        self._whole_bytes -= count
        self.used_bytes -= count
        self._wake()

    def leave(self, owner: Receiver, *, whole: int, unfinished: int) -> None:
        """The owner is gone, with all that was counted for it."""
        self._waiting = deque(entry for entry in self._waiting if entry[1] is not owner)
        if self._privileged is owner:
            self._privileged = None
        self.used_bytes -= unfinished
        self.give_back(whole)

    def _wake(self) -> None:
        while self._waiting and self._grant(self._waiting[0][1], self._waiting[0][0]):
            self._waiting.popleft()[1].memory_is_there()

    def _grant(self, owner: Receiver, count: int) -> bool:
        nothing_will_be_given_back = self._whole_bytes == 0
        if count == 0:
            return not self.is_full or nothing_will_be_given_back
        if self.used_bytes + count > self.bytes_max:
            if not nothing_will_be_given_back or self._privileged is not None:
                return False
            self._privileged = owner
        self.used_bytes += count
        return True
