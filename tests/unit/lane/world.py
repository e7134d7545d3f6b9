"""A simulated world for the tests of lanes and logs: virtual time, a store that obeys hooks.

Owners that are merely dropped are processes that were killed, or that are stalled: nothing tells
the store that they are gone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any
from uuid import UUID

from simulation.faults.skewed_environment import SkewedEnvironment
from simulation.virtual_loop import VirtualLoop

from holdfast.errors import HoldfastError
from holdfast.identifiers import BrokerId, LaneId, PartitionId
from holdfast.lane.claim import ClaimedLane, claim_lane
from holdfast.lane.entry import Claim
from holdfast.lane.journal_queue import JournalSettings
from holdfast.lane.pending import GroupSettings
from holdfast.lane.spool.disk import Disk
from holdfast.log.append import (
    Accepted,
    AppendRules,
    MarkerAccepted,
    NothingToEnd,
    decide_append,
    decide_marker,
)
from holdfast.log.data_lane import DataLane
from holdfast.log.memory import ReadCache, Tail
from holdfast.log.state import LogState, LogStateKind
from holdfast.records.batch import parse_header
from holdfast.records.record import Record, encode_batch
from holdfast.records.stamp import stamp
from holdfast.store.interface import Buffers, CreateAnswer, ObjectEntry, Store
from holdfast.store.memory import MemoryStore

LANE = LaneId(1)
TOPIC = UUID(int=7)
P0 = PartitionId(TOPIC, 0)
P1 = PartitionId(TOPIC, 1)
Hook = Callable[[str, str], Awaitable[None]]


class HookedStore:
    """Another store, with hooks before and after the effect of each call."""

    def __init__(self, store: Store) -> None:
        self.inner = store
        self.before: list[Hook] = []
        self.after: list[Hook] = []
        self.calls: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def is_remote(self) -> bool:
        return False

    async def _around(self, operation: str, key: str, call: Callable[[], Awaitable[Any]]) -> Any:
        self.calls.append((operation, key))
        for hook in list(self.before):
            await hook(operation, key)
        answer = await call()
        for hook in list(self.after):
            await hook(operation, key)
        return answer

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        return await self._around("create", key, lambda: self.inner.create(key, body))

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        return await self._around(
            "read", key, lambda: self.inner.read(key, start=start, length=length)
        )

    async def size(self, key: str) -> int | None:
        return await self._around("size", key, lambda: self.inner.size(key))

    async def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[ObjectEntry]:
        return await self._around(
            "list", prefix, lambda: self.inner.list(prefix, after=after, limit=limit)
        )

    async def delete(self, keys: Sequence[str]) -> None:
        await self._around("delete", ",".join(keys), lambda: self.inner.delete(keys))

    async def close(self) -> None:
        await self.inner.close()


class Hold:
    """A hook that stops the calls it matches until it is let go."""

    def __init__(self, operation: str, key_part: str) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        self._operation = operation
        self._key_part = key_part

    async def __call__(self, operation: str, key: str) -> None:
        if operation == self._operation and self._key_part in key:
            self.reached.set()
            await self.go.wait()


class World:
    """One store, and owners of one lane of it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self._seed = 0
        self.memory = MemoryStore(environment=self.environment())
        self.store = HookedStore(self.memory)
        self.lost: list[HoldfastError] = []

    def environment(self) -> SkewedEnvironment:
        self._seed += 1
        return SkewedEnvironment(seed=self._seed, loop=self.loop)

    async def claim(self, store: Store | None = None, broker: int = 1) -> ClaimedLane[LogState]:
        return await claim_lane(
            store or self.store, self.environment(), LANE, LogStateKind(), claim_of(broker)
        )

    async def own(
        self,
        *,
        store: Store | None = None,
        broker: int = 1,
        settings: GroupSettings | None = None,
        snapshot_every: int = 1_000_000,
        tail_bytes: int = 1 << 30,
        cache_bytes: int = 1 << 26,
        lane_type: type[DataLane] = DataLane,
        disk: Disk | None = None,
        journal_settings: JournalSettings | None = None,
    ) -> DataLane:
        store = store or self.store
        claimed = await self.claim(store, broker)
        return lane_type(
            store=store,
            environment=self.environment(),
            claimed=claimed,
            settings=settings or GroupSettings(),
            tail=Tail(tail_bytes),
            cache=ReadCache(cache_bytes),
            on_lost=self.lost.append,
            snapshot_every=snapshot_every,
            disk=disk,
            journal_settings=journal_settings,
        )

    async def keys(self, prefix: str = "") -> list[str]:
        return [entry.key for entry in await self.memory.list(prefix)]

    async def body(self, key: str) -> bytes:
        return await self.memory.read(key)

    async def replace(self, key: str, body: bytes) -> None:
        await self.memory.delete([key])
        await self.memory.create(key, [body])


