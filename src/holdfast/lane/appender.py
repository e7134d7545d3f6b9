"""Group commit: facts that are added while a put is under way go into the next lane object.

Owns the order of a lane's objects while this process holds the claim: one put at a time, never
number n+1 while the outcome of n is unknown. Must never publish after it was fenced.
"""

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic

from holdfast.environment import Environment
from holdfast.errors import (
    Fenced,
    HoldfastError,
    InvariantViolation,
    StopError,
    StoreUnavailable,
)
from holdfast.identifiers import LaneId, LaneNumber, WriterId
from holdfast.lane.claim import ClaimedLane, put_entry
from holdfast.lane.cursor import Cursor
from holdfast.lane.entry import SPOOLED, Buffer, EntryHeader, EntryKind, SealedEntry, seal
from holdfast.lane.proof import ClaimProof, Tried
from holdfast.lane.recovery import read_head
from holdfast.lane.spool.queue import FlushRules, Put, SpooledGroup, SpoolQueue, SpoolSettings
from holdfast.lane.spool.spool import Spool
from holdfast.lane.state import F, LaneState
from holdfast.store.interface import Store
from holdfast.store.put_if_absent import Lost

CLOSE_PATIENCE_S = 20.0
"""How long a closing lane waits for the store. After that, the lane is as after a crash."""

UNFLUSHED_FACTOR_MAX = 4
"""How many times the flush size may be only on the local disk before produces are refused."""
QUIET_PART = 5
"""A group is put if 1/QUIET_PART of the linger time brings no fact: producers wait for it."""


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
        # If the lane is fenced while no caller waits, asyncio must not report an unread exception.
        self.done.add_done_callback(lambda done: done.cancelled() or done.exception())


class Listener(Generic[F]):
    """The callbacks for the steps of a lane's objects. By default they do nothing."""

    def sealed(self, cursor: Cursor, *, is_last: bool) -> None:
        """Handle a sealed object, before its put. If `is_last`, the state is that of `cursor`."""

    def adding(self, fact: F) -> None:
        """Handle a fact that goes to the store and not by the disk, before it is applied."""

    def flushing(self, header: EntryHeader, payload: list[Buffer]) -> None:
        """Handle an object with facts from the spool: it is indexed, but not in the store yet."""

    def spooled(self, frame: EntryHeader, facts: Sequence[F], payload: list[Buffer]) -> None:
        """Handle a frame that is on the disk but not in the store."""

    def spool_published(self, facts: Sequence[F], *, by_disk: bool) -> None:
        """Handle published facts of the spool. `by_disk`: they are not in the store yet."""

    def flushed(self, frames: Sequence[EntryHeader]) -> None:
        """Handle frames that are in the store now."""

    def published(self, header: EntryHeader, facts: Sequence[F], payload: list[Buffer]) -> None:
        """Handle an object that is durable and whose facts are published."""

    def fenced(self, error: HoldfastError) -> None:
        """Handle the end of the lane: this broker has lost it, or must not continue it."""


