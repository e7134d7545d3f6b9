"""One partition while this member owns it: fetched, encoded, sealed, landed, ready to be committed.

Owns the partition's progress: where it began, what was fetched, which batches wait for the store,
and where its chain ends. If another member's object is found at our key, drops everything that it
holds and continues at the chain's end. Must never report an offset as committable if a record below
it has not landed.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from holdfast.client.fetch import PartitionFetch
from holdfast.errors import StopError
from holdfast.landing.chain import Chain, NotLanded
from holdfast.landing.dead_letters import DeadLetters
from holdfast.sink.budget import Budget
from holdfast.sink.counters import Counters
from holdfast.sink.encoder import PartitionEncoder, Recipe, Sealed
from holdfast.sink.ownership import Token
from holdfast.sink.status import PartitionStatus

log = logging.getLogger(__name__)

T = TypeVar("T")

ENCODED_SHARE = 2
"""How many times the size of a fetch response counts in the budget: as fetched, and as encoded.

While a thread encodes it, both exist. Parquet's columns are a little larger than the records.
"""


class Aside(Protocol):
    """A way to run long work in a thread, so that the loop does not wait for it."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """Everything that all flows of a sink share."""

    recipe: Recipe
    aside: Aside
    now: Callable[[], float]
    uploads: asyncio.Semaphore
    budget: Budget
    counters: Counters
    moved: Callable[[], None]
    """Called when there may be room to fetch, or something to commit."""
    failed: Callable[[Exception], None]
    """Called when the sink cannot continue."""


@dataclass(frozen=True, slots=True)
class Chains:
    """The chains of a partition: of its records, and of those that its format cannot hold."""

    records: Chain
    dead: DeadLetters


class Flow:
    """The work on one partition, under one token. It ends with the token."""

    def __init__(
        self, token: Token, shop: Shop, chains: Chains, begin: Callable[[], Awaitable[int]]
    ) -> None:
        self.token = token
        self.position: int | None = None
        """The next offset to fetch; None until the start offset is known."""
        self.landed = 0
        self.committed: int | None = None
        self.log_end: int | None = None
        self.opened_at: float | None = None
        self.problem: str | None = None
        self.is_fetching = False
        self._shop = shop
        self._chains = chains
        self._has_origin = False
        self._takes_in = True
        self._is_busy = False
        self._is_to_seal = False
        self._inbox: deque[PartitionFetch] = deque()
        self._sealed: deque[Sealed] = deque()
        self._encoder: PartitionEncoder | None = None
        self.open_bytes = 0
        """Bytes of memory that the open batch took after the last finished encoding step."""
        self._work = asyncio.Event()
        self._cargo = asyncio.Event()
        self._moved = asyncio.Event()
        parts = (self._encode(begin), self._land())
        self._tasks = [asyncio.ensure_future(self._guarded(part)) for part in parts]

    @property
    def wants(self) -> int | None:
        """The offset to fetch next, or None if nothing is wanted now."""
        return self.position if self._takes_in and not self.is_fetching else None

    @property
    def inbox_bytes(self) -> int:
        """Bytes of fetched record batches that are not encoded yet."""
        return sum(len(fetched.batches) for fetched in self._inbox)

    @property
    def committable(self) -> int | None:
        """The offset below which every record has landed; None until the start offset is known."""
        encoder = self._encoder
        if encoder is None:
            return None
        is_empty = not (self._sealed or self._inbox or self._is_busy or encoder.open_records)
        return max(self.landed, encoder.next_offset) if is_empty else self.landed

    @property
    def holds_records(self) -> bool:
        """True if something was taken in that has not landed."""
        encoder = self._encoder
        has_open = encoder is not None and encoder.open_records > 0
        return bool(self._sealed or self._inbox or self._is_busy or has_open)

    @property
    def has_cargo(self) -> bool:
        """True if a sealed batch is on its way to the store, or a seal is requested."""
        return bool(self._sealed) or self._is_to_seal

    def has_taken(self, end: int | None) -> bool:
        """True if everything below this offset is at least encoded."""
        return end is not None and self._encoder is not None and self._encoder.next_offset >= end

    def status(self) -> PartitionStatus:
        encoder = self._encoder
        return PartitionStatus(
            position=self.position or 0,
            landed=self.committable,
            committed=self.committed,
            log_end=self.log_end,
            open_records=0 if encoder is None else encoder.open_records,
            open_bytes=0 if encoder is None else encoder.open_bytes,
            uploads=len(self._sealed),
            problem=self.problem,
        )

    def offer(self, fetched: PartitionFetch) -> None:
        """Take one fetch response, unless it comes too late: it must begin at the position."""
        if not self._takes_in or fetched.fetch_offset != self.position:
            return
        self.problem = None
        if len(fetched.batches):
            self.position = fetched.next_offset
            self._inbox.append(fetched)
            self._account()
            self._work.set()

    def skip_to(self, offset: int) -> None:
        """Continue at an offset, since the log has lost the records before it.

        The next batch covers the gap.
        """
        if self._encoder is not None and not self._inbox and not self._is_busy:
            self._encoder.next_offset = self.position = offset

    def seal(self) -> None:
        """Close the open batch, once everything fetched so far is in it."""
        self._is_to_seal = True
        self._work.set()

    async def finish(self) -> None:
        """Take in nothing more, and return when everything that was encoded has landed."""
        self._takes_in = False
        self._inbox.clear()
        if self._encoder is None:
            return
        self.seal()
        while self._is_to_seal or self.holds_records:
            self._moved.clear()
            await self._moved.wait()

    async def end(self) -> None:
        """Drop everything. An object that is on its way to the store may still arrive there."""
        self._takes_in = False
        if self.holds_records:
            self._shop.counters.batches_abandoned += 1
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._shop.budget.hold(self.token, 0)

    async def _encode(self, begin: Callable[[], Awaitable[int]]) -> None:
        self._restart(await begin())
        while True:
            step = self._next_step()
            if step is None:
                self._work.clear()
                await self._work.wait()
                continue
            encoder, work = step
            self._is_busy = True
            try:
                sealed = await self._shop.aside(work)
            finally:
                self._is_busy = False
            if encoder is self._encoder:
                self._take(sealed, encoder)

    def _next_step(self) -> tuple[PartitionEncoder, Callable[[], list[Sealed]]] | None:
        encoder = self._encoder
        if encoder is None:
            return None
        if self._inbox:
            fetched = self._inbox[0]
            return encoder, lambda: encoder.absorb(fetched)
        if self._is_to_seal:
            self._is_to_seal = False
            self._moved.set()
            if encoder.open_records:
                return encoder, lambda: [sealed] if (sealed := encoder.seal()) else []
        return None

    def _take(self, sealed: list[Sealed], encoder: PartitionEncoder) -> None:
        """Take the result of an encoding step."""
        if self._inbox and self._inbox[0].fetch_offset < encoder.next_offset:
            self._shop.counters.bytes_fetched += len(self._inbox.popleft().batches)
        if sealed or not encoder.open_records:
            self.opened_at = None
        if encoder.open_records and self.opened_at is None:
            self.opened_at = self._shop.now()
        if sealed:
            self._sealed.extend(sealed)
            self._cargo.set()
        self.open_bytes = encoder.held_bytes
        self._tell()

    async def _land(self) -> None:
        while True:
            if not self._sealed:
                self._cargo.clear()
                await self._cargo.wait()
                continue
            sealed = self._sealed[0]
            async with self._shop.uploads:
                end, is_ours = await self._place(sealed)
            if is_ours:
                self._sealed.popleft()
                self.landed = end
                self._count(sealed)
                self._tell()
            else:
                self._restart(end)

    async def _place(self, sealed: Sealed) -> tuple[int, bool]:
        """Put a batch at the chain's end. Return the new end, and whether it is by our object."""
        chain = self._chains.records
        if not self._has_origin:
            end = await chain.begin(sealed.first_offset)
            if end != sealed.first_offset:
                return end, False
            self._has_origin = True
        if sealed.bad and not await self._bury(sealed):
            return await chain.begin(sealed.first_offset), False
        facts, is_ours = await chain.place(
            sealed.encoded,
            first_offset=sealed.first_offset,
            last_offset=sealed.last_offset,
            records=sealed.records,
        )
        if is_ours:
            return facts.next_offset, True
        end = facts.next_offset
        self._shop.counters.objects_found += 1
        async for found in chain.follow(end):
            end = found.next_offset
            self._shop.counters.objects_found += 1
        return end, False

    async def _bury(self, sealed: Sealed) -> bool:
        """Land the bad records of a batch before it. False if the chain of records is ahead of us.

        The chain of dead letters covers every batch that any member had at this place. It may begin
        or end elsewhere, since another member's batch may be longer.
        """
        outcome = await self._chains.dead.land(sealed.bad, start_offset=sealed.first_offset)
        if not isinstance(outcome, NotLanded):
            return True
        if await self._chains.records.begin(sealed.first_offset) != sealed.first_offset:
            return False
        raise StopError(outcome.reason)

    def _restart(self, offset: int) -> None:
        """Start at an offset. What was held has landed already, or is fetched again."""
        self._inbox.clear()
        self._sealed.clear()
        self._encoder = PartitionEncoder(self.token.where, offset, self._shop.recipe)
        self.position = self.landed = offset
        self.opened_at = None
        self.open_bytes = 0
        self._tell()

    def _count(self, sealed: Sealed) -> None:
        counters = self._shop.counters
        counters.records_landed += sealed.records
        counters.bad_records += sum(batch.num_rows for batch in sealed.bad)
        counters.unreadable_batches += len(sealed.unreadable)
        for named in sealed.unreadable:
            where = self.token.where
            log.warning("sink.unreadable_batch %s-%d: %s", where.topic, where.partition, named)
        counters.objects_landed += 1
        counters.bytes_landed += sealed.held_bytes
        counters.last_landed = self._chains.records.key(sealed.first_offset)

    def _account(self) -> None:
        held = self.inbox_bytes * ENCODED_SHARE + self.open_bytes
        held += sum(part.held_bytes for part in self._sealed)
        self._shop.budget.hold(self.token, held)

    def _tell(self) -> None:
        self._account()
        self._moved.set()
        self._shop.moved()

    async def _guarded(self, part: Coroutine[Any, Any, None]) -> None:
        try:
            await part
        except Exception as error:
            self._shop.failed(error)
