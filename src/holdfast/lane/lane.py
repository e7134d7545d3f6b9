"""A lane that this process owns: a fact is decided, applied, laid out, made durable, published.

Owns the order of the lane's objects while this process holds the claim: one put at a time, never
number n+1 while the outcome of n is unknown. Owns the order in which old objects go, too: snapshot,
floor, deletion. Must never publish after it was fenced, nor delete what a recovery needs.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic

from holdfast.environment import Environment
from holdfast.errors import (
    Fenced,
    HoldfastError,
    InvariantViolation,
    StoreUnavailable,
)
from holdfast.identifiers import LaneId, LaneNumber
from holdfast.lane.claim import ClaimedLane, put_entry
from holdfast.lane.effects import Effect, Indexed, LaneLost, Stored
from holdfast.lane.entry import Buffer, EntryKind, SealedEntry, seal
from holdfast.lane.floor import raise_floor, sweep
from holdfast.lane.journal import Journal
from holdfast.lane.journal_queue import (
    FlushRules,
    JournaledEntry,
    JournalQueue,
    JournalSettings,
    Put,
    spooled_number,
)
from holdfast.lane.pending import GroupSettings, PendingEntries, PendingEntry, fail_future
from holdfast.lane.proof import ClaimProof, Tried
from holdfast.lane.recovery import read_head
from holdfast.lane.snapshots import SNAPSHOT_EVERY, Snapshots
from holdfast.lane.state import F, StateKind, StateT
from holdfast.store.interface import Store
from holdfast.store.put_if_absent import Lost

CLOSE_PATIENCE_S = 20.0
"""How long a closing lane waits for the store. After that, the lane is as after a crash."""
PREPARE_S_MAX = 10.0
"""How long a hand-off is prepared: less than the broker that asked for the lane waits."""
UNFLUSHED_FACTOR_MAX = 4
"""How many times the flush size may be only in the journal before produces are refused."""


class Lane(Generic[StateT, F]):
    """The one writer of a lane, and the one owner of its state in this process."""

    def __init__(
        self,
        *,
        store: Store,
        environment: Environment,
        claimed: ClaimedLane[StateT],
        kind: StateKind[StateT],
        settings: GroupSettings,
        on_lost: Callable[[HoldfastError], None],
        snapshot_every: int = SNAPSHOT_EVERY,
        journal: Journal | None = None,
        journal_settings: JournalSettings | None = None,
    ) -> None:
        self.store = store
        self.environment = environment
        self.state = claimed.state
        self.claimed_lane = claimed
        self.cursor = claimed.cursor
        self.failure: HoldfastError | None = None
        self._encode_facts = kind.encode_facts
        self._settings = settings
        self._on_lost = on_lost
        self._pending = PendingEntries[F](environment, settings)
        self._snapshots = Snapshots(
            store=store,
            environment=environment,
            every=snapshot_every,
            entries_read=claimed.entries_read,
        )
        self._proof = ClaimProof(
            store=store,
            environment=environment,
            claim=claimed.cursor,
            writer=claimed.writer,
            valid_ms=settings.claim_valid_ms,
            validated_at=claimed.started_at,
        )
        self._wake = asyncio.Event()
        self._closing = False
        self._released = False
        self._closed: asyncio.Task[bool] | None = None
        self._failed: asyncio.Future[None] | None = None
        self._flush_wanted = False
        self._background: set[asyncio.Task[None]] = set()
        self.queue: JournalQueue[F] | None = None
        """The facts that go by the journal; None if the lane has none."""
        if journal is not None:
            self.queue = JournalQueue(
                lane=self.lane,
                journal=journal,
                environment=environment,
                settings=journal_settings or JournalSettings(),
                state=claimed.state,
                encode_facts=kind.encode_facts,
                consume=self.consume,
                prove=self._prove_for_journal,
                flush_due=self.flush_journal_soon,
            )
        self._task = asyncio.get_running_loop().create_task(self._run())

    def consume(self, effect: Effect[F]) -> None:
        """Act on what follows from a step of the lane. This is the only call out of a lane."""

    @property
    def lane(self) -> LaneId:
        return self.cursor.lane

    @property
    def leader_epoch(self) -> int:
        return self.cursor.leader_epoch

    @property
    def pending_bytes(self) -> int:
        return self._pending.bytes

    @property
    def is_overloaded(self) -> bool:
        """True if `pending_bytes_max` bytes or more wait for the store."""
        return self._pending.bytes >= self._settings.pending_bytes_max

    @property
    def is_open(self) -> bool:
        """True if facts may still be decided."""
        return self.failure is None and not self._closing

    def add(self, fact: F, payload: Buffer | None = None) -> None:
        """Apply a decided fact and add it to the next object."""
        if not self.is_open:
            raise InvariantViolation(
                f"lane {self.lane}: a write was accepted after this broker closed the lane"
            )
        self.state.apply(fact)
        self._pending.add(fact, payload)
        self._wake.set()

    def add_to_journal(
        self,
        fact: F,
        payload: Buffer | None = None,
        *,
        flush: FlushRules | None = None,
        after_put: bool = False,
    ) -> None:
        """Apply a decided fact and add it to the next frame of the journal.

        `after_put`: the fact follows one that is in the object whose put is under way.
        """
        queue = self.queue
        if queue is None or not self.is_open:
            raise InvariantViolation(
                f"lane {self.lane}: a write for the spool, but this broker has no spool open"
            )
        self.state.apply(fact)
        in_flight = self._pending.in_flight
        put = None
        if after_put and in_flight is not None:
            put = Put(self.cursor.next_number, in_flight.done)
        queue.add(fact, payload, flush, put)

    @property
    def takes_to_journal(self) -> bool:
        """True if facts may become durable in the journal first."""
        return self.queue is not None and self.queue.is_usable

    def is_journal_full(self, flush: FlushRules) -> bool:
        """True if so many bytes are only in the journal that the store must catch up first."""
        queue = self.queue
        return queue is not None and queue.unflushed_bytes >= UNFLUSHED_FACTOR_MAX * flush.bytes

    def flush_journal_soon(self) -> None:
        """Put everything that is only in the journal into the next object, before its own facts."""
        if self.queue is not None and self.queue.has_untaken():
            self._flush_wanted = True
            self._wake.set()
            self._pending.look_again()

    @property
    def is_flushed(self) -> bool:
        """True if everything in the journal is also in the store."""
        return self.queue is None or self.queue.is_empty

    def barrier(self, *, by_journal: bool = False) -> asyncio.Future[None] | None:
        """Return a future for when all facts so far that go that way are published.

        None if they are published already. All waiters share the future: shield it, or use flush.
        """
        if self._failed is not None:
            return self._failed
        if not by_journal:
            return self._pending.barrier()
        return self.queue.barrier() if self.queue is not None else None

    async def flush(self) -> None:
        """Wait until all facts of `add` so far are durable. Callers may give up."""
        barrier = self.barrier()
        if barrier is not None:
            await asyncio.shield(barrier)

    async def flush_journal(self) -> None:
        """Wait until everything that was added so far is in the store."""
        await self.flush()
        stored = self.queue.stored_barrier() if self.queue is not None else None
        if stored is not None:
            self.flush_journal_soon()
            await asyncio.shield(stored)

    def is_valid(self) -> bool:
        """True if the claim is proved to be the newest, so high watermarks may be reported."""
        return self.failure is None and not self._released and self._proof.is_fresh()

    def doubt(self) -> None:
        """Discard the last proof of the claim, because a newer claim may exist."""
        self._proof.doubt()

    async def validate(self) -> None:
        """Prove the claim: is the next number still free? Raises Fenced or StoreUnavailable."""
        while not self.is_valid():
            if self.failure is not None or self._released:
                raise self.failure or Fenced(f"lane {self.lane}: this broker is releasing it")
            await self._proof.look(self._tried, self._fail)

    async def _prove_for_journal(self) -> None:
        """Prove the claim, and keep it proved: without puts, nothing else does that."""
        await self.validate()
        self._proof.look_soon(self._tried, self._fail)

    def _tried(self) -> Tried:
        is_tried = self._pending.in_flight is not None
        return Tried(self.cursor.next_number, is_tried=is_tried)

    async def _run(self) -> None:
        """Put one object after the other, until the lane ends."""
        try:
            while self.failure is None:
                await self._wake.wait()
                if not self._pending and not self._flush_wanted:
                    if self._closing:
                        return
                    self._wake.clear()
                    continue
                if not self._flush_wanted:
                    await self._pending.linger()
                if self._pending or self._flush_wanted:  # neither, if the lane was fenced meanwhile
                    await self._put_next()
        except HoldfastError as error:
            self._fail(error)
        except Exception as error:
            violation = InvariantViolation(
                f"lane {self.lane}: its writer failed with an unexpected error: {error!r}"
            )
            violation.__cause__ = error
            self._fail(violation)

    def _take_next(self) -> tuple[PendingEntry[F], list[JournaledEntry[F]]]:
        """Return what the next object holds.

        Facts from the journal come first, because in a partition they were decided earlier. If they
        do not all fit, the object holds nothing else.
        """
        journaled: list[JournaledEntry[F]] = []
        if self._flush_wanted and self.queue is not None:
            room = self._settings.group_bytes_max - self._pending.first_bytes
            journaled = self.queue.take(max(0, room))
            self._flush_wanted = self.queue.has_untaken()
        if self._flush_wanted or not self._pending:
            return self._pending.empty(), journaled
        return self._pending.take(), journaled

    async def _put_next(self) -> None:
        """Lay out the next object, make it durable, and publish its facts."""
        entry, journaled = self._take_next()
        self._pending.begin(entry)
        facts = [fact for earlier in journaled for fact in earlier.facts] + entry.facts
        payloads = [buffer for earlier in journaled for buffer in earlier.payloads] + entry.payloads
        payload = self.state.layout(facts, payloads)
        sealed = self._seal(EntryKind.DATA, self._encode_facts(facts), payload)
        header = sealed.header
        self.state.index(header, facts)
        if journaled:
            self.consume(Indexed(header.number, payload))
        after = self.cursor.advance(header)
        is_last = not self._pending and not (self.queue is not None and self.queue.has_untaken())
        if self._snapshots.count_entry() and is_last:
            self._snapshots.take(after, self.state.encode())
        started = self.environment.monotonic()
        if not await self._is_stored(sealed):
            return
        self.cursor = after
        self._proof.seen(started)
        self._pending.stored(entry)
        if journaled and self.queue is not None:
            self.queue.flushed(journaled)
        self.state.publish(entry.facts)
        if self._snapshots.is_of(header.number):
            self._snapshots.count_again()
            self.spawn(self._snapshots.write())
        frames = [spooled_number(found.frame) for found in journaled if found.frame is not None]
        self.consume(Stored(header, facts, payload, frames))
        entry.done.set_result(None)

    async def _is_stored(self, sealed: SealedEntry) -> bool:
        """Put an object. False if this broker may not publish it, because the lane has ended."""
        number = sealed.header.number
        outcome = await put_entry(self.store, self.environment, sealed)
        if isinstance(outcome, Lost):
            head = await read_head(self.store, self.environment, self.lane, number)
            self._fail(self._proof.fenced_by(number, head.header if head else None))
        elif outcome.attempts > 1 and await self._proof.is_below_floor(number):
            # An earlier try had landed, and a successor deleted it: our object does not count.
            self._fail(self._proof.fenced_by(number, None))
        # It may have landed while a probe saw a newer claim: only the next owner may publish it.
        return self.failure is None

    def _seal(self, kind: EntryKind, facts: bytes, payload: Sequence[Buffer]) -> SealedEntry:
        return seal(
            kind=kind,
            lane=self.lane,
            number=self.cursor.next_number,
            claim=self.cursor.claim,
            writer=self.claimed_lane.writer,
            previous=self.cursor.hash,
            facts=facts,
            payload=payload,
            written_ms=self.environment.now_ms(),
        )

    def _fail(self, error: HoldfastError) -> None:
        if self.failure is not None:
            return
        self.failure = error
        self._failed = self._pending.empty().done
        fail_future(self._failed, error)
        self._pending.fail(error)
        if self.queue is not None:
            self.queue.end(error)
        self._wake.set()
        self._on_lost(error)
        self._snapshots.end()
        self.consume(LaneLost(error))

    def stop_adding(self) -> None:
        """Accept no more facts, and put the waiting ones without lingering."""
        self._closing = True
        self.flush_journal_soon()
        self._wake.set()
        self._pending.hurry()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run background work until it ends or the lane closes."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def snapshot_now(self) -> LaneNumber:
        """Write a snapshot of everything decided so far; return the number that it covers."""
        await self.flush_journal()
        wanted = self.cursor.next_number - 1
        while self._snapshots.number < wanted:
            if self.failure is not None:
                raise self.failure
            self._snapshots.want()
            if self._snapshots.is_under_way:
                await self._snapshots.wait()
            elif self.barrier() is not None or not self.is_flushed:
                await self.flush_journal()
            else:
                # Nothing is under way, so the state is exactly that of the last object.
                self._snapshots.take(self.cursor, self.state.encode())
                self._snapshots.count_again()
                await self._snapshots.write()
        return self._snapshots.number

    async def drop_up_to(self, number: LaneNumber, keep: Sequence[int]) -> int:
        """Snapshot the lane, then delete its objects up to `number` except for claims (`keep`)."""
        await self.snapshot_now()
        await raise_floor(self.store, self.environment, self.lane, LaneNumber(number + 1))
        return await self.sweep(keep, up_to=number)

    async def sweep(self, keep: Sequence[int], *, up_to: LaneNumber) -> int:
        """Delete objects below the floor that an earlier owner may have left."""
        return await sweep(self.store, self.environment, self.lane, keep, up_to=up_to)

    async def prepare_to_leave(self, patience_s: float = PREPARE_S_MAX) -> None:
        """Flush the journal and take a snapshot while the lane is still served.

        Then the hand-off takes only a moment, however much was only in the journal, and the next
        owner starts quickly.
        """
        try:
            async with asyncio.timeout(min(patience_s, PREPARE_S_MAX)):
                await self.snapshot_now()
        except (HoldfastError, TimeoutError):
            pass  # only a shortcut: close() flushes too, and recovery works without a snapshot

    async def close(self, *, release: bool, patience_s: float = CLOSE_PATIENCE_S) -> bool:
        """Put the waiting facts and, if `release`, a release. From here on nothing may be answered.

        Returns False if the store did not answer in time: the decided facts may be in it or not,
        there is no release, and the next owner waits. Several tasks may close a lane at once (it
        is handed over, lost, and the broker stops). The first call does the work, the others wait.
        """
        self.stop_adding()
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._closed is None:
            work = self._close(release=release, patience_s=patience_s)
            self._closed = asyncio.get_running_loop().create_task(work)
        return await asyncio.shield(self._closed)

    async def _close(self, *, release: bool, patience_s: float) -> bool:
        try:
            async with asyncio.timeout(patience_s):
                if self.failure is None:
                    await asyncio.wait({self._task})
                if release and self.failure is None:
                    await self._put_release()
        except TimeoutError:
            self._fail(
                StoreUnavailable(
                    f"lane {self.lane}: the store did not answer while this broker closed the lane"
                )
            )
        is_done = not isinstance(self.failure, StoreUnavailable)
        self.failure = self.failure or Fenced(f"lane {self.lane}: this broker has closed it")
        tasks = [task for task in (self._task, self._proof.task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if self.queue is not None:
            await self.queue.close()
        return is_done

    async def _put_release(self) -> None:
        self._released = True
        entry = self._seal(EntryKind.RELEASE, b"", ())
        outcome = await put_entry(self.store, self.environment, entry)
        if not isinstance(outcome, Lost):  # if lost, the next owner was faster and needs no release
            self.cursor = self.cursor.advance(entry.header)
