"""A partition's log in memory, and a flow over it, for the tests of this folder."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.client.fetch import PartitionFetch
from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.landing.chain import Chain
from holdfast.landing.dead_letters import DeadLetters
from holdfast.landing.formats.interface import Format
from holdfast.landing.formats.jsonl import JsonLines
from holdfast.landing.keys import KeyTemplate
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.records.record import Record, encode_batch
from holdfast.sink.budget import Budget
from holdfast.sink.counters import Counters
from holdfast.sink.encoder import Recipe
from holdfast.sink.flow import Chains, Flow, Shop
from holdfast.sink.ownership import Token
from holdfast.sink.settings import BatchBounds
from holdfast.store.interface import Store
from holdfast.store.memory import MemoryStore

T = TypeVar("T")

WHERE = TopicPartition("orders", 3)
ENVIRONMENT = SeededEnvironment(seed=1, clock=VirtualClock())


def new_store() -> MemoryStore:
    return MemoryStore(environment=ENVIRONMENT)


def dead_letters(store: Store) -> DeadLetters:
    return DeadLetters(store, *WHERE, template=KeyTemplate(), environment=ENVIRONMENT)


def value_of(offset: int) -> bytes:
    return b'{"n":%d}' % offset


def fetched(
    first: int, end: int, *, batch: int = 10, end_offset: int | None = None
) -> PartitionFetch:
    """The records of [first, end), as a broker that has more would give them."""
    parts: list[bytes] = []
    for start in range(first, end, batch):
        numbers = range(start, min(end, start + batch))
        records = [Record(n, 1_000 + n, b"k%d" % n, value_of(n)) for n in numbers]
        parts.append(encode_batch(records, base_offset=start))
    end_offset = end if end_offset is None else end_offset
    return PartitionFetch(first, memoryview(b"".join(parts)), end_offset, end_offset, 0, ())


def fetched_values(first: int, values: list[bytes | None]) -> PartitionFetch:
    records = [Record(first + n, 1_000, b"k", value) for n, value in enumerate(values)]
    body = encode_batch(records, base_offset=first)
    end = first + len(values)
    return PartitionFetch(first, memoryview(body), end, end, 0, ())


def recipe(*, format: Format | None = None, **bounds: int) -> Recipe:
    return Recipe(
        format=format or JsonLines(require_json=True),
        bounds=BatchBounds(**bounds),
        read_committed=True,
    )


class Desk:
    """What a flow is given, with the errors that it told."""

    def __init__(self, store: Store, *, format: Format | None = None, **bounds: int) -> None:
        self.store = store
        self.errors: list[Exception] = []
        self.counters = Counters()
        self.budget = Budget(1_000_000)
        self.format = format or JsonLines(require_json=True)
        self.shop = Shop(
            recipe=recipe(format=self.format, **bounds),
            aside=_at_once,
            now=ENVIRONMENT.monotonic,
            uploads=asyncio.Semaphore(2),
            budget=self.budget,
            counters=self.counters,
            moved=lambda: None,
            failed=self.errors.append,
        )
        self._numbers = 0

    def chain(self) -> Chain:
        return Chain(self.store, *WHERE, format=self.format, environment=ENVIRONMENT)

    def flow(self, begin: int = 0) -> Flow:
        """One that begins at the end of the chain."""
        self._numbers += 1
        chain = self.chain()
        dead = dead_letters(self.store)

        async def place() -> int:
            end = await chain.next_offset()
            return begin if end is None else end

        return Flow(Token(WHERE, self._numbers), self.shop, Chains(chain, dead), place)


async def _now(work: Callable[[], T]) -> T:
    await asyncio.sleep(0)
    return work()


def _at_once(work: Callable[[], T]) -> Awaitable[T]:
    return _now(work)


async def until(condition: Callable[[], bool], *, turns: int = 10_000) -> None:
    """Let the tasks run until it is so; bounded."""
    for _ in range(turns):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it has not come about")


async def ready(flow: Flow) -> Flow:
    await until(lambda: flow.position is not None)
    return flow
