"""Group commit: facts that are added while a put is under way go into the next lane object.

Owns which facts share an object, and how long an object waits for more of them. Must never mix the
order in which facts were added.
"""

import asyncio
import dataclasses
from collections import deque
from typing import Generic

from holdfast.environment import Environment
from holdfast.errors import HoldfastError
from holdfast.lane.entry import Buffer
from holdfast.lane.state import F

QUIET_PART = 5
"""An entry is put if 1/QUIET_PART of the linger time brings no fact: producers wait for it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """How much goes into one object, and how long a group may wait for more facts."""

    linger_ms: int = 0
    """The longest time that records wait for more records before they are put."""
    linger_bytes_min: int = 0
    """Linger only if this many bytes are expected in `linger_ms`, and only while they keep coming:
    a shared put costs less. 0: always linger, which suits a store where each put costs money."""
    group_bytes_max: int = 8 * 1024 * 1024
    pending_bytes_max: int = 128 * 1024 * 1024
    claim_valid_ms: int = 5_000


class PendingEntry(Generic[F]):
    """The facts of one future object, and the future that its callers wait for."""

    __slots__ = ("bytes", "done", "facts", "opened_at", "payloads")

    def __init__(self, opened_at: float) -> None:
        self.facts: list[F] = []
        self.payloads: list[Buffer | None] = []
        self.bytes = 0
        self.opened_at = opened_at
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class PendingEntries(Generic[F]):
    """The entries of one lane that are not in the store yet, oldest first."""

    def __init__(self, environment: Environment, settings: GroupSettings) -> None:
        self.bytes = 0
        """The bytes of all entries, of the one in flight too."""
        self.in_flight: PendingEntry[F] | None = None
        """The entry whose put is under way."""
        self._environment = environment
        self._settings = settings
        self._waiting: deque[PendingEntry[F]] = deque()
        self._news = asyncio.Event()
        self._is_hurried = False
        self._bytes_per_s = 0.0
        self._measured_at = environment.monotonic()

    def __bool__(self) -> bool:
        """True if entries wait for their put."""
        return bool(self._waiting)

    @property
    def first_bytes(self) -> int:
        """The bytes of the next entry; 0 if there is none."""
        return self._waiting[0].bytes if self._waiting else 0

    def add(self, fact: F, payload: Buffer | None) -> None:
        """Add a fact to the newest entry, or to a new one if that is full."""
        size = len(payload) if payload is not None else 0
        if not self._waiting or self._waiting[-1].bytes + size > self._settings.group_bytes_max:
            self._waiting.append(self.empty())
        entry = self._waiting[-1]
        entry.facts.append(fact)
        entry.payloads.append(payload)
        entry.bytes += size
        self.bytes += size
        if entry.bytes >= self._settings.group_bytes_max or len(self._waiting) > 1:
            self._news.set()

    def empty(self) -> PendingEntry[F]:
        """Return an entry without facts of its own."""
        return PendingEntry(self._environment.monotonic())

    def begin(self, entry: PendingEntry[F]) -> None:
        """Note that the put of an entry begins, and measure the rate at which bytes arrive."""
        self.in_flight = entry
        now = self._environment.monotonic()
        elapsed = max(now - self._measured_at, 0.000_1)
        self._measured_at = now
        # Smoothed over several objects.
        self._bytes_per_s += (entry.bytes / elapsed - self._bytes_per_s) / 4

    def take(self) -> PendingEntry[F]:
        """Return the next entry, for its put."""
        return self._waiting.popleft()

    def stored(self, entry: PendingEntry[F]) -> None:
        """Note that the entry in flight is in the store."""
        self.in_flight = None
        self.bytes -= entry.bytes

    def barrier(self) -> asyncio.Future[None] | None:
        """Return a future for when everything added so far is published; None if it is."""
        if self._waiting:
            return self._waiting[-1].done
        return self.in_flight.done if self.in_flight is not None else None

    def look_again(self) -> None:
        """Let `linger` see what has changed."""
        self._news.set()

    def hurry(self) -> None:
        """Linger no more."""
        self._is_hurried = True
        self._news.set()

    async def linger(self) -> None:
        """Wait, if that pays, until the next entry is full or due, or until no more facts come."""
        entry = self._waiting[0]
        linger_s = self._settings.linger_ms / 1000
        due = entry.opened_at + linger_s
        is_thrifty = self._settings.linger_bytes_min == 0
        if not is_thrifty and self._bytes_per_s * linger_s < self._settings.linger_bytes_min:
            return
        while not self._is_hurried and len(self._waiting) == 1:
            left_s = due - self._environment.monotonic()
            if left_s <= 0 or entry.bytes >= self._settings.group_bytes_max:
                return
            gathered = len(entry.facts)
            self._news.clear()
            pause_s = left_s if is_thrifty else min(left_s, linger_s / QUIET_PART)
            try:
                async with asyncio.timeout(pause_s):
                    await self._news.wait()
            except TimeoutError:
                if len(entry.facts) == gathered:
                    return

    def fail(self, error: HoldfastError) -> None:
        """Fail all waiters: none of these entries will be published by this broker."""
        in_flight = [self.in_flight] if self.in_flight is not None else []
        for entry in (*in_flight, *self._waiting):
            if not entry.done.done():
                fail_future(entry.done, error)
        self._waiting.clear()


def fail_future(future: asyncio.Future[None], error: HoldfastError) -> None:
    """Fail a future that perhaps no caller waits for: asyncio must not report it as unread."""
    future.set_exception(error)
    future.exception()
