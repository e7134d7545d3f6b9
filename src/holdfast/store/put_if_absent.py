"""Put-if-absent, with a certain answer: the one primitive that decides every hand-off.

A create that timed out may still land, "exists" may be our own earlier try, and a conflict says
nothing. So the same key and the same bytes are tried again until the store says created or exists,
and then the object that is there is read back and asked whose it is. Repeating is harmless: a
repeat that lands first is the same object, and one that lands after the answer finds the key taken
and changes nothing, by us or by the winner.

Must never try another key, never send other bytes, and never answer Won or Lost by inference: a
read-back that finds nothing proves nothing. Whether a number that retention has deleted may be won
again is not decided here; the caller checks its floor after Won.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.environment import Environment
from holdfast.errors import CorruptObject, ObjectNotFound, StoreUnavailable
from holdfast.store.interface import Buffers, CreateAnswer, Store
from holdfast.store.patience import CORRUPT_READS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Won:
    """Our object is at the key, durably."""

    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Another writer's object is at the key; ours is not and will never be."""

    body: bytes
    """The first identify_bytes of the winner's object, or all of it."""
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before the next try: doubling from first to max, less some jitter."""

    first_seconds: float = 0.02
    max_seconds: float = 2.0
    jitter: float = 0.5
    """The share of each delay that is left to chance, so that rivals do not march in step."""

    def delay_seconds(self, retries: int, environment: Environment) -> float:
        """The delay before retry number `retries`, counted from 0."""
        full = min(self.max_seconds, self.first_seconds * 2.0 ** min(retries, 32))
        return full * (1.0 - self.jitter * environment.random().random())


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """What on_retry is told before each wait."""

    key: str
    retries: int
    reason: str
    delay_seconds: float


def same_bytes(body: Buffers) -> Callable[[bytes], bool]:
    """An is_ours for bodies without a writer's id: ours is what is equal. Read back all of it."""
    expected = b"".join(body)
    return lambda found: found == expected


async def put_if_absent(
    store: Store,
    key: str,
    body: Buffers,
    *,
    is_ours: Callable[[bytes], bool],
    identify_bytes: int | None,
    environment: Environment,
    backoff: Backoff | None = None,
    deadline_seconds: float | None = None,
    on_retry: Callable[[Retry], None] | None = None,
) -> Won | Lost:
    """Create the object, or find out for certain that another writer has.

    `is_ours` looks at the first `identify_bytes` of what is there (all of it where None) and says
    whether this very attempt wrote it; it may raise CorruptObject where they fail their checksum,
    and they are then read again. Without a deadline it goes on until it knows. Where the deadline
    passes it raises StoreUnavailable and the outcome is unknown: the object may be there, or
    appear later, so the caller must not use the next position. The same holds for a cancel.
    """
    attempt = _Attempt(
        store, key, is_ours, identify_bytes, environment, backoff or Backoff(), on_retry
    )
    if deadline_seconds is None:
        return await attempt.run(body)
    try:
        async with asyncio.timeout(deadline_seconds):
            return await attempt.run(body)
    except TimeoutError as error:
        raise StoreUnavailable(
            f"create of {key!r} in {store.url}: no clear answer within {deadline_seconds:g} s"
            f" ({attempt.creates} tries), so the outcome is unknown"
        ) from error


class _Attempt:
    """One call of put_if_absent, until its answer."""

    def __init__(
        self,
        store: Store,
        key: str,
        is_ours: Callable[[bytes], bool],
        identify_bytes: int | None,
        environment: Environment,
        backoff: Backoff,
        on_retry: Callable[[Retry], None] | None,
    ) -> None:
        self.creates = 0
        self._store = store
        self._key = key
        self._is_ours = is_ours
        self._identify_bytes = identify_bytes
        self._environment = environment
        self._backoff = backoff
        self._on_retry = on_retry
        self._retries = 0

    async def run(self, body: Buffers) -> Won | Lost:
        while True:
            self.creates += 1
            try:
                answer = await self._store.create(self._key, body)
            except StoreUnavailable as error:
                await self._wait(f"create: {error}")
                continue
            match answer:
                case CreateAnswer.CREATED:
                    return Won(attempts=self.creates)
                case CreateAnswer.CONFLICT:
                    await self._wait("create: another conditional write is under way")
                case CreateAnswer.EXISTS:
                    outcome = await self._identify()
                    if outcome is not None:
                        return outcome
                    await self._wait("read back: the store said that it exists, but has no object")

    async def _identify(self) -> Won | Lost | None:
        """Whose object is there; None where there is none, and the create must be tried again."""
        corrupt_reads = 0
        doubted: bytes | None = None
        while True:
            try:
                found = await self._read_back()
                ours = self._is_ours(found) if found is not None else False
            except ObjectNotFound:
                return None
            except StoreUnavailable as error:
                await self._wait(f"read back: {error}")
                continue
            except CorruptObject as error:
                corrupt_reads += 1
                if corrupt_reads >= CORRUPT_READS_MAX:
                    raise
                await self._wait(f"read back: {error}")
                continue
            if ours:
                return Won(attempts=self.creates)
            if found is None:
                await self._wait("read back: the store returned too few bytes")
            # One flipped bit in the writer's id would make our own object a stranger's, and a
            # win would be given away: only two equal answers are believed.
            elif found == doubted:
                return Lost(body=found, attempts=self.creates)
            else:
                doubted = found

    async def _read_back(self) -> bytes | None:
        """The bytes that identify the writer, or None where the store sent too few of them."""
        found = await self._store.read(self._key, length=self._identify_bytes)
        if self._identify_bytes is not None and len(found) >= self._identify_bytes:
            return found
        size = await self._store.size(self._key)
        if size is None:
            raise ObjectNotFound(f"there is no object {self._key!r} in {self._store.url}")
        return found if len(found) == size else None

    async def _wait(self, reason: str) -> None:
        delay = self._backoff.delay_seconds(self._retries, self._environment)
        if self._on_retry is not None:
            self._on_retry(
                Retry(key=self._key, retries=self._retries, reason=reason, delay_seconds=delay)
            )
        self._retries += 1
        await asyncio.sleep(delay)
