"""The snapshots of a lane that this process owns.

Owns the moment of a snapshot: only when the state is exactly that of one number. Must never say
that a snapshot is written before it is in the store.
"""

import asyncio

from holdfast.environment import Environment
from holdfast.identifiers import LaneNumber
from holdfast.lane.cursor import Cursor
from holdfast.lane.keys import number_in, snapshot_key, snapshot_prefix
from holdfast.lane.snapshot import encode_snapshot
from holdfast.store.interface import Store
from holdfast.store.patience import patiently

SNAPSHOT_EVERY = 500
SNAPSHOTS_KEPT = 2


class Snapshots:
    """Which snapshot of a lane is due, is being written, and was written last."""

    def __init__(
        self, *, store: Store, environment: Environment, every: int, entries_read: int
    ) -> None:
        self.number = LaneNumber(-1)
        """The number that the newest snapshot of this owner covers; -1 if there is none."""
        self._store = store
        self._environment = environment
        self._every = every
        self._entries_since = entries_read
        self._is_wanted = False
        self._encoded: tuple[Cursor, bytes] | None = None
        self._written = asyncio.Event()

    @property
    def is_under_way(self) -> bool:
        return self._encoded is not None

    def want(self) -> None:
        """Let the next chance be taken."""
        self._is_wanted = True

    def count_entry(self) -> bool:
        """Count a sealed object. True if a snapshot is due, and none is under way."""
        self._entries_since += 1
        is_due = self._is_wanted or self._entries_since >= self._every
        return is_due and self._encoded is None

    def take(self, cursor: Cursor, state: bytes) -> None:
        """Take the state, which must be exactly that of `cursor`."""
        self._encoded = (cursor, state)

    def is_of(self, number: LaneNumber) -> bool:
        """True if the snapshot under way is that of an object."""
        return self._encoded is not None and self._encoded[0].next_number == number + 1

    async def write(self) -> None:
        """Write the snapshot under way. Its object must be in the store."""
        if self._encoded is None:
            return
        cursor, state = self._encoded
        number = LaneNumber(cursor.next_number - 1)
        key = snapshot_key(cursor.lane, number)
        body = encode_snapshot(cursor, state)
        try:
            while (
                await patiently(lambda: self._store.size(key), environment=self._environment)
            ) is None:
                await patiently(
                    lambda: self._store.create(key, [body]), environment=self._environment
                )
            await self._drop_older(snapshot_prefix(cursor.lane))
            self.number = max(self.number, number)
            self._is_wanted = False
        finally:
            self._encoded = None
            self._written.set()

    def count_again(self) -> None:
        """Count objects from here on: a snapshot of the newest one is on its way."""
        self._entries_since = 0

    async def wait(self) -> None:
        """Wait for the snapshot under way, or for the end of the lane."""
        self._written.clear()
        await self._written.wait()

    def end(self) -> None:
        """Wake all waiters: the lane has ended."""
        self._written.set()

    async def _drop_older(self, prefix: str) -> None:
        entries = await patiently(lambda: self._store.list(prefix), environment=self._environment)
        ours = sorted(entry.key for entry in entries if number_in(entry.key) is not None)
        older = ours[:-SNAPSHOTS_KEPT]
        if older:
            await patiently(lambda: self._store.delete(older), environment=self._environment)
