"""A lane that this process owns: its state, its writer, its snapshots and its floor.

Owns the moment of a snapshot (only when the state is exactly that of one number) and the order in
which old objects go: snapshot, floor, deletion. Must never delete an object that a recovery needs.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic

from holdfast.environment import Environment
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.identifiers import LaneId, LaneNumber
from holdfast.lane.appender import CLOSE_PATIENCE_S, Appender, GroupSettings, Listener
from holdfast.lane.claim import ClaimedLane
from holdfast.lane.cursor import Cursor
from holdfast.lane.entry import Buffer, EntryHeader
from holdfast.lane.floor import raise_floor, read_floor
from holdfast.lane.keys import (
    entry_key,
    entry_prefix,
    number_in,
    snapshot_key,
    snapshot_prefix,
)
from holdfast.lane.snapshot import encode_snapshot
from holdfast.lane.spool.disk import Disk
from holdfast.lane.spool.frames import SpoolId
from holdfast.lane.spool.queue import SpoolSettings
from holdfast.lane.spool.spool import Spool
from holdfast.lane.state import F, StateKind, StateT
from holdfast.store.interface import Store
from holdfast.store.patience import patiently

SNAPSHOT_EVERY = 500
SNAPSHOTS_KEPT = 2
DELETES_AT_ONCE = 500
PREPARE_S_MAX = 10.0
"""How long a hand-off is prepared: less than the broker that asked for the lane waits."""


class OwnedLane(Listener[F], Generic[StateT, F]):
    """The one owner of a lane's state in this process."""

    def __init__(
        self,
        *,
        store: Store,
        environment: Environment,
        claimed: ClaimedLane[StateT],
        kind: StateKind[StateT],
        settings: GroupSettings,
        snapshot_every: int = SNAPSHOT_EVERY,
        on_lost: Callable[[HoldfastError], None],
        disk: Disk | None = None,
        spool_settings: SpoolSettings | None = None,
    ) -> None:
        self.store = store
        self.environment = environment
        self.state = claimed.state
        self.claimed_lane = claimed
        self._on_lost = on_lost
        self._snapshot_every = snapshot_every
        self._entries_since_snapshot = claimed.entries_read
        self._snapshot_number = -1
        self._snapshot_due = False
        self._encoded: tuple[Cursor, bytes] | None = None
        self._snapshot_written = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()
        self.appender: Appender[F] = Appender(
            store=store,
            environment=environment,
            lane=claimed,
            encode_facts=kind.encode_facts,
            settings=settings,
            listener=self,
            spool=None if disk is None else Spool(disk, _spool_id(claimed)),
            spool_settings=spool_settings,
        )

    @property
    def lane(self) -> LaneId:
        return self.appender.lane

    @property
    def leader_epoch(self) -> int:
        return self.appender.cursor.leader_epoch

    def sealed(self, cursor: Cursor, *, is_last: bool) -> None:
        self._entries_since_snapshot += 1
        due = self._snapshot_due or self._entries_since_snapshot >= self._snapshot_every
        if due and is_last and self._encoded is None:
            self._encoded = (cursor, self.state.encode())

    def published(self, header: EntryHeader, facts: Sequence[F], payload: list[Buffer]) -> None:
        encoded = self._encoded
        if encoded is not None and encoded[0].next_number == header.number + 1:
            self._entries_since_snapshot = 0
            self.spawn(self._write_snapshot(*encoded))

    def fenced(self, error: HoldfastError) -> None:
        self._on_lost(error)
        self._snapshot_written.set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run background work until it ends or the lane closes."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def snapshot_now(self) -> LaneNumber:
        """Write a snapshot of everything decided so far; return the number that it covers."""
        await self.appender.flush_spool()
        wanted = self.appender.cursor.next_number - 1
        while self._snapshot_number < wanted:
            if self.appender.failure is not None:
                raise self.appender.failure
            self._snapshot_due = True
            if self._encoded is not None:
                self._snapshot_written.clear()
                await self._snapshot_written.wait()
            elif self.appender.barrier() is not None or not self.appender.is_flushed:
                await self.appender.flush_spool()
            else:
                # Nothing is under way, so the state is exactly that of the last object.
                self._encoded = (self.appender.cursor, self.state.encode())
                self._entries_since_snapshot = 0
                await self._write_snapshot(*self._encoded)
        return LaneNumber(self._snapshot_number)

    async def _write_snapshot(self, cursor: Cursor, state: bytes) -> None:
        number = cursor.next_number - 1
        key = snapshot_key(cursor.lane, number)
        body = encode_snapshot(cursor, state)
        try:
            while (
                await patiently(lambda: self.store.size(key), environment=self.environment)
            ) is None:
                await patiently(
                    lambda: self.store.create(key, [body]), environment=self.environment
                )
            await self._drop_older_snapshots()
            self._snapshot_number = max(self._snapshot_number, number)
            self._snapshot_due = False
        finally:
            self._encoded = None
            self._snapshot_written.set()

    async def _drop_older_snapshots(self) -> None:
        prefix = snapshot_prefix(self.lane)
        entries = await patiently(lambda: self.store.list(prefix), environment=self.environment)
        ours = sorted(entry.key for entry in entries if number_in(entry.key) is not None)
        older = ours[:-SNAPSHOTS_KEPT]
        if older:
            await patiently(lambda: self.store.delete(older), environment=self.environment)

    async def drop_up_to(self, number: LaneNumber, keep: Sequence[int]) -> int:
        """Snapshot the lane, then delete its objects up to `number` except for claims (`keep`)."""
        await self.snapshot_now()
        await raise_floor(self.store, self.environment, self.lane, LaneNumber(number + 1))
        return await self.sweep(keep, up_to=number)

    async def sweep(self, keep: Sequence[int], *, up_to: LaneNumber) -> int:
        """Delete objects below the floor, including those that an earlier owner left.

        Never past `up_to`, because `keep` names all claims only up to there: a newer owner may
        have raised the floor over claims that this owner does not know, and claims must stay.
        """
        floor = await read_floor(self.store, self.environment, self.lane)
        floor = LaneNumber(min(floor, up_to + 1))
        if floor == 0:
            return 0
        kept = {entry_key(self.lane, claim) for claim in keep}
        entries = await patiently(
            lambda: self.store.list(entry_prefix(self.lane)), environment=self.environment
        )
        limit = entry_key(self.lane, floor)
        gone = [e.key for e in entries if e.key < limit and e.key not in kept]
        for i in range(0, len(gone), DELETES_AT_ONCE):
            keys = gone[i : i + DELETES_AT_ONCE]
            await patiently(lambda keys=keys: self.store.delete(keys), environment=self.environment)
        return len(gone)

    async def prepare_to_leave(self, patience_s: float = PREPARE_S_MAX) -> None:
        """Flush the spool and take a snapshot while the lane is still served.

        Then the hand-off takes only a moment, however much was only on the disk, and the next
        owner starts quickly.
        """
        try:
            async with asyncio.timeout(min(patience_s, PREPARE_S_MAX)):
                await self.snapshot_now()
        except (HoldfastError, StoreUnavailable, TimeoutError):
            pass  # only a shortcut: close() flushes too, and recovery works without a snapshot

    async def close(self, *, release: bool, patience_s: float = CLOSE_PATIENCE_S) -> bool:
        """Put the waiting facts and, if `release`, a release; False if the store was too slow."""
        self.appender.stop_adding()
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        return await self.appender.close(release=release, patience_s=patience_s)


def _spool_id(claimed: ClaimedLane[Any]) -> SpoolId:
    return SpoolId(claimed.cursor.lane, claimed.cursor.claim, claimed.writer)
