"""One lane, followed by reads alone while its owner writes, rewrites and deletes.

Owns the order of reads that makes each step safe: objects first, the floor after them, and only
then are the objects trusted. Must never write, and never go back to an older state of the lane.
"""

import asyncio
from typing import Generic

from holdfast.environment import Environment
from holdfast.errors import CorruptObject
from holdfast.identifiers import LaneId
from holdfast.lane.cursor import Cursor
from holdfast.lane.entry import EntryKind
from holdfast.lane.floor import read_floor
from holdfast.lane.recovery import EntryHead, Recovered, apply_head, read_head, recover
from holdfast.lane.state import StateKind, StateT
from holdfast.store.interface import Store

READS_AT_ONCE_MAX = 16
FOLLOWED_AT_ONCE_MAX = 1_000
"""If a reader is further behind, the newest snapshot is faster than one object after the other."""


class FollowedLane(Generic[StateT]):
    """The state of a lane as of the last refresh; one refresh at a time."""

    def __init__(
        self, store: Store, environment: Environment, lane: LaneId, kind: StateKind[StateT]
    ) -> None:
        self.lane = lane
        self.payload_starts: dict[int, int] = {}
        """Where the payload begins in objects that were read since the lane was recovered."""
        self.recoveries = 0
        self.entries_followed = 0
        self._store = store
        self._environment = environment
        self._kind = kind
        self._recovered: Recovered[StateT] | None = None

    @property
    def state(self) -> StateT:
        if self._recovered is None:
            raise CorruptObject(f"lane {self.lane} was not read yet")
        return self._recovered.state

    @property
    def cursor(self) -> Cursor:
        if self._recovered is None:
            return Cursor.at_start_of(self.lane)
        return self._recovered.cursor

    async def refresh(self) -> None:
        """Take in all that the lane has now; what was taken in before is not read again."""
        if self._recovered is None:
            await self._recover()
            return
        at_once = 1
        limit = self._recovered.cursor.next_number + FOLLOWED_AT_ONCE_MAX
        while True:
            first = self._recovered.cursor.next_number
            heads = await self._heads(first, at_once)
            # An object below the floor was deleted, or created again by a stalled claimer: neither
            # its absence nor its content says anything. The floor rises before anything is deleted,
            # so a floor that is low after the reads was low while they were made.
            if await read_floor(self._store, self._environment, self.lane) > first:
                await self._recover()
                return
            for head in heads:
                self._take(self._recovered, head)
            if len(heads) < at_once:
                return
            if self._recovered.cursor.next_number >= limit:
                await self._recover()
                return
            at_once = min(READS_AT_ONCE_MAX, 2 * at_once)

    async def _heads(self, first: int, count: int) -> list[EntryHead]:
        """Read the objects from a number on, up to the first that is not there."""
        found = await asyncio.gather(
            *(read_head(self._store, self._environment, self.lane, first + i) for i in range(count))
        )
        heads: list[EntryHead] = []
        for head in found:
            if head is None:
                break
            heads.append(head)
        return heads

    def _take(self, recovered: Recovered[StateT], head: EntryHead) -> None:
        apply_head(recovered, head, self._kind)
        self.entries_followed += 1
        if head.header.kind is EntryKind.DATA and head.header.payload_bytes:
            self.payload_starts[head.header.number] = head.header.payload_start

    async def _recover(self) -> None:
        before = self.cursor
        recovered = await recover(self._store, self._environment, self.lane, self._kind)
        if recovered.cursor.next_number < before.next_number:
            raise CorruptObject(
                f"lane {self.lane} ends at number {recovered.cursor.next_number - 1}, but number"
                f" {before.next_number - 1} was there before: was the store put back to an older"
                " state?"
            )
        self._recovered = recovered
        self.recoveries += 1

    def forget_starts_up_to(self, number: int) -> None:
        """Forget payload starts up to a number: nothing points into rewritten objects any more."""
        for known in [known for known in self.payload_starts if known <= number]:
            del self.payload_starts[known]
