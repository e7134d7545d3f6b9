"""A store that fails on purpose, in every way that was seen in real stores, from a seed.

Owns the faults and their counts; wraps any other store. It uses only asyncio and the given random
numbers, so that a run on a virtual-time loop repeats exactly. Must never do what a real store
cannot: an object is never partly visible, a create never replaces, and an object that was seen
stays until a delete.
"""

import asyncio
import contextvars
import enum
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from holdfast.errors import HoldfastError, ObjectNotFound, StoreUnavailable
from holdfast.store.interface import Buffers, CreateAnswer, ObjectEntry, Store

T = TypeVar("T")


class Chance(Protocol):
    """The methods of random.Random that are used; it comes from an Environment or from a seed."""

    def random(self) -> float: ...
    def uniform(self, a: float, b: float) -> float: ...
    def randrange(self, start: int) -> int: ...


class StoreOperation(enum.Enum):
    """The operations of a store."""

    CREATE = "create"
    READ = "read"
    SIZE = "size"
    LIST = "list"
    DELETE = "delete"


class Fault(enum.Enum):
    """One way to fail."""

    LOST_BEFORE = "lost before"
    """The request never reaches the store."""
    LOST_AFTER = "lost after"
    """The request takes effect; its answer is lost."""
    LATE = "late"
    """The request takes long to arrive, takes effect, and is answered."""
    LANDS_LATER = "lands later"
    """The caller times out, and the request takes effect long after that."""
    REPEATED = "repeated"
    """Something on the way sends the request twice; the caller gets the second answer."""
    CONFLICT = "conflict"
    """The answer is 409, and the request has no effect."""
    ERROR_AFTER = "error after"
    """The request takes effect, but the answer is 500."""
    BURST = "burst"
    """This request and all that follow it for some time are answered with 503."""
    SLOW = "slow"
    """The request takes effect at once, but its answer takes long to arrive."""
    STALLED = "stalled"
    """The request has no effect and no answer before the caller times out."""
    SHORT_READ = "short read"
    """The answer ends too early."""
    BIT_FLIP = "bit flip"
    """One bit of the answer is flipped."""


_CALL_FAULTS = (Fault.LOST_BEFORE, Fault.LATE, Fault.BURST, Fault.SLOW, Fault.STALLED)
_WRITE_FAULTS = (*_CALL_FAULTS, Fault.LOST_AFTER, Fault.LANDS_LATER, Fault.ERROR_AFTER)
FAULTS_OF: Mapping[StoreOperation, tuple[Fault, ...]] = MappingProxyType(
    {
        StoreOperation.CREATE: (*_WRITE_FAULTS, Fault.REPEATED, Fault.CONFLICT),
        StoreOperation.READ: (*_CALL_FAULTS, Fault.LOST_AFTER, Fault.SHORT_READ, Fault.BIT_FLIP),
        StoreOperation.SIZE: (*_CALL_FAULTS, Fault.LOST_AFTER),
        StoreOperation.LIST: (*_CALL_FAULTS, Fault.LOST_AFTER),
        StoreOperation.DELETE: _WRITE_FAULTS,
    }
)
"""The faults that each operation can have, in the order in which one is drawn."""

WRITES = frozenset({StoreOperation.CREATE, StoreOperation.DELETE})
Range = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """The probability and the duration of each fault."""

    chances: Mapping[Fault, float] = field(default_factory=dict[Fault, float])
    """The probability of each fault in one call; at most one fault happens to a call."""
    operations: frozenset[StoreOperation] = frozenset(StoreOperation)
    late_seconds: Range = (0.1, 30.0)
    slow_seconds: Range = (0.1, 5.0)
    burst_seconds: Range = (0.5, 5.0)
    timeout_seconds: float = 5.0
    """When the caller of a stalled request, or of one that lands later, gets an error."""
    latency_seconds: Range = (0.0, 0.0)
    """How long every call takes. Half of it passes before the effect."""

    @staticmethod
    def even(chance: float, **other: Any) -> "FaultPlan":
        """Return a plan in which every fault has the same probability."""
        return FaultPlan(chances=dict.fromkeys(Fault, chance), **other)


