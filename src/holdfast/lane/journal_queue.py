"""Facts that become durable in a journal first, such as a local disk, and in the store later.

Owns the order: an entry is published when it is durable in the journal or in the store, whichever
comes first, and never before an earlier entry. Must never publish an entry that is only in the
journal while the claim is not proved, nor forget an entry before it is in the store.
"""

import asyncio
import dataclasses
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple

from holdfast.environment import Environment
from holdfast.errors import Fenced, HoldfastError
from holdfast.identifiers import LaneId, LaneNumber
from holdfast.lane.effects import Effect, Indexed, Journaled
from holdfast.lane.entry import SPOOLED, Buffer, EntryHeader
from holdfast.lane.journal import Journal, JournalFailed
from holdfast.lane.pending import fail_future
from holdfast.lane.state import F, LaneState

RETRY_S = 1.0
"""How long no new facts go to a journal that failed."""
STALLED_S = 3.0
"""After this long without an answer from the journal, facts go to the store instead."""
UNFLUSHED_ENTRIES_MAX = 20_000
"""This many frames are flushed whatever their size and age, because each one costs memory."""
NEVER = float("inf")


class FlushRules(NamedTuple):
    """When a fact that is only in the journal goes to the store: at the first of two limits."""

    bytes: int
    """The limit for the bytes of the lane that are only in the journal, with this fact's."""
    ms: int
    """The limit for the age of this fact."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """The size of frames, and the flush rules of facts that bring none."""

    flush_bytes: int = 64 * 1024 * 1024
    flush_ms: int = 86_400_000
    frame_bytes_max: int = 8 * 1024 * 1024

    @property
    def flush(self) -> FlushRules:
        return FlushRules(self.flush_bytes, self.flush_ms)


class Put(NamedTuple):
    """A lane object whose put is under way."""

    number: LaneNumber
    done: asyncio.Future[None]


class JournaledEntry(Generic[F]):
    """The facts of one frame, from their decision until they are in the store."""

    __slots__ = (
        "added_at",
        "after",
        "bytes",
        "done",
        "due_at",
        "facts",
        "frame",
        "is_durable",
        "is_taken",
        "payloads",
        "stored",
    )

    def __init__(self, added_at: float) -> None:
        self.facts: list[F] = []
        self.payloads: list[Buffer | None] = []
        self.bytes = 0
        self.added_at = added_at
        self.due_at = NEVER
        """When the entry goes to the store at the latest."""
        self.after: Put | None = None
        """The lane object with the facts before this entry, which is not published earlier."""
        self.frame: EntryHeader | None = None
        """The header of its frame, once that is durable in the journal."""
        self.is_durable = False
        self.is_taken = False
        """True if the entry is part of the next lane object."""
        loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = loop.create_future()
        self.stored: asyncio.Future[None] = loop.create_future()
        """Resolves when the entry is in the store; `done` when it is published."""


class JournalQueue(Generic[F]):
    """The journaled entries of one lane that are not in the store yet, oldest first."""

    def __init__(
        self,
        *,
        lane: LaneId,
        journal: Journal,
        environment: Environment,
        settings: JournalSettings,
        state: LaneState[F],
        encode_facts: Callable[[Sequence[F]], bytes],
        consume: Callable[[Effect[F]], None],
        prove: Callable[[], Awaitable[None]],
        flush_due: Callable[[], None],
    ) -> None:
        self.settings = settings
        self.unflushed_bytes = 0
        self.failure: JournalFailed | None = None
        """Why the last write to the journal failed; None while it works."""
        self.failures = 0
        self.frames = 0
        """The number of frames written."""
        self.journal = journal
        self._lane = lane
        self._environment = environment
        self._state = state
        self._encode_facts = encode_facts
        self._consume = consume
        self._prove = prove
        self._flush_due = flush_due
        self._unflushed: deque[JournaledEntry[F]] = deque()
        self._unpublished: deque[JournaledEntry[F]] = deque()
        self._open: JournaledEntry[F] | None = None
        self._wake = asyncio.Event()
        self._failed_at = float("-inf")
        self._is_open = False
        self._is_stalled = False
        self._ended: HoldfastError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._parts: dict[JournaledEntry[F], list[str]] = {}
        """The parts that may be deleted when an entry is in the store."""
        self._dropping: set[asyncio.Task[None]] = set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def is_usable(self) -> bool:
        """True if the journal takes more facts; otherwise they go straight to the store."""
        rested = self._environment.monotonic() - self._failed_at >= RETRY_S
        works = (self.failure is None or rested) and not self._is_stalled
        return self._is_open and self._ended is None and works

    @property
    def is_empty(self) -> bool:
        return not self._unflushed

    @property
    def oldest_at(self) -> float | None:
        """The monotonic time when the oldest entry was added; None if there is none."""
        return self._unflushed[0].added_at if self._unflushed else None

    def add(
        self,
        fact: F,
        payload: Buffer | None,
        flush: FlushRules | None = None,
        after: Put | None = None,
    ) -> None:
        """Add an applied fact to the next frame. It is not published before `after`."""
        rules = flush or self.settings.flush
        now = self._environment.monotonic()
        entry = self._open
        if entry is None or entry.bytes >= self.settings.frame_bytes_max:
            entry = self._open = JournaledEntry(now)
            self._unflushed.append(entry)
            self._unpublished.append(entry)
        entry.after = after or entry.after
        entry.due_at = min(entry.due_at, now + rules.ms / 1000)
        if entry.due_at < self._timer_at:
            self._set_timer(entry.due_at)
        entry.facts.append(fact)
        entry.payloads.append(payload)
        size = len(payload) if payload is not None else 0
        entry.bytes += size
        self.unflushed_bytes += size
        self._wake.set()
        is_much = self.unflushed_bytes >= rules.bytes
        if is_much or len(self._unflushed) >= UNFLUSHED_ENTRIES_MAX:
            self._flush_due()

    def barrier(self) -> asyncio.Future[None] | None:
        """Return a future for when everything added so far is published; None if it is.

        All waiters share it: shield it.
        """
        return self._unpublished[-1].done if self._unpublished else None

    def stored_barrier(self) -> asyncio.Future[None] | None:
        """Return a future for when everything added so far is in the store; None if it is."""
        return self._unflushed[-1].stored if self._unflushed else None

    def take(self, bytes_max: int) -> list[JournaledEntry[F]]:
        """Take the oldest entries for a lane object: at least one, if there is any.

        They are still written to the journal, and published when the first of both writes is done.
        """
        taken: list[JournaledEntry[F]] = []
        size = 0
        for entry in self._unflushed:
            if entry.is_taken:
                continue
            if taken and size + entry.bytes > bytes_max:
                return taken
            entry.is_taken = True
            taken.append(entry)
            size += entry.bytes
        self._open = None  # facts decided from here on are not in that object
        if taken:
            self._parts[taken[-1]] = self.journal.next_part()
        return taken

    def has_untaken(self) -> bool:
        """True if an entry is not part of a lane object yet."""
        return bool(self._unflushed) and not self._unflushed[-1].is_taken

    def flushed(self, taken: Sequence[JournaledEntry[F]]) -> None:
        """Forget entries that are in the store now, and delete the parts that held only them."""
        for entry in taken:
            entry.is_durable = True
            self.unflushed_bytes -= entry.bytes
            self._unflushed.remove(entry)
            entry.stored.set_result(None)
            parts = self._parts.pop(entry, None)
            if parts:
                task = asyncio.get_running_loop().create_task(self.journal.drop(parts))
                self._dropping.add(task)
                task.add_done_callback(self._dropping.discard)
        self._publish_ready()
        left = (entry.due_at for entry in self._unflushed if not entry.is_taken)
        self._set_timer(min(left, default=NEVER))

    def _publish_ready(self) -> None:
        while self._unpublished and self._unpublished[0].is_durable and self._ended is None:
            entry = self._unpublished.popleft()
            self._state.publish(entry.facts)
            self._consume(Journaled(entry.facts, is_stored=entry.stored.done()))
            entry.done.set_result(None)

    def _set_timer(self, due_at: float) -> None:
        """Replace the flush timer; no timer if `due_at` is NEVER."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = due_at
        if due_at < NEVER and self._ended is None:
            wait_s = max(0.0, due_at - self._environment.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._is_due)

    def _is_due(self) -> None:
        self._timer_at = NEVER
        self._flush_due()

    async def _run(self) -> None:
        """Open the journal, then write one frame after the other."""
        while not self._is_open:
            try:
                await self.journal.open()
                self._is_open = True
            except JournalFailed as error:
                self._note_failure(error)
                await asyncio.sleep(RETRY_S)
        while self._ended is None:
            await self._wake.wait()
            entry = self._next_unwritten()
            if entry is None:
                self._wake.clear()
                continue
            if entry is self._open:
                self._open = None
            await self._write(entry)

    def _next_unwritten(self) -> JournaledEntry[F] | None:
        return next((entry for entry in self._unpublished if not entry.is_durable), None)

    async def _write(self, entry: JournaledEntry[F]) -> None:
        payload = self._state.layout(entry.facts, entry.payloads)
        stalled = asyncio.get_running_loop().call_later(STALLED_S, self._stalled)
        try:
            facts = self._encode_facts(entry.facts)
            entry.frame = await self.journal.write(
                facts,
                payload,
                written_ms=self._environment.now_ms(),
                after=entry.after.number if entry.after is not None else None,
            )
        except JournalFailed as error:
            self._note_failure(error)
            self._flush_due()
            await asyncio.wait({entry.done})
            return
        finally:
            stalled.cancel()
            self._is_stalled = False
        self.failure = None
        self.frames += 1
        if not entry.is_taken:
            # Its records are found under the frame until they are in the store.
            number = spooled_number(entry.frame)
            self._state.index(entry.frame._replace(number=number), entry.facts)
            self._consume(Indexed(number, payload))
        if entry.after is not None:
            await asyncio.wait({entry.after.done})
        try:
            await self._prove()
        except HoldfastError:
            # The entry is not lost: it will be in the store, or the lane ends.
            self._flush_due()
            await asyncio.wait({entry.done})
            return
        entry.is_durable = True
        self._publish_ready()

    def _note_failure(self, error: JournalFailed) -> None:
        self.failures += 1
        self.failure, self._failed_at = error, self._environment.monotonic()

    def _stalled(self) -> None:
        """Note that the journal does not answer: waiting and later facts go to the store."""
        self._is_stalled = True
        self._note_failure(JournalFailed(f"the disk did not answer within {STALLED_S:g} s"))
        self._flush_due()

    async def close(self) -> None:
        """End the queue, and wait a little for the journal."""
        self.end(Fenced(f"lane {self._lane}: this broker has closed it"))
        await asyncio.wait({self._task, *self._dropping}, timeout=STALLED_S)

    def end(self, error: HoldfastError) -> None:
        """Fail all waiters with `error`: the lane has ended, so nothing is published any more."""
        if self._ended is not None:
            return
        self._ended = error
        if self._timer is not None:
            self._timer.cancel()
        for entry in dict.fromkeys((*self._unpublished, *self._unflushed)):
            for future in (entry.done, entry.stored):
                if not future.done():
                    fail_future(future, error)
        self._task.cancel()


def spooled_number(frame: EntryHeader) -> LaneNumber:
    """Return the number under which a frame's records are found: no lane object has it."""
    return LaneNumber(SPOOLED + frame.number)
