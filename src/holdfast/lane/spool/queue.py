"""Facts that become durable on a local disk first, and in the store later.

Owns the order: groups are published one after the other, each when it is durable on the disk or in
the store, whichever comes first, and none before the one before it. Must never publish what came
from the disk alone while the claim is not proved, nor forget a group before it is in the store.
"""

import asyncio
import dataclasses
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic

from holdfast.environment import Environment
from holdfast.errors import HoldfastError
from holdfast.lane.entry import Buffer, EntryHeader
from holdfast.lane.spool.disk import DiskFailed
from holdfast.lane.spool.spool import Spool
from holdfast.lane.state import F

RETRY_S = 1.0
"""How long a disk that failed is left alone."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SpoolSettings:
    """When what is on the disk goes to the store."""

    flush_bytes: int = 64 * 1024 * 1024
    flush_ms: int = 86_400_000
    frame_bytes_max: int = 8 * 1024 * 1024


class SpooledGroup(Generic[F]):
    """The facts of one frame, from their decision until they are in the store."""

    __slots__ = (
        "added_at",
        "bytes",
        "done",
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
        self.frame: EntryHeader | None = None
        """What it is on the disk, once it is there."""
        self.is_durable = False
        self.is_taken = False
        """It is part of a lane object that is sealed."""
        loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = loop.create_future()
        self.stored: asyncio.Future[None] = loop.create_future()
        """Resolves when it is in the store."""
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
        """Why the disk takes nothing now; None while it works."""
        self._spool = spool
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
        self._ended: HoldfastError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._parts: dict[SpooledGroup[F], list[str]] = {}
        """The files that may go when a group is in the store."""
        self._dropping: set[asyncio.Task[None]] = set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def is_usable(self) -> bool:
        """Whether more facts may come this way; else they go to the store at once."""
        rested = self._environment.monotonic() - self._failed_at >= RETRY_S
        return self._is_open and self._ended is None and (self.failure is None or rested)

    @property
    def is_empty(self) -> bool:
        return not self._unflushed

    def add(self, fact: F, payload: Buffer | None) -> None:
        """Let an applied fact join the next frame."""
        group = self._open
        if group is None or group.bytes >= self.settings.frame_bytes_max:
            group = self._open = SpooledGroup(self._environment.monotonic())
            self._unflushed.append(group)
            self._unpublished.append(group)
            self._set_timer()
        group.facts.append(fact)
        group.payloads.append(payload)
        size = len(payload) if payload is not None else 0
        group.bytes += size
        self.unflushed_bytes += size
        self._wake.set()
        if self.unflushed_bytes >= self.settings.flush_bytes:
            self._flush_due()

    def barrier(self) -> asyncio.Future[None] | None:
        """Resolves when all that was added so far is published; shared, so never awaited bare."""
        return self._unpublished[-1].done if self._unpublished else None

    def stored_barrier(self) -> asyncio.Future[None] | None:
        """Resolves when all that was added so far is in the store."""
        return self._unflushed[-1].stored if self._unflushed else None

    def take(self, bytes_max: int) -> list[SpooledGroup[F]]:
        """The oldest groups, for a lane object: at least one, where there is any.

        They are written to the disk all the same, and are published when either is done.
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
        self._open = None  # what is decided from here on is not in that object
        if taken:
            self._parts[taken[-1]] = self._spool.next_part()
        return taken

    def has_untaken(self) -> bool:
        """Whether something is on its way to the disk alone."""
        return bool(self._unflushed) and not self._unflushed[-1].is_taken

    def flushed(self, taken: Sequence[SpooledGroup[F]]) -> None:
        """These are in the store."""
        for group in taken:
            group.is_durable = True
            self.unflushed_bytes -= group.bytes
            self._unflushed.remove(group)
            group.stored.set_result(None)
            parts = self._parts.pop(group, None)
            if parts:
                task = asyncio.get_running_loop().create_task(self._spool.drop(parts))
                self._dropping.add(task)
                task.add_done_callback(self._dropping.discard)
        self._publish_ready()
        self._set_timer()

    def _publish_ready(self) -> None:
        while self._unpublished and self._unpublished[0].is_durable and self._ended is None:
            group = self._unpublished.popleft()
            self._publish(group)
            group.done.set_result(None)

    def _set_timer(self) -> None:
        """Have what is oldest flushed when it is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unflushed and self._ended is None:
            due = self._unflushed[0].added_at + self.settings.flush_ms / 1000
            wait_s = max(0.0, due - self._environment.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._flush_due)

    async def _run(self) -> None:
        """Write one frame after the other."""
        while not self._is_open:
            try:
                await self._spool.open()
                self._is_open = True
            except DiskFailed as error:
                self.failure, self._failed_at = error, self._environment.monotonic()
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
        try:
            facts = self._encode_facts(group.facts)
            group.frame = await self._spool.write(
                facts, payload, written_ms=self._environment.now_ms()
            )
            self.failure = None
        except DiskFailed as error:
            self.failure, self._failed_at = error, self._environment.monotonic()
            self._flush_due()
            await asyncio.wait({group.done})
            return
        if not group.is_taken:
            self._written(group, payload)
        try:
            await self._prove()
        except HoldfastError:
            # Not proved is not lost: the group is in the store some day, or the lane has ended.
            self._flush_due()
            await asyncio.wait({group.done})
            return
        group.is_durable = True
        self._publish_ready()

    def end(self, error: HoldfastError) -> None:
        """The lane is over: nothing more is published here."""
        if self._ended is not None:
            return
        self._ended = error
        if self._timer is not None:
            self._timer.cancel()
        for group in {*self._unpublished, *self._unflushed}:
            for future in (group.done, group.stored):
                if not future.done():
                    future.set_exception(error)
        self._task.cancel()