def claim_of(broker: int = 1) -> Claim:
    return Claim(broker_id=BrokerId(broker), address="b:9092", claimed_ms=0)


def simulate(
    test: Callable[[Any], Coroutine[Any, Any, Any]],
    seed: int = 1,
    world_type: type[World] = World,
) -> Any:
    """Run a test in virtual time; unhandled errors of tasks fail it."""
    loop = VirtualLoop(seed=seed)
    world = world_type(loop)
    try:
        result = loop.run_until_complete(test(world))
    finally:
        loop.close()
    assert loop.problems == []
    return result


def batch(
    values: Sequence[bytes] = (b"value",),
    *,
    timestamp: int = 1_000,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytearray:
    """A batch as a producer sends it; `producer` is id, epoch and first sequence."""
    records = [Record(0, timestamp, None, value) for value in values]
    return bytearray(
        encode_batch(
            records,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            transactional=transactional,
        )
    )


def append(
    lane: DataLane,
    partition: PartitionId = P0,
    values: Sequence[bytes] = (b"value",),
    **more: Any,
) -> int:
    """Decide one batch on a lane, as the produce handler does; returns its base offset."""
    return append_batch(lane, batch(values, **more), partition)


def append_batch(
    lane: DataLane, data: bytearray, partition: PartitionId = P0, *, to_disk: bool = False
) -> int:
    """The same for a batch that is there already."""
    log = lane.log_of(partition)
    rules = AppendRules(timestamp_after_max_ms=1 << 62)
    decision = decide_append(log, parse_header(data), rules, lane.environment.now_ms())
    assert isinstance(decision, Accepted), decision
    stamp(data, base_offset=decision.fact.base_offset, leader_epoch=lane.leader_epoch)
    lane.append(decision.fact, memoryview(data), to_disk=to_disk)
    return decision.fact.base_offset


def end(
    lane: DataLane,
    producer_id: int,
    producer_epoch: int,
    *,
    committed: bool,
    partition: PartitionId = P0,
    coordinator_epoch: int = 0,
) -> int | None:
    """Decide the end of a transaction; returns the marker's offset, None where nothing ends."""
    decision = decide_marker(
        lane.log_of(partition),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=committed,
        coordinator_epoch=coordinator_epoch,
        now_ms=lane.environment.now_ms(),
    )
    if isinstance(decision, NothingToEnd):
        return None
    assert isinstance(decision, MarkerAccepted), decision
    offset = decision.fact.base_offset
    stamp(decision.record_batch, base_offset=offset, leader_epoch=lane.leader_epoch)
    lane.add(decision.fact, decision.record_batch)
    return offset


async def flush(lane: DataLane) -> None:
    barrier = lane.barrier()
    if barrier is not None:
        await asyncio.shield(barrier)


async def append_all(lane: DataLane, count: int, partition: PartitionId = P0) -> None:
    """`count` lane objects of one batch each."""
    for _ in range(count):
        append(lane, partition, [b"value-%d" % lane.log_of(partition).log_end_offset])
        await flush(lane)
