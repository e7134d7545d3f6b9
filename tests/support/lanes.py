"""A simulated world for the tests of lanes and logs: virtual time, a store that obeys hooks.

Owners that are merely dropped are processes that were killed, or that are stalled: nothing tells
the store that they are gone.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from uuid import UUID

from simulation.faults.skewed_environment import SkewedEnvironment
from simulation.virtual_loop import VirtualLoop
from tests.support.batches import batch
from tests.support.stores import HookedStore

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
from holdfast.records.stamp import stamp
from holdfast.store.interface import Store
from holdfast.store.memory import MemoryStore

LANE = LaneId(1)
TOPIC = UUID(int=7)
P0 = PartitionId(TOPIC, 0)
P1 = PartitionId(TOPIC, 1)


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
