"""The proof that a claim is still the newest of its lane, and the time of that proof.

Owns the look at the store that proves it: the next number is free, or holds our own put. Callers
that wait at the same time share one look. Must never date a proof by the end of its look: it is as
old as the beginning.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from holdfast.environment import Environment
from holdfast.errors import Fenced, HoldfastError, StoreUnavailable
from holdfast.identifiers import LaneNumber, WriterId
from holdfast.lane.cursor import Cursor
from holdfast.lane.entry import EntryHeader
from holdfast.lane.floor import read_floor
from holdfast.lane.recovery import EntryHead, read_head
from holdfast.store.interface import Store

PROBE_PATIENCE_S = 2.0
"""How long a probe of the next number is tried before its waiters get an error."""
PROBE_PAUSE_S = 0.5
"""How long after a failed probe the next ones fail without asking the store, so that a request for
many partitions waits for the store only once."""


class Tried(NamedTuple):
    """The next number of a lane, and whether a put of it is under way."""

    number: LaneNumber
    is_tried: bool


class ClaimProof:
    """The newest proof of one claim, and the look that renews it."""

    def __init__(
        self,
        *,
        store: Store,
        environment: Environment,
        claim: Cursor,
        writer: WriterId,
        valid_ms: int,
        validated_at: float,
    ) -> None:
        self.validated_at = validated_at
        self.task: asyncio.Task[None] | None = None
        self._store = store
        self._environment = environment
        self._claim = claim
        self._writer = writer
        self._valid_ms = valid_ms
        self._failed_at = float("-inf")

    def is_fresh(self) -> bool:
        age = self._environment.monotonic() - self.validated_at
        return age * 1000 < self._valid_ms

    def doubt(self) -> None:
        """Discard the proof, because a newer claim may exist."""
        self.validated_at = float("-inf")

    def seen(self, started: float) -> None:
        """Take a successful put that began at `started` as a proof."""
        self.validated_at = max(self.validated_at, started)

    async def look(self, tried: Callable[[], Tried], fail: Callable[[Fenced], None]) -> None:
        """Look once, or join the look under way. If there is a newer claim, `fail` is called."""
        task = self.task
        if task is None:
            if self._environment.monotonic() - self._failed_at < PROBE_PAUSE_S:
                raise StoreUnavailable(
                    f"lane {self._claim.lane}: the store did not answer a moment ago; try again"
                )
            task = self._start(tried, fail)
        await asyncio.shield(task)

    def look_soon(self, tried: Callable[[], Tried], fail: Callable[[Fenced], None]) -> None:
        """Start a look before the proof expires, so that no caller has to wait for it."""
        now = self._environment.monotonic()
        is_young = (now - self.validated_at) * 1000 * 2 < self._valid_ms
        if self.task is None and not is_young and now - self._failed_at >= PROBE_PAUSE_S:
            self._start(tried, fail)

    def _start(
        self, tried: Callable[[], Tried], fail: Callable[[Fenced], None]
    ) -> asyncio.Task[None]:
        self.task = asyncio.get_running_loop().create_task(self._look_once(tried, fail))
        self.task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return self.task

    async def _look_once(self, tried: Callable[[], Tried], fail: Callable[[Fenced], None]) -> None:
        """Look once, and clear `self.task` before another caller can join a finished look."""
        try:
            await self._look(tried, fail)
        except HoldfastError:
            self._failed_at = self._environment.monotonic()
            raise
        finally:
            self.task = None

    async def _look(self, tried: Callable[[], Tried], fail: Callable[[Fenced], None]) -> None:
        started = self._environment.monotonic()
        number, is_tried = tried()
        while (head := await self._read_ahead(number)) is not None:
            if head.header.writer != self._writer:
                fail(self.fenced_by(number, head.header))
                return
            number = LaneNumber(number + 1)  # our own put, which is not answered yet
            is_tried = True
        # Only a claim can have taken a number that we never tried, and claims are never deleted.
        # An object of ours may have landed and then been rewritten and deleted by a successor.
        if (is_tried or tried().is_tried) and await self.is_below_floor(
            number, give_up_after_s=PROBE_PATIENCE_S
        ):
            fail(self.fenced_by(number, None))
            return
        self.validated_at = max(self.validated_at, started)

    async def is_below_floor(
        self, number: LaneNumber, *, give_up_after_s: float | None = None
    ) -> bool:
        floor = await read_floor(
            self._store, self._environment, self._claim.lane, give_up_after_s=give_up_after_s
        )
        return floor > number

    async def _read_ahead(self, number: LaneNumber) -> EntryHead | None:
        lane = self._claim.lane
        try:
            async with asyncio.timeout(PROBE_PATIENCE_S):
                return await read_head(self._store, self._environment, lane, number)
        except TimeoutError:
            raise StoreUnavailable(
                f"lane {lane}: the store did not answer within {PROBE_PATIENCE_S:g} s, so this"
                " broker cannot tell whether it still owns the lane"
            ) from None

    def fenced_by(self, number: LaneNumber, header: EntryHeader | None) -> Fenced:
        """Return the error for an owner that lost its lane to another object at `number`."""
        whom = (
            f"claim {header.claim} (writer {header.writer.hex()})" if header else "another writer"
        )
        return Fenced(
            f"lane {self._claim.lane}: this broker is fenced: {whom} wrote number {number}, so"
            f" this broker's claim {self._claim.claim} has ended"
        )
