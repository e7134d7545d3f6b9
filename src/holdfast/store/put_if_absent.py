"""Put-if-absent with a certain outcome: the one primitive that decides every hand-off.

A create that timed out may still land, "exists" may mean our own earlier try, and a conflict says
nothing. So the same bytes are created under the same key again, until the store says "created" or
"exists". After "exists", the object is read back to see which writer it is from. Repeating is
harmless: a repeat that lands first is the same object, and one that lands later finds the key taken
and changes nothing.

Must never try another key, never send other bytes, and never conclude Won or Lost without proof: a
read-back that finds nothing proves nothing. A deleted number can be won again: the caller must
check its floor after Won.
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
    """The wait before the next try: doubled from first to max, less some jitter."""

    first_seconds: float = 0.02
    max_seconds: float = 2.0
    jitter: float = 0.5
    """The share of each delay that is random, so that rivals do not retry at the same time."""

    def delay_seconds(self, retries: int, environment: Environment) -> float:
        """Return the delay before retry number `retries`, counted from 0."""
        full = min(self.max_seconds, self.first_seconds * 2.0 ** min(retries, 32))
        return full * (1.0 - self.jitter * environment.random().random())


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryNotice:
    """The argument of `on_retry`, which is called before each wait."""

    key: str
    retries: int
    reason: str
    delay_seconds: float


def same_bytes(body: Buffers) -> Callable[[bytes], bool]:
    """Return an `is_ours` for a body without a writer id: all of it must be read back and equal."""
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
    on_retry: Callable[[RetryNotice], None] | None = None,
) -> Won | Lost:
    """Create the object, or find out for certain that another writer has.

    `is_ours` gets the first `identify_bytes` of the existing object (all of it if None) and says
    whether this very call wrote it. It may raise CorruptObject if their checksum is wrong, and then
    they are read again. Without a deadline the call retries until the outcome is certain. If the
    deadline passes, it raises StoreUnavailable and the outcome is unknown: the object may be there,
    or appear later, so the caller must not use the next position. The same holds for a cancel.
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
        on_retry: Callable[[RetryNotice], None] | None,
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
        """Return whose object is there; None if there is none and the create must be repeated."""
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
            # With one flipped bit in the writer id, our own object would look like another
            # writer's, and a win would be given away: only two equal answers are trusted.
            elif found == doubted:
                return Lost(body=found, attempts=self.creates)
            else:
                doubted = found

    async def _read_back(self) -> bytes | None:
        """Return the bytes that identify the writer; None if the store sent too few of them."""
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
                RetryNotice(
                    key=self._key, retries=self._retries, reason=reason, delay_seconds=delay
                )
            )
        self._retries += 1
        await asyncio.sleep(delay)