class Appender(Generic[F]):
    """The one writer of a lane in its owner's process."""

    def __init__(
        self,
        *,
        store: Store,
        environment: Environment,
        lane: ClaimedLane[Any],
        encode_facts: Callable[[Sequence[F]], bytes],
        settings: GroupSettings,
        listener: Listener[F],
        spool: Spool | None = None,
        spool_settings: SpoolSettings | None = None,
    ) -> None:
        self._store = store
        self._environment = environment
        self._state: LaneState[F] = lane.state
        self._encode_facts = encode_facts
        self._settings = settings
        self._listener = listener
        self.cursor = lane.cursor
        self.writer: WriterId = lane.writer
        self.failure: HoldfastError | None = None
        self.pending_bytes = 0
        self._groups: deque[PendingEntry[F]] = deque()
        self._in_flight: PendingEntry[F] | None = None
        self._wake = asyncio.Event()
        self._full = asyncio.Event()
        self._bytes_per_s = 0.0
        self._measured_at = environment.monotonic()
        self._closing = False
        self._released = False
        self._closed: asyncio.Task[bool] | None = None
        self._proof = ClaimProof(
            store=store,
            environment=environment,
            claim=lane.cursor,
            writer=lane.writer,
            valid_ms=settings.claim_valid_ms,
            validated_at=lane.started_at,
        )
        self._failed: asyncio.Future[None] | None = None
        self._flush_wanted = False
        self.queue: SpoolQueue[F] | None = None
        """The facts that go by the local disk; None if the broker has no spool."""
        if spool is not None:
            self.queue = SpoolQueue(
                spool=spool,
                environment=environment,
                settings=spool_settings or SpoolSettings(),
                layout=self._state.layout,
                encode_facts=encode_facts,
                written=self._written,
                publish=self._publish_spooled,
                prove=self._prove_for_disk,
                flush_due=self.flush_spool_soon,
            )
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def lane(self) -> LaneId:
        return self.cursor.lane

    @property
    def is_overloaded(self) -> bool:
        """True if `pending_bytes_max` bytes or more wait for the store."""
        return self.pending_bytes >= self._settings.pending_bytes_max

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
        size = len(payload) if payload is not None else 0
        if not self._groups or self._groups[-1].bytes + size > self._settings.group_bytes_max:
            self._groups.append(PendingEntry(self._environment.monotonic()))
        self._listener.adding(fact)
        group = self._groups[-1]
        self._state.apply(fact)
        group.facts.append(fact)
        group.payloads.append(payload)
        group.bytes += size
        self.pending_bytes += size
        self._wake.set()
        if group.bytes >= self._settings.group_bytes_max or len(self._groups) > 1:
            self._full.set()

    @property
    def takes_to_disk(self) -> bool:
        """True if facts may become durable on the local disk first."""
        return self.queue is not None and self.queue.is_usable

    def is_spool_full(self, flush: FlushRules) -> bool:
        """True if so many bytes are only on the disk that the store must catch up first."""
        queue = self.queue
        return queue is not None and queue.unflushed_bytes >= UNFLUSHED_FACTOR_MAX * flush.bytes

    def add_to_disk(
        self,
        fact: F,
        payload: Buffer | None = None,
        *,
        flush: FlushRules | None = None,
        after_put: bool = False,
    ) -> None:
        """Apply a decided fact and add it to the next frame on the disk.

        `after_put`: the fact follows one that is in the object whose put is under way.
        """
        queue = self.queue
        if queue is None or not self.is_open:
            raise InvariantViolation(
                f"lane {self.lane}: a write for the spool, but this broker has no spool open"
            )
        self._state.apply(fact)
        put = None
        if after_put and self._in_flight is not None:
            put = Put(self.cursor.next_number, self._in_flight.done)
        queue.add(fact, payload, flush, put)

    def disk_barrier(self) -> asyncio.Future[None] | None:
        """Return a future for when all spooled facts are published; None if they are."""
        if self._failed is not None:
            return self._failed
        return self.queue.barrier() if self.queue is not None else None

    def flush_spool_soon(self) -> None:
        """Put everything that is only on the disk into the next object, before its own facts."""
        if self.queue is not None and self.queue.has_untaken():
            self._flush_wanted = True
            self._wake.set()
            self._full.set()

    @property
    def is_flushed(self) -> bool:
        """True if everything on the disk is also in the store."""
        return self.queue is None or self.queue.is_empty

    async def flush_spool(self) -> None:
        """Wait until everything that was added so far is in the store."""
        await self.flush()
        stored = self.queue.stored_barrier() if self.queue is not None else None
        if stored is not None:
            self.flush_spool_soon()
            await asyncio.shield(stored)

    def barrier(self) -> asyncio.Future[None] | None:
        """Return a future for when all facts of `add` so far are durable.

        None if they are durable already. All waiters share the future: shield it, or use flush.
        """
        if self._failed is not None:
            return self._failed
        if self._groups:
            return self._groups[-1].done
        return self._in_flight.done if self._in_flight is not None else None

    async def flush(self) -> None:
        """Wait until all facts of `add` so far are durable. Callers may give up."""
        barrier = self.barrier()
        if barrier is not None:
            await asyncio.shield(barrier)

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

    async def _prove_for_disk(self) -> None:
        """Prove the claim, and keep it proved: without puts, nothing else does that."""
        await self.validate()
        self._proof.look_soon(self._tried, self._fail)

    def _tried(self) -> Tried:
        return Tried(self.cursor.next_number, is_tried=self._in_flight is not None)

    def stop_adding(self) -> None:
        """Accept no more facts, and put the waiting ones without lingering."""
        self._closing = True
        self.flush_spool_soon()
        self._wake.set()
        self._full.set()

    async def close(self, *, release: bool, patience_s: float = CLOSE_PATIENCE_S) -> bool:
        """Put the waiting facts and, if `release`, a release. From here on nothing may be answered.

        Returns False if the store did not answer in time: the decided facts may be in it or not,
        there is no release, and the next owner waits. Several tasks may close a lane at once (it
        is handed over, lost, and the broker stops). The first call does the work, the others wait.
        """
        if self._closed is None:
            work = self._close(release=release, patience_s=patience_s)
            self._closed = asyncio.get_running_loop().create_task(work)
        return await asyncio.shield(self._closed)

    async def _close(self, *, release: bool, patience_s: float) -> bool:
        self.stop_adding()
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
        outcome = await put_entry(self._store, self._environment, entry)
        if not isinstance(outcome, Lost):  # if lost, the next owner was faster and needs no release
            self.cursor = self.cursor.advance(entry.header)

    async def _run(self) -> None:
        try:
            while self.failure is None:
                await self._wake.wait()
                if not self._groups and not self._flush_wanted:
                    if self._closing:
                        return
                    self._wake.clear()
                    continue
                if not self._flush_wanted:
                    await self._linger(self._groups[0])
                if self._groups or self._flush_wanted:  # neither, if the lane was fenced meanwhile
                    await self._publish_next()
        except HoldfastError as error:
            self._fail(error)
        except Exception as error:
            violation = InvariantViolation(
                f"lane {self.lane}: its writer failed with an unexpected error: {error!r}"
            )
            violation.__cause__ = error
            self._fail(violation)

    async def _linger(self, group: PendingEntry[F]) -> None:
        """Wait, if that pays, until a group is full or due, or until no more facts arrive."""
        linger_s = self._settings.linger_ms / 1000
        due = group.opened_at + linger_s
        thrifty = self._settings.linger_bytes_min == 0
        if not thrifty and self._bytes_per_s * linger_s < self._settings.linger_bytes_min:
            return
        while not self._closing and len(self._groups) == 1:
            left_s = due - self._environment.monotonic()
            if left_s <= 0 or group.bytes >= self._settings.group_bytes_max:
                return
            gathered = len(group.facts)
            self._full.clear()
            try:
                async with asyncio.timeout(
                    left_s if thrifty else min(left_s, linger_s / QUIET_PART)
                ):
                    await self._full.wait()
            except TimeoutError:
                if len(group.facts) == gathered:
                    return

    def _measure(self, group: PendingEntry[F]) -> None:
        """Update the rate at which record bytes arrive, smoothed over several objects."""
        now = self._environment.monotonic()
        elapsed = max(now - self._measured_at, 0.000_1)
        self._measured_at = now
        self._bytes_per_s += (group.bytes / elapsed - self._bytes_per_s) / 4

    def _next_group(self) -> tuple[PendingEntry[F], list[SpooledGroup[F]]]:
        """Return the groups of the next object.

        Spooled groups come first, because in a partition they were decided earlier. If they do not
        all fit, the object holds nothing else.
        """
        taken: list[SpooledGroup[F]] = []
        if self._flush_wanted and self.queue is not None:
            size = self._groups[0].bytes if self._groups else 0
            taken = self.queue.take(max(0, self._settings.group_bytes_max - size))
            self._flush_wanted = self.queue.has_untaken()
        if self._flush_wanted or not self._groups:
            return PendingEntry(self._environment.monotonic()), taken
        return self._groups.popleft(), taken

    async def _publish_next(self) -> None:
        group, taken = self._next_group()
        self._in_flight = group
        self._measure(group)
        facts = [fact for spooled in taken for fact in spooled.facts] + group.facts
        payloads = [buffer for spooled in taken for buffer in spooled.payloads] + group.payloads
        payload = self._state.layout(facts, payloads)
        entry = self._seal(EntryKind.DATA, self._encode_facts(facts), payload)
        after = self.cursor.advance(entry.header)
        self._state.index(entry.header, facts)
        if taken:
            self._listener.flushing(entry.header, payload)
        has_more = self.queue is not None and self.queue.has_untaken()
        self._listener.sealed(after, is_last=not self._groups and not has_more)
        started = self._environment.monotonic()
        outcome = await put_entry(self._store, self._environment, entry)
        if isinstance(outcome, Lost):
            head = await read_head(self._store, self._environment, self.lane, entry.header.number)
            self._fail(self._proof.fenced_by(entry.header.number, head.header if head else None))
            return
        if outcome.attempts > 1 and await self._proof.is_below_floor(entry.header.number):
            # An earlier try had landed, and a successor deleted it: our object does not count.
            self._fail(self._proof.fenced_by(entry.header.number, None))
            return
        if self.failure is not None:
            return  # it landed, but a probe saw a newer claim: only the next owner may publish it
        self.cursor = after
        self._proof.seen(started)
        self._in_flight = None
        self.pending_bytes -= group.bytes
        if taken and self.queue is not None:
            self.queue.flushed(taken)
        self._state.publish(group.facts)
        self._listener.published(entry.header, facts, payload)
        if taken:
            self._listener.flushed([found.frame for found in taken if found.frame is not None])
        group.done.set_result(None)

    def _written(self, group: SpooledGroup[F], payload: list[Buffer]) -> None:
        """Index a written frame: its records are found under it until they are in the store."""
        if group.frame is not None:
            self._state.index(spooled_header(group.frame), group.facts)
            self._listener.spooled(group.frame, group.facts, payload)

    def _publish_spooled(self, group: SpooledGroup[F]) -> None:
        self._state.publish(group.facts)
        self._listener.spool_published(group.facts, by_disk=not group.stored.done())

    def _seal(self, kind: EntryKind, facts: bytes, payload: Sequence[Buffer]) -> SealedEntry:
        return seal(
            kind=kind,
            lane=self.lane,
            number=self.cursor.next_number,
            claim=self.cursor.claim,
            writer=self.writer,
            previous=self.cursor.hash,
            facts=facts,
            payload=payload,
            written_ms=self._environment.now_ms(),
        )

    def _fail(self, error: HoldfastError) -> None:
        if self.failure is not None:
            return
        self.failure = error
        self._failed = PendingEntry[F](self._environment.monotonic()).done
        self._failed.set_exception(error)
        waiting = [self._in_flight] if self._in_flight is not None else []
        for group in (*waiting, *self._groups):
            if not group.done.done():
                group.done.set_exception(error)
        self._groups.clear()
        if self.queue is not None:
            self.queue.end(error)
        self._wake.set()
        self._listener.fenced(error)


def spooled_header(frame: EntryHeader) -> EntryHeader:
    """Return a frame's header for the index: under a number that no lane object has."""
    return frame._replace(number=LaneNumber(SPOOLED + frame.number))


def is_fatal(error: HoldfastError) -> bool:
    """True if a lane that ended with this error needs a person, not a new claim."""
    return isinstance(error, StopError)
