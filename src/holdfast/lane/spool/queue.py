"""Facts that become durable on a local disk first, and in the store later.

Owns the order: a group is published when it is durable on the disk or in the store, whichever comes
first, and never before an earlier group. Must never publish a group that is only on the disk while
the claim is not proved, nor forget a group before it is in the store.
"""

import asyncio
import dataclasses
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple

from holdfast.environment import Environment
from holdfast.errors import Fenced, HoldfastError
from holdfast.identifiers import LaneNumber
from holdfast.lane.entry import Buffer, EntryHeader
from holdfast.lane.spool.disk import DiskFailed
from holdfast.lane.spool.spool import Spool
from holdfast.lane.state import F

RETRY_S = 1.0
"""How long no new facts go to a disk that failed."""
STALLED_S = 3.0
"""After this long without an answer from the disk, facts go to the store instead."""
UNFLUSHED_GROUPS_MAX = 20_000
"""This many frames are flushed whatever their size and age, because each one costs memory."""
NEVER = float("inf")


class FlushRules(NamedTuple):
    """When a fact that is only on the disk goes to the store: at the first of two limits."""

    bytes: int
    """The limit for the bytes of the lane that are only on the disk, this fact's included."""
    ms: int
    """The limit for the age of this fact."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SpoolSettings:
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


class SpooledGroup(Generic[F]):
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
        """When the group goes to the store at the latest."""
        self.after: Put | None = None
        """The lane object with the facts before this group, which is not published earlier."""
        self.frame: EntryHeader | None = None
        """The header of its frame, once that is on the disk."""
        self.is_durable = False
        self.is_taken = False
        """True if the group is part of the next lane object."""
        loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = loop.create_future()
        self.stored: asyncio.Future[None] = loop.create_future()
        """Resolves when the group is in the store; `done` when it is published."""
        for future in (self.done, self.stored):
            future.add_done_callback(lambda done: done.cancelled() or done.exception())


class SpoolQueue(Generic[F]):
    """The groups of one lane that are not in the store yet, oldest first."""

    def __init__(
        self,
        *,
        spool: Spool,
        environment: Environment,
        settings: SpoolSettings,
        layout: Callable[[Sequence[F], Sequence[Buffer | None]], list[Buffer]],
        encode_facts: Callable[[Sequence[F]], bytes],
        written: Callable[[SpooledGroup[F], list[Buffer]], None],
        publish: Callable[[SpooledGroup[F]], None],
        prove: Callable[[], Awaitable[None]],
        flush_due: Callable[[], None],
    ) -> None:
        self.settings = settings
        self.unflushed_bytes = 0
        self.failure: DiskFailed | None = None
        """Why the last write to the disk failed; None while the disk works."""
        self.failures = 0
        self.frames = 0
        """The number of frames written."""
        self.spool = spool
        self._environment = environment
        self._layout = layout
        self._encode_facts = encode_facts
        self._written = written
        self._publish = publish
        self._prove = prove
        self._flush_due = flush_due
        self._unflushed: deque[SpooledGroup[F]] = deque()
        self._unpublished: deque[SpooledGroup[F]] = deque()
        self._open: SpooledGroup[F] | None = None
        self._wake = asyncio.Event()
        self._failed_at = float("-inf")
        self._is_open = False
        self._is_stalled = False
        self._ended: HoldfastError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._parts: dict[SpooledGroup[F], list[str]] = {}
        """The files that may be deleted when a group is in the store."""
        self._dropping: set[asyncio.Task[None]] = set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def is_usable(self) -> bool:
        """True if the disk takes more facts; otherwise they go straight to the store."""
        rested = self._environment.monotonic() - self._failed_at >= RETRY_S
        works = (self.failure is None or rested) and not self._is_stalled
        return self._is_open and self._ended is None and works

    @property
    def is_empty(self) -> bool:
        return not self._unflushed

    @property
    def oldest_at(self) -> float | None:
        """The monotonic time when the oldest group was added; None if there is none."""
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
        group = self._open
        if group is None or group.bytes >= self.settings.frame_bytes_max:
            group = self._open = SpooledGroup(now)
            self._unflushed.append(group)
            self._unpublished.append(group)
        group.after = after or group.after
        group.due_at = min(group.due_at, now + rules.ms / 1000)
        if group.due_at < self._timer_at:
            self._set_timer(group.due_at)
        group.facts.append(fact)
        group.payloads.append(payload)
        size = len(payload) if payload is not None else 0
        group.bytes += size
        self.unflushed_bytes += size
        self._wake.set()
        is_much = self.unflushed_bytes >= rules.bytes
        if is_much or len(self._unflushed) >= UNFLUSHED_GROUPS_MAX:
            self._flush_due()

    def barrier(self) -> asyncio.Future[None] | None:
        """Return a future for when everything added so far is published; None if it is.

        All waiters share it: shield it.
        """
        return self._unpublished[-1].done if self._unpublished else None

    def stored_barrier(self) -> asyncio.Future[None] | None:
        """Return a future for when everything added so far is in the store; None if it is."""
        return self._unflushed[-1].stored if self._unflushed else None

    def take(self, bytes_max: int) -> list[SpooledGroup[F]]:
        """Take the oldest groups for a lane object: at least one, if there is any.

        They are still written to the disk, and published when the first of both writes is done.
        """
        taken: list[SpooledGroup[F]] = []
        size = 0
        for group in self._unflushed:
            if group.is_taken:
                continue
            if taken and size + group.bytes > bytes_max:
                return taken
            group.is_taken = True
            taken.append(group)
            size += group.bytes
        self._open = None  # facts decided from here on are not in that object
        if taken:
            self._parts[taken[-1]] = self.spool.next_part()
        return taken

    def has_untaken(self) -> bool:
        """True if a group is not part of a lane object yet."""
        return bool(self._unflushed) and not self._unflushed[-1].is_taken

    def flushed(self, taken: Sequence[SpooledGroup[F]]) -> None:
        """Forget groups that are in the store now, and delete the files that held only them."""
        for group in taken:
            group.is_durable = True
            self.unflushed_bytes -= group.bytes
            self._unflushed.remove(group)
            group.stored.set_result(None)
            parts = self._parts.pop(group, None)
            if parts:
                task = asyncio.get_running_loop().create_task(self.spool.drop(parts))
                self._dropping.add(task)
                task.add_done_callback(self._dropping.discard)
        self._publish_ready()
        left = (group.due_at for group in self._unflushed if not group.is_taken)
        self._set_timer(min(left, default=NEVER))

    def _publish_ready(self) -> None:
        while self._unpublished and self._unpublished[0].is_durable and self._ended is None:
            group = self._unpublished.popleft()
            self._publish(group)
            group.done.set_result(None)

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
        """Open the spool, then write one frame after the other."""
        while not self._is_open:
            try:
                await self.spool.open()
                self._is_open = True
            except DiskFailed as error:
                self._disk_failed(error)
                await asyncio.sleep(RETRY_S)
        while self._ended is None:
            await self._wake.wait()
            group = self._next_unwritten()
            if group is None:
                self._wake.clear()
                continue
            if group is self._open:
                self._open = None
            await self._write(group)

    def _next_unwritten(self) -> SpooledGroup[F] | None:
        return next((group for group in self._unpublished if not group.is_durable), None)

    async def _write(self, group: SpooledGroup[F]) -> None:
        payload = self._layout(group.facts, group.payloads)
        stalled = asyncio.get_running_loop().call_later(STALLED_S, self._stalled)
        try:
            facts = self._encode_facts(group.facts)
            group.frame = await self.spool.write(
                facts,
                payload,
                written_ms=self._environment.now_ms(),
                after=group.after.number if group.after is not None else None,
            )
        except DiskFailed as error:
            self._disk_failed(error)
            self._flush_due()
            await asyncio.wait({group.done})
            return
        finally:
            stalled.cancel()
            self._is_stalled = False
        self.failure = None
        self.frames += 1
        if not group.is_taken:
            self._written(group, payload)
        if group.after is not None:
            await asyncio.wait({group.after.done})
        try:
            await self._prove()
        except HoldfastError:
            # The group is not lost: it will be in the store, or the lane ends.
            self._flush_due()
            await asyncio.wait({group.done})
            return
        group.is_durable = True
        self._publish_ready()

    def _disk_failed(self, error: DiskFailed) -> None:
        self.failures += 1
        self.failure, self._failed_at = error, self._environment.monotonic()

    def _stalled(self) -> None:
        """Note that the disk does not answer: waiting and later facts go to the store."""
        self._is_stalled = True
        self._disk_failed(DiskFailed(f"the disk did not answer within {STALLED_S:g} s"))
        self._flush_due()

    async def close(self) -> None:
        """End the queue, and wait a little for the disk."""
        self.end(Fenced(f"lane {self.spool.spool.lane}: this broker has closed it"))
        await asyncio.wait({self._task, *self._dropping}, timeout=STALLED_S)

    def end(self, error: HoldfastError) -> None:
        """Fail all waiters with `error`: the lane has ended, so no group is published any more."""
        if self._ended is not None:
            return
        self._ended = error
        if self._timer is not None:
            self._timer.cancel()
        for group in dict.fromkeys((*self._unpublished, *self._unflushed)):
            for future in (group.done, group.stored):
                if not future.done():
                    future.set_exception(error)
        self._task.cancel()
