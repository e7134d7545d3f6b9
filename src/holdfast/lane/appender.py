"""Group commit: what is added while a put is under way goes into the next object.

Owns the order of a lane's objects while this process holds its claim: one put at a time, never
number n+1 while n is unknown. Knows whether the claim is still the newest, and since when. Must
never publish after it was fenced.
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
from holdfast.lane.entry import Buffer, EntryHeader, EntryKind, SealedEntry, seal
from holdfast.lane.floor import read_floor
from holdfast.lane.recovery import EntryHead, read_head
from holdfast.lane.state import F, LaneState
from holdfast.store.interface import Store
from holdfast.store.put_if_absent import Lost

PROBE_PATIENCE_S = 2.0
"""How long a probe of the next number is tried before those who wait for it are told."""
PROBE_PAUSE_S = 0.5
"""For so long after a probe that failed the next ones fail too, without asking: a request for many
partitions waits for the store once."""
CLOSE_PATIENCE_S = 20.0
"""How long a lane that closes waits for the store; what is then open is as after a crash."""

QUIET_PART = 5
"""Nothing new for this part of the linger time means that the producers wait for their answers."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """How much goes into one object, and how long it may wait for company."""

    linger_ms: int = 0
    """The longest that records wait for company before they are put."""
    linger_bytes_min: int = 0
    """Wait only where so much is expected to come meanwhile, and only while it keeps coming: a put
    that is shared costs less. 0: always wait, as one would where each put costs money."""
    group_bytes_max: int = 8 * 1024 * 1024
    pending_bytes_max: int = 128 * 1024 * 1024
    claim_valid_ms: int = 5_000


class Group(Generic[F]):
    """The facts of one object-to-be, and who waits for it."""

    __slots__ = ("bytes", "done", "facts", "opened_at", "payloads")

    def __init__(self, opened_at: float) -> None:
        self.facts: list[F] = []
        self.payloads: list[Buffer | None] = []
        self.bytes = 0
        self.opened_at = opened_at
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Nobody may be waiting when the lane is fenced, and that is no error.
        self.done.add_done_callback(lambda done: done.cancelled() or done.exception())


class Listener(Generic[F]):
    """What happens to each object, for those who care; the default is nothing."""

    def sealed(self, cursor: Cursor, *, is_last: bool) -> None:
        """The state is exactly that of `cursor` where is_last: nothing later has been applied."""

    def published(self, header: EntryHeader, facts: Sequence[F], payload: list[Buffer]) -> None:
        """The object is durable and its facts are published."""

    def fenced(self, error: HoldfastError) -> None:
        """The lane is no longer ours, or must not go on."""


class Appender(Generic[F]):
    """The one writer of a lane."""

    def __init__(
        self,
        *,
        store: Store,
        environment: Environment,
        lane: ClaimedLane[Any],
        encode_facts: Callable[[Sequence[F]], bytes],
        settings: GroupSettings,
        listener: Listener[F],
    ) -> None:
        self._store = store
        self._environment = environment
        self._state: LaneState[F] = lane.state
        self._encode_facts = encode_facts
        self._settings = settings
        self._listener = listener
        self.cursor = lane.cursor
        self.writer: WriterId = lane.writer
        self.validated_at = lane.started_at
        self.failure: HoldfastError | None = None
        self.pending_bytes = 0
        self._groups: deque[Group[F]] = deque()
        self._in_flight: Group[F] | None = None
        self._wake = asyncio.Event()
        self._full = asyncio.Event()
        self._bytes_per_s = 0.0
        self._measured_at = environment.monotonic()
        self._closing = False
        self._released = False
        self._probe: asyncio.Task[None] | None = None
        self._probe_failed_at = float("-inf")
        self._failed: asyncio.Future[None] | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def lane(self) -> LaneId:
        return self.cursor.lane

    @property
    def is_overloaded(self) -> bool:
        """Whether more waits for the store than memory should hold."""
        return self.pending_bytes >= self._settings.pending_bytes_max

    @property
    def is_open(self) -> bool:
        """Whether facts may still be decided."""
        return self.failure is None and not self._closing

    def add(self, fact: F, payload: Buffer | None = None) -> None:
        """Apply a decided fact and let it join the next object."""
        if not self.is_open:
            raise InvariantViolation(f"lane {self.lane}: a fact was decided after the lane ended")
        size = len(payload) if payload is not None else 0
        if not self._groups or self._groups[-1].bytes + size > self._settings.group_bytes_max:
            self._groups.append(Group(self._environment.monotonic()))
        group = self._groups[-1]
        self._state.apply(fact)
        group.facts.append(fact)
        group.payloads.append(payload)
        group.bytes += size
        self.pending_bytes += size
        self._wake.set()
        if group.bytes >= self._settings.group_bytes_max or len(self._groups) > 1:
            self._full.set()

    def barrier(self) -> asyncio.Future[None] | None:
        """Resolves when all that was added so far is durable; None where it is already.

        Shared by all who wait: shield it, or use flush.
        """
        if self._failed is not None:
            return self._failed
        if self._groups:
            return self._groups[-1].done
        return self._in_flight.done if self._in_flight is not None else None

    async def flush(self) -> None:
        """Wait until all that was added so far is durable; who gives up harms nobody else."""
        barrier = self.barrier()
        if barrier is not None:
            await asyncio.shield(barrier)

    def is_valid(self) -> bool:
        """Whether the claim is known to be the newest, so that a watermark may be told."""
        age = self._environment.monotonic() - self.validated_at
        return (
            self.failure is None
            and not self._released
            and age * 1000 < self._settings.claim_valid_ms
        )

    def doubt(self) -> None:
        """Somebody has heard of a newer claim: what was known of ours no longer counts."""
        self.validated_at = float("-inf")

    async def validate(self) -> None:
        """Look whether the next number is still free; raises Fenced or StoreUnavailable."""
        while not self.is_valid():
            if self.failure is not None or self._released:
                raise self.failure or Fenced(f"lane {self.lane}: released by this broker")
            if self._probe is None:
                if self._environment.monotonic() - self._probe_failed_at < PROBE_PAUSE_S:
                    raise StoreUnavailable(f"lane {self.lane}: the store did not answer just now")
                self._probe = asyncio.get_running_loop().create_task(self._look_once())
                self._probe.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.shield(self._probe)

    async def _look_once(self) -> None:
        """One probe for all who wait; it takes itself away before anybody can wait for it again."""
        try:
            await self._look()
        except HoldfastError:
            self._probe_failed_at = self._environment.monotonic()
            raise
        finally:
            self._probe = None

    async def _look(self) -> None:
        started = self._environment.monotonic()
        number = self.cursor.next_number
        tried = self._in_flight is not None
        while (head := await self._read_ahead(number)) is not None:
            if head.header.writer != self.writer:
                self._fail(self._fenced_by(number, head.header))
                return
            number = LaneNumber(number + 1)  # our own put, whose answer is still on its way
            tried = True
        # A number that we never tried can only have been taken by a claim, and claims stay. One
        # that we did try may have landed, been taken over, rewritten and deleted by a successor.
        if (tried or self._in_flight is not None) and await self._is_below_floor(
            number, give_up_after_s=PROBE_PATIENCE_S
        ):
            self._fail(self._fenced_by(number, None))
            return
        self.validated_at = max(self.validated_at, started)

    async def _is_below_floor(
        self, number: LaneNumber, *, give_up_after_s: float | None = None
    ) -> bool:
        floor = await read_floor(
            self._store, self._environment, self.lane, give_up_after_s=give_up_after_s
        )
        return floor > number

    async def _read_ahead(self, number: LaneNumber) -> EntryHead | None:
        try:
            async with asyncio.timeout(PROBE_PATIENCE_S):
                return await read_head(self._store, self._environment, self.lane, number)
        except TimeoutError:
            raise StoreUnavailable(
                f"lane {self.lane}: the store did not say within {PROBE_PATIENCE_S:g} s whether"
                f" number {number} is taken"
            ) from None

    def stop_adding(self) -> None:
        """Let nothing more be decided, and what waits for company go at once."""
        self._closing = True
        self._wake.set()
        self._full.set()

    async def close(self, *, release: bool) -> None:
        """Put what waits, then, where asked, a release: from here on nothing may be answered.

        A store that does not answer in time gets no release: the next owner waits, and looks.
        """
        self.stop_adding()
        try:
            async with asyncio.timeout(CLOSE_PATIENCE_S):
                if self.failure is None:
                    await asyncio.shield(self._task)
                if release and self.failure is None:
                    await self._put_release()
        except TimeoutError:
            self._fail(StoreUnavailable(f"lane {self.lane}: closed while the store did not answer"))
        self.failure = self.failure or Fenced(f"lane {self.lane}: released by this broker")
        tasks = [task for task in (self._task, self._probe) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def _put_release(self) -> None:
        self._released = True
        entry = self._seal(EntryKind.RELEASE, b"", ())
        outcome = await put_entry(self._store, self._environment, entry)
        if not isinstance(outcome, Lost):
            self.cursor = self.cursor.advance(entry.header)

    async def _run(self) -> None:
        try:
            while self.failure is None:
                await self._wake.wait()
                if not self._groups:
                    if self._closing:
                        return
                    self._wake.clear()
                    continue
                await self._linger(self._groups[0])
                if self._groups:  # or the lane was fenced meanwhile
                    await self._publish_next()
        except HoldfastError as error:
            self._fail(error)
        except Exception as error:
            violation = InvariantViolation(f"lane {self.lane}: the writer ended: {error!r}")
            violation.__cause__ = error
            self._fail(violation)

    async def _linger(self, group: Group[F]) -> None:
        """Let a group gather, where that pays: until it is full, due, or nothing more comes."""
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

    def _measure(self, group: Group[F]) -> None:
        """How fast records come, smoothed over some objects."""
        now = self._environment.monotonic()
        elapsed = max(now - self._measured_at, 0.000_1)
        self._measured_at = now
        self._bytes_per_s += (group.bytes / elapsed - self._bytes_per_s) / 4

    async def _publish_next(self) -> None:
        group = self._groups.popleft()
        self._in_flight = group
        self._measure(group)
        payload = self._state.layout(group.facts, group.payloads)
        entry = self._seal(EntryKind.DATA, self._encode_facts(group.facts), payload)
        after = self.cursor.advance(entry.header)
        self._state.index(entry.header, group.facts)
        self._listener.sealed(after, is_last=not self._groups)
        started = self._environment.monotonic()
        outcome = await put_entry(self._store, self._environment, entry)
        if isinstance(outcome, Lost):
            head = await read_head(self._store, self._environment, self.lane, entry.header.number)
            self._fail(self._fenced_by(entry.header.number, head.header if head else None))
            return
        if outcome.attempts > 1 and await self._is_below_floor(entry.header.number):
            # An earlier try had landed, and a successor deleted it: this number is dead.
            self._fail(self._fenced_by(entry.header.number, None))
            return
        if self.failure is not None:
            return  # it landed, but a probe saw a newer claim: it is the next owner's to tell
        self.cursor = after
        self.validated_at = max(self.validated_at, started)
        self._in_flight = None
        self.pending_bytes -= group.bytes
        self._state.publish(group.facts)
        self._listener.published(entry.header, group.facts, payload)
        group.done.set_result(None)

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

    def _fenced_by(self, number: LaneNumber, header: EntryHeader | None) -> Fenced:
        whom = (
            f"claim {header.claim} (writer {header.writer.hex()})" if header else "another writer"
        )
        return Fenced(
            f"lane {self.lane}: number {number} was taken by {whom}; this broker's claim"
            f" {self.cursor.claim} has ended"
        )

    def _fail(self, error: HoldfastError) -> None:
        if self.failure is not None:
            return
        self.failure = error
        self._failed = Group[F](self._environment.monotonic()).done
        self._failed.set_exception(error)
        waiting = [self._in_flight] if self._in_flight is not None else []
        for group in (*waiting, *self._groups):
            if not group.done.done():
                group.done.set_exception(error)
        self._groups.clear()
        self._wake.set()
        self._listener.fenced(error)


def is_fatal(error: HoldfastError) -> bool:
    """Whether a lane that ended with this error needs a person, not a new claim."""
    return isinstance(error, StopError)
