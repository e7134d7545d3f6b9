"""The bytes of requests in memory over all connections, and the connections that wait for memory.

Owns the count behind queued.max.request.bytes. Must never let frames wait for each other forever:
if all counted bytes belong to unfinished frames, one of them at a time may grow above the bound.
Must never let large frames keep small requests waiting: a share is only for small ones.
"""

from collections import deque
from typing import Protocol

SMALL_FRAME_BYTES = 1024 * 1024
"""A frame that declares more bytes than this is large."""
SMALL_SHARE = 4
"""1/SMALL_SHARE of the bound is kept for requests that are not large."""


class Receiver(Protocol):
    """A connection that receives frames and may wait for memory."""

    def memory_is_there(self) -> None:
        """Continue: the bytes of the wait are counted. Called once for each wait."""
        ...


class RequestMemory:
    """Counts request bytes, and lets waiting connections continue as bytes are given back.

    Small requests and large frames wait in two queues, each first come, first served. Bytes that
    have arrived are counted even if there is no room, so the bound can be exceeded by one receive
    buffer for each connection, by the share of small requests, and by one frame.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._small_bytes_max = bytes_max // SMALL_SHARE
        self._whole_bytes = 0
        self._large: dict[Receiver, int] = {}
        self._large_bytes = 0
        """The bytes of large frames that are under way."""
        self._waiting_small: deque[tuple[int, Receiver]] = deque()
        self._waiting_large: deque[tuple[int, Receiver]] = deque()
        self._privileged: Receiver | None = None

    @property
    def is_full(self) -> bool:
        """True if no further request may be read. Unfinished large frames alone never cause it."""
        return (
            self.used_bytes >= self.bytes_max
            and self.used_bytes - self._large_bytes >= self._small_bytes_max
        )

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting_small or self._waiting_large)

    def take(self, count: int) -> None:
        """Count bytes that have arrived."""
        self.used_bytes += count

    def take_whole(self, owner: Receiver, count: int) -> None:
        """Note that counted bytes belong to whole frames, whose replies will give them back."""
        self._whole_bytes += count
        self._finish(owner)

    def try_reserve(self, owner: Receiver, count: int, *, is_large: bool = True) -> bool:
        """Count bytes that a frame under way is about to need; False if there is no room."""
        if self._privileged is owner:
            self._count(owner, count, is_large=is_large)
            return True
        return not self._queue(is_large) and self._grant(owner, count, is_large=is_large)

    def wait_for(self, owner: Receiver, count: int, *, is_large: bool = True) -> None:
        """Call `memory_is_there` once there is room, with `count` bytes counted for the owner."""
        self._queue(is_large).append((count, owner))

    def give_back(self, count: int) -> None:
        """Give back the bytes of whole frames that are answered."""
        self._whole_bytes -= count
        self.used_bytes -= count
        self._wake()

    def leave(self, owner: Receiver, *, whole: int, unfinished: int) -> None:
        """Give back everything that was counted for an owner that is gone."""
        self._waiting_small = deque(e for e in self._waiting_small if e[1] is not owner)
        self._waiting_large = deque(e for e in self._waiting_large if e[1] is not owner)
        self._finish(owner)
        self.used_bytes -= unfinished
        self.give_back(whole)

    def _finish(self, owner: Receiver) -> None:
        """Note that no frame of the owner is under way any more."""
        self._large_bytes -= self._large.pop(owner, 0)
        if self._privileged is owner:
            self._privileged = None

    def _queue(self, is_large: bool) -> deque[tuple[int, Receiver]]:
        return self._waiting_large if is_large else self._waiting_small

    def _wake(self) -> None:
        for is_large in (False, True):
            waiting = self._queue(is_large)
            while waiting and self._grant(waiting[0][1], waiting[0][0], is_large=is_large):
                waiting.popleft()[1].memory_is_there()

    def _grant(self, owner: Receiver, count: int, *, is_large: bool) -> bool:
        nothing_will_be_given_back = self._whole_bytes == 0
        if count == 0:
            return not self.is_full or nothing_will_be_given_back
        if not self._has_room(count, is_large=is_large):
            if not nothing_will_be_given_back or self._privileged is not None:
                return False
            self._privileged = owner
        self._count(owner, count, is_large=is_large)
        return True

    def _has_room(self, count: int, *, is_large: bool) -> bool:
        fits = self.used_bytes + count <= self.bytes_max
        if is_large:
            return fits and self._large_bytes + count <= self.bytes_max - self._small_bytes_max
        return fits or self.used_bytes - self._large_bytes + count <= self._small_bytes_max

    def _count(self, owner: Receiver, count: int, *, is_large: bool) -> None:
        self.used_bytes += count
        if is_large:
            self._large[owner] = self._large.get(owner, 0) + count
            self._large_bytes += count
