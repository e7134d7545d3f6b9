"""One partition while this member owns it: fetched, encoded, sealed, landed, ready to be committed.

Owns the partition's place: where it began, what was fetched, which batches wait for the store, and
where its chain ends. Where another's object turns up at our key, all that is held is dropped, and
it goes on at the chain's end. Must never say that an offset may be committed below which a record
has not landed.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from holdfast.client.fetch import Fetched
from holdfast.errors import StopError
from holdfast.landing.chain import Chain, Refused
from holdfast.landing.dead_letters import DeadLetters
from holdfast.sink.budget import Budget
from holdfast.sink.counters import Counters
from holdfast.sink.encoder import Encoder, Recipe, Sealed
from holdfast.sink.ownership import Token
from holdfast.sink.status import PartitionStatus

log = logging.getLogger(__name__)

T = TypeVar("T")

ENCODED_SHARE = 2
"""What an answer of the log counts in the budget, in its own size: its bytes, and what they become.

While a thread encodes it both are there; Parquet's columns are a little larger than the records.
"""


class Aside(Protocol):
    """Where long work is done, so that the loop does not wait for it."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """What all flows of a sink share."""

    recipe: Recipe
    aside: Aside
    now: Callable[[], float]
    uploads: asyncio.Semaphore
    budget: Budget
    counters: Counters
    moved: Callable[[], None]
    """There may be room to fetch, or something to commit."""
    failed: Callable[[Exception], None]
    """The sink cannot go on."""


@dataclass(frozen=True, slots=True)
class Chains:
    """Where a partition lands: its records, and those that its format cannot hold."""

    records: Chain
    dead: DeadLetters


class Flow:
    """Made for one token; ends with it."""

    def __init__(
        self, token: Token, shop: Shop, chains: Chains, begin: Callable[[], Awaitable[int]]
    ) -> None:
        self.token = token
        self.position: int | None = None
        """The next offset to fetch; None until it is known where to begin."""
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
        self._inbox: deque[Fetched] = deque()
        self._sealed: deque[Sealed] = deque()
        self._encoder: Encoder | None = None
        self.open_bytes = 0
        """Of memory, of the batch that is open; as it was before what is encoded now."""
        self._work = asyncio.Event()
        self._cargo = asyncio.Event()
        self._moved = asyncio.Event()
        parts = (self._encode(begin), self._land())
        self._tasks = [asyncio.ensure_future(self._guarded(part)) for part in parts]

    @property
    def wants(self) -> int | None:
        """The offset to fetch next, or None where nothing is wanted now."""
        return self.position if self._takes_in and not self.is_fetching else None

    @property
    def inbox_bytes(self) -> int:
        """Of answers that are not encoded."""
        return sum(len(fetched.batches) for fetched in self._inbox)

    @property
    def committable(self) -> int | None:
        """Every record below it has landed; None until it is known where to begin."""
        encoder = self._encoder
        if encoder is None:
            return None
        is_empty = not (self._sealed or self._inbox or self._is_busy or encoder.open_records)
        return max(self.landed, encoder.next_offset) if is_empty else self.landed

    @property
    def holds_records(self) -> bool:
        """Whether something was taken in that has not landed."""
        encoder = self._encoder
        has_open = encoder is not None and encoder.open_records > 0
        return bool(self._sealed or self._inbox or self._is_busy or has_open)

    @property
    def has_cargo(self) -> bool:
        """Whether a sealed batch is on its way out."""
        return bool(self._sealed) or self._is_to_seal

    def has_taken(self, end: int | None) -> bool:
        """Whether all below an offset is encoded, at least."""
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

    def offer(self, fetched: Fetched) -> None:
        """One answer of the log; one that does not begin at the position comes too late."""
        if not self._takes_in or fetched.fetch_offset != self.position:
            return
        self.problem = None
        if len(fetched.batches):
            self.position = fetched.next_offset
            self._inbox.append(fetched)
            self._account()
            self._work.set()

    def skip_to(self, offset: int) -> None:
        """The records up to an offset are gone from the log: the next batch covers the hole."""
        if self._encoder is not None and not self._inbox and not self._is_busy:
            self._encoder.next_offset = self.position = offset

    def seal(self) -> None:
        """Close the open batch, after what has been fetched is in it."""
        self._is_to_seal = True
        self._work.set()

    async def finish(self) -> None:
        """Take nothing more in, and end when all that was encoded has landed."""
        self._takes_in = False
        self._inbox.clear()
        if self._encoder is None:
            return
        self.seal()
        while self._is_to_seal or self.holds_records:
            self._moved.clear()
            await self._moved.wait()

    async def end(self) -> None:
        """Let go of everything; what is under way to the store may still arrive there."""
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

    def _next_step(self) -> tuple[Encoder, Callable[[], list[Sealed]]] | None:
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

    def _take(self, sealed: list[Sealed], encoder: Encoder) -> None:
        """What a step gave."""
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
        """Where the chain ends then, and whether by our object."""
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
        """Land the bad records of a batch before the batch; False where its chain is ahead of us.

        Their chain covers every batch that any member had at this place: it may begin or end
        elsewhere, since another's batch may be longer.
        """
        outcome = await self._chains.dead.land(sealed.bad, start_offset=sealed.first_offset)
        if not isinstance(outcome, Refused):
            return True
        if await self._chains.records.begin(sealed.first_offset) != sealed.first_offset:
            return False
        raise StopError(outcome.reason)

    def _restart(self, offset: int) -> None:
        """Begin at an offset; what is held is another's, or was landed by it."""
        self._inbox.clear()
        self._sealed.clear()
        self._encoder = Encoder(self.token.where, offset, self._shop.recipe)
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
