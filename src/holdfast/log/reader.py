"""Read a partition's records: from the tail in memory, from the cache, or from the store.

Owns loading and read-ahead. Must never change a log, nor return bytes from the store before they
are checked against the CRC of their batch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from holdfast.environment import Environment
from holdfast.errors import ObjectNotFound
from holdfast.identifiers import LaneId, PartitionId
from holdfast.lane.entry import HEADER_BYTES, parse_header
from holdfast.lane.keys import entry_key
from holdfast.log.facts import SegmentRef
from holdfast.log.memory import ReadCache, Tail, unpinned
from holdfast.log.partition import EpochStart, PartitionLog, PartitionRun
from holdfast.log.read_plan import NO_END, BatchCut, Buffer, ReadPlan, plan_read
from holdfast.log.segment import SegmentIndex, parse_index
from holdfast.log.state import segment_key
from holdfast.log.stored_batches import (
    Stretch,
    check_batches,
    stretch_of_block,
    stretch_of_segment,
)
from holdfast.store.interface import Store
from holdfast.store.patience import patiently

T = TypeVar("T")

INDEXES_MAX = 1024
PAYLOAD_STARTS_MAX = 65_536
LOADS_AT_ONCE = 16
READ_AHEAD_BLOCKS = 4


class LogReader:
    """Reads the partitions of one lane."""

    def __init__(
        self,
        *,
        store: Store,
        environment: Environment,
        lane: LaneId,
        tail: Tail,
        cache: ReadCache,
        give_up_after_s: float = 25.0,
    ) -> None:
        self._store = store
        self._environment = environment
        self._lane = lane
        self._tail = tail
        self._cache = cache
        self._give_up_after_s = give_up_after_s
        self._indexes: dict[str, SegmentIndex] = {}
        self._payload_starts: dict[int, int] = {}
        self._loading: dict[tuple[str, int], asyncio.Task[bytes]] = {}

    def read_from_memory(
        self, log: PartitionLog, offset: int, bytes_max: int, end_offset: int = NO_END
    ) -> BatchCut | None:
        """Return what the tail has from the offset on; None if it lacks the first bytes."""
        end_offset = min(end_offset, log.high_watermark)
        plan = plan_read(log, offset, bytes_max, end_offset)
        cut = BatchCut(offset, bytes_max, end_offset)
        if plan.segments:
            return None
        for run in plan.runs:
            payload = self._tail.get(self._lane, run.number)
            if payload is None:
                return cut if cut.buffers else None
            stretch = payload.slice(run.position, run.size_bytes)
            cut.add_stretch(stretch, run.last_offset, run.size_bytes)
            if cut.is_full:
                break
        return cut

    async def read(
        self, log: PartitionLog, offset: int, bytes_max: int, end_offset: int = NO_END
    ) -> BatchCut:
        """Return the records from an offset up to an end: at least one batch, if there is one.

        If an object is gone, it was rewritten or deleted meanwhile, and the read is planned again.
        The high watermark may be inside a run, because a flush may take batches that are not
        published yet.
        """
        end_offset = min(end_offset, log.high_watermark)
        for attempt in range(5):
            cut = self.read_from_memory(log, offset, bytes_max, end_offset)
            if cut is not None:
                return cut
            plan = plan_read(log, offset, bytes_max, end_offset)
            try:
                cut = await self._load(log, plan, BatchCut(offset, bytes_max, end_offset))
                cut.buffers = [unpinned(buffer) for buffer in cut.buffers]
                return cut
            except ObjectNotFound:
                self._payload_starts.clear()
                if attempt == 4 or offset < log.log_start_offset:
                    raise
        raise ObjectNotFound(f"{log.partition}: no object holds offset {offset}")

    async def _load(self, log: PartitionLog, plan: ReadPlan, cut: BatchCut) -> BatchCut:
        for segment in plan.segments:
            await self._load_segment(log, segment, cut)
            if cut.is_full:
                return cut
        at_once = LOADS_AT_ONCE if cut.bytes_max > 0 else 1
        for i in range(0, len(plan.runs), at_once):
            runs = plan.runs[i : i + at_once]
            stretches = await asyncio.gather(*(self.load_run(log, run) for run in runs))
            for run, stretch in zip(runs, stretches, strict=True):
                cut.add_stretch(stretch, run.last_offset, run.size_bytes)
            if cut.is_full:
                return cut
        return cut

    async def _load_segment(self, log: PartitionLog, segment: SegmentRef, cut: BatchCut) -> None:
        index = await self.segment_index(log.partition, segment)
        key = segment_key(log.partition, segment.name)
        first = index.find(cut.next_offset)
        for i in range(first, len(index)):
            if cut.bytes_max > 0:
                self._read_ahead(key, index, i, log.epochs)
            block = index.block(i)
            data = await self._load_stretch(stretch_of_block(key, block), log.epochs)
            cut.add_stretch([data], block.last_offset, block.size_bytes)
            if cut.is_full:
                return

    def _read_ahead(
        self, key: str, index: SegmentIndex, i: int, epochs: Sequence[EpochStart]
    ) -> None:
        """Start loading the blocks after this one, because a reader of old data reads in order."""
        for j in range(i + 1, min(len(index), i + 1 + READ_AHEAD_BLOCKS)):
            stretch = stretch_of_block(key, index.block(j))
            known = (key, stretch.position) in self._loading
            if not known and not self._cache.has(key, stretch.position):
                self._start_load(stretch, epochs)

    async def load_run(self, log: PartitionLog, run: PartitionRun) -> Sequence[Buffer]:
        """Return the batches of one run, from the tail or the store."""
        payload = self._tail.get(self._lane, run.number)
        if payload is not None:
            return payload.slice(run.position, run.size_bytes)
        key = entry_key(self._lane, run.number)
        start = await self._payload_start(run.number)
        position = start + run.position
        stretch = Stretch(
            key, position, run.size_bytes, run.base_offset, run.last_offset, run.max_timestamp
        )
        return [await self._load_stretch(stretch, log.epochs)]

    async def load_segment(self, log: PartitionLog, segment: SegmentRef) -> bytes:
        """Return all batches of a segment without using the cache, for the rewriter."""
        key = segment_key(log.partition, segment.name)
        return await self._read_checked(stretch_of_segment(key, segment), log.epochs)

    async def segment_index(self, partition: PartitionId, segment: SegmentRef) -> SegmentIndex:
        """Return the index of a segment, and keep it in memory."""
        key = segment_key(partition, segment.name)
        index = self._indexes.get(key)
        if index is None:

            async def attempt() -> SegmentIndex:
                data = await self._store.read(key, start=0, length=segment.data_start)
                return parse_index(partition, segment, data, key=key)

            index = await self._patiently(attempt)
            while len(self._indexes) >= INDEXES_MAX:
                del self._indexes[next(iter(self._indexes))]
            self._indexes[key] = index
        return index

    async def _payload_start(self, number: int) -> int:
        """Return where an object's payload begins: after its facts, whose size is in the header."""
        start = self._payload_starts.get(number)
        if start is None:
            key = entry_key(self._lane, number)

            async def attempt() -> int:
                data = await self._store.read(key, start=0, length=HEADER_BYTES)
                return parse_header(data, key=key).payload_start

            start = await self._patiently(attempt)
            while len(self._payload_starts) >= PAYLOAD_STARTS_MAX:
                del self._payload_starts[next(iter(self._payload_starts))]
            self._payload_starts[number] = start
        return start

    async def _load_stretch(self, stretch: Stretch, epochs: Sequence[EpochStart]) -> bytes:
        data = self._cache.get(stretch.key, stretch.position)
        if data is not None:
            return data
        return await asyncio.shield(self._start_load(stretch, epochs))

    def _start_load(self, stretch: Stretch, epochs: Sequence[EpochStart]) -> asyncio.Task[bytes]:
        """Return the load of a stretch, which all its callers share."""
        where = (stretch.key, stretch.position)
        task = self._loading.get(where)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._read_checked(stretch, epochs))
            self._loading[where] = task
            task.add_done_callback(lambda done: self._loaded(stretch, done))
        return task

    def _loaded(self, stretch: Stretch, task: asyncio.Task[bytes]) -> None:
        self._loading.pop((stretch.key, stretch.position), None)
        if not task.cancelled() and task.exception() is None:
            self._cache.add(stretch.key, stretch.position, task.result())

    async def _read_checked(self, stretch: Stretch, epochs: Sequence[EpochStart]) -> bytes:
        async def attempt() -> bytes:
            data = await self._store.read(
                stretch.key, start=stretch.position, length=stretch.size_bytes
            )
            check_batches(data, stretch, epochs)
            return data

        return await self._patiently(attempt)

    def _patiently(self, operation: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        return patiently(
            operation, environment=self._environment, give_up_after_s=self._give_up_after_s
        )