class FaultyStore:
    """Another store, behind a bad network and a bad service."""

    def __init__(self, store: Store, *, plan: FaultPlan, chance: Chance) -> None:
        self.injected: Counter[tuple[StoreOperation, Fault]] = Counter()
        self.calls: Counter[StoreOperation] = Counter()
        self._store = store
        self._plan = plan
        self._chance = chance
        self._disabled: set[Fault] = set()
        self._is_healed = False
        self._is_cut = False
        self._burst_ends = float("-inf")
        self._in_flight: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def is_remote(self) -> bool:
        return self._store.is_remote

    def heal(self) -> None:
        """Stop all faults. Requests in flight still land."""
        self._is_healed = True
        self._is_cut = False
        self._burst_ends = float("-inf")

    def break_again(self, plan: FaultPlan | None = None) -> None:
        """Undo `heal`, with another plan if one is given."""
        self._is_healed = False
        self._plan = plan or self._plan

    def enable(self, fault: Fault, *, enabled: bool = True) -> None:
        """Switch one kind of fault on or off."""
        if enabled:
            self._disabled.discard(fault)
        else:
            self._disabled.add(fault)

    def cut(self) -> None:
        """Let no request reach the store until `heal`."""
        self._is_cut = True

    def faults_by_kind(self) -> Counter[Fault]:
        """Return how often each fault happened, over all operations."""
        counts: Counter[Fault] = Counter()
        for (_, fault), count in self.injected.items():
            counts[fault] += count
        return counts

    async def settle(self) -> None:
        """Wait until nothing is in flight."""
        while self._in_flight:
            await asyncio.wait(self._in_flight)

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        # A copy: the bytes that land later must be those sent now, even if the caller reuses them.
        sent = (b"".join(body),)

        def call() -> Awaitable[CreateAnswer]:
            return self._store.create(key, sent)

        fault = await self._begin(StoreOperation.CREATE)
        if fault is Fault.CONFLICT:
            return CreateAnswer.CONFLICT
        if fault is Fault.REPEATED:
            await call()
        return await self._perform(StoreOperation.CREATE, key, fault, call)

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        fault = await self._begin(StoreOperation.READ)
        body = await self._perform(
            StoreOperation.READ,
            key,
            fault,
            lambda: self._store.read(key, start=start, length=length),
        )
        if fault is Fault.SHORT_READ and body:
            return body[: self._chance.randrange(len(body))]
        if fault is Fault.BIT_FLIP and body:
            flipped = bytearray(body)
            flipped[self._chance.randrange(len(body))] ^= 1 << self._chance.randrange(8)
            return bytes(flipped)
        return body

    async def size(self, key: str) -> int | None:
        fault = await self._begin(StoreOperation.SIZE)
        return await self._perform(StoreOperation.SIZE, key, fault, lambda: self._store.size(key))

    async def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[ObjectEntry]:
        fault = await self._begin(StoreOperation.LIST)
        return await self._perform(
            StoreOperation.LIST,
            prefix,
            fault,
            lambda: self._store.list(prefix, after=after, limit=limit),
        )

    async def delete(self, keys: Sequence[str]) -> None:
        sent = tuple(keys)
        fault = await self._begin(StoreOperation.DELETE)
        await self._perform(
            StoreOperation.DELETE, ",".join(sent[:3]), fault, lambda: self._store.delete(sent)
        )

    async def close(self) -> None:
        """Close the store inside, once nothing is in flight."""
        await self.settle()
        await self._store.close()

    async def _begin(self, operation: StoreOperation) -> Fault | None:
        """Draw this call's fault. Raises StoreUnavailable if the store cannot be reached at all."""
        self.calls[operation] += 1
        if self._is_cut:
            raise StoreUnavailable(f"injected: {operation.value} is cut off from the store")
        if asyncio.get_running_loop().time() < self._burst_ends:
            self.injected[operation, Fault.BURST] += 1
            raise StoreUnavailable(f"injected: 503 to {operation.value} in a burst")
        fault = self._draw(operation)
        if fault is not None:
            self.injected[operation, fault] += 1
        return fault

    def _draw(self, operation: StoreOperation) -> Fault | None:
        if self._is_healed or operation not in self._plan.operations:
            return None
        left = self._chance.random()
        for fault in FAULTS_OF[operation]:
            left -= self._plan.chances.get(fault, 0.0)
            if left < 0.0:
                return None if fault in self._disabled else fault
        return None

    async def _perform(
        self,
        operation: StoreOperation,
        key: str,
        fault: Fault | None,
        call: Callable[[], Awaitable[T]],
    ) -> T:
        plan = self._plan
        latency = self._between(plan.latency_seconds)
        what = f"{operation.value} of {key!r}"
        match fault:
            case Fault.LOST_BEFORE:
                await _pause(latency)
                raise StoreUnavailable(f"injected: the request was lost, {what}")
            case Fault.STALLED:
                await asyncio.sleep(plan.timeout_seconds)
                raise StoreUnavailable(f"injected: no answer in time, {what}")
            case Fault.BURST:
                self._burst_ends = asyncio.get_running_loop().time() + self._between(
                    plan.burst_seconds
                )
                raise StoreUnavailable(f"injected: 503, {what}")
            case Fault.LANDS_LATER:
                self._send(call, plan.timeout_seconds + self._between(plan.late_seconds))
                await asyncio.sleep(plan.timeout_seconds)
                raise StoreUnavailable(f"injected: no answer in time, {what}; it lands later")
            case Fault.LATE:
                return await self._travel(
                    operation, call, self._between(plan.late_seconds), latency
                )
            case Fault.SLOW:
                return await self._travel(
                    operation, call, latency, self._between(plan.slow_seconds)
                )
            case Fault.LOST_AFTER | Fault.ERROR_AFTER:
                answer = "500" if fault is Fault.ERROR_AFTER else "the answer was lost"
                await self._travel(operation, _without_refusal(call), latency / 2, latency / 2)
                raise StoreUnavailable(f"injected: {answer} after it took effect, {what}")
            case _:
                return await self._travel(operation, call, latency / 2, latency / 2)

    async def _travel(
        self,
        operation: StoreOperation,
        call: Callable[[], Awaitable[T]],
        before_seconds: float,
        after_seconds: float,
    ) -> T:
        """Take effect after the first delay, and answer after the second.

        A write under way takes effect even if its sender is killed meanwhile.
        """
        if before_seconds > 0.0 and operation in WRITES:
            answer = await asyncio.shield(self._send(call, before_seconds))
        else:
            await _pause(before_seconds)
            answer = await call()
        await _pause(after_seconds)
        return answer

    def _send(self, call: Callable[[], Awaitable[T]], delay_seconds: float) -> asyncio.Task[T]:
        """Start the request as a task in an empty context, because its sender may be killed."""

        async def land() -> T:
            await asyncio.sleep(delay_seconds)
            return await call()

        loop = asyncio.get_running_loop()
        coroutine: Coroutine[Any, Any, T] = land()
        task = loop.create_task(coroutine, context=contextvars.Context())
        self._in_flight.add(task)
        task.add_done_callback(self._landed, context=contextvars.Context())
        return task

    def _landed(self, task: asyncio.Task[Any]) -> None:
        self._in_flight.discard(task)
        # A refusal that no caller waits for any more is not an unhandled error.
        if not task.cancelled() and not isinstance(task.exception(), HoldfastError | None):
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a request in flight failed", "exception": task.exception()}
            )

    def _between(self, bounds: Range) -> float:
        low, high = bounds
        return low if low == high else self._chance.uniform(low, high)


def _without_refusal(call: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    """Return the same request without ObjectNotFound, because its answer will be lost anyway."""

    async def perform() -> Any:
        try:
            return await call()
        except ObjectNotFound:
            return None

    return perform


async def _pause(seconds: float) -> None:
    if seconds > 0.0:
        await asyncio.sleep(seconds)
