"""Reads one range of a store on an executor: ranged reads in flight, checked, decoded to Arrow.

Owns read-ahead and its memory bound, and what happens if a planned object is gone: the rest of the
range is placed again, and only records that are really gone are a DataLoss. Must never skip an
offset silently.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future

from holdfast.columnar.arrow import RecordBatch
from holdfast.columnar.decode import decode_rest
from holdfast.columnar.unreadable import Unreadable
from holdfast.errors import ObjectNotFound
from holdfast.follow.follower import PlacedRecords
from holdfast.lane.entry import HEADER_BYTES, parse_header
from holdfast.log.partition import EpochStart
from holdfast.log.stored_batches import Stretch, check_batches
from holdfast.spark.runtime.worker import WorkerIO, worker
from holdfast.spark.source.inputs import ROWS_PER_BATCH, Range, StoreWhere
from holdfast.spark.source.store_input import check_placed, partition_id
from holdfast.spark.source.task_split import READ_BYTES, joined
from holdfast.store.interface import Store
from holdfast.store.patience import patiently

GROUPS_AHEAD = 4
"""How many groups of about READ_BYTES are in flight or wait to be decoded."""
STRETCHES_PER_GROUP_MAX = 32
PLACED_ANEW_MAX = 20
"""How often in a row a range is placed again without one byte read in between."""


def read_store_range(
    wanted: Range, where: StoreWhere, columns: Collection[str] | None = None
) -> Iterator[RecordBatch | Unreadable]:
    """Yield the records of a range of a store; if columns are named, others may be missing."""
    reading = _StoreRange(wanted, where)
    aborted = None if where.aborted is None else [entry[:3] for entry in where.aborted]
    while reading.next_offset < wanted.end_offset:
        yield from decode_rest(
            reading.buffers(),
            topic=wanted.topic,
            partition=wanted.partition,
            start_offset=reading.next_offset,
            end_offset=wanted.end_offset,
            include_headers=wanted.include_headers,
            columns=columns,
            read_committed_aborted=aborted,
            rows_per_batch=ROWS_PER_BATCH,
        )
        if not reading.is_cut_off:
            return
        reading.place_anew()


class _StoreRange:
    """The state of one range while it is read."""

    def __init__(self, wanted: Range, where: StoreWhere) -> None:
        self.next_offset = wanted.start_offset
        self.is_cut_off = False
        """True if an object was gone. What was read before it counts."""
        self._wanted = wanted
        self._where = where
        self._worker: WorkerIO = worker()
        self._store: Store = self._worker.store(where.url)
        self._stretches: Sequence[Stretch] = where.stretches
        self._epochs: Sequence[EpochStart] = where.epochs
        self._failures = 0

    def buffers(self) -> Iterator[bytes]:
        """Yield whole record batches in offset order; the first and last may exceed the range.

        Ends early if an object is gone, because the decoder still holds records that must come out
        first.
        """
        self.is_cut_off = False
        try:
            for stretch, data in self._read_ahead(self._stretches):
                self.next_offset = stretch.last_offset + 1
                self._failures = 0
                yield data
        except ObjectNotFound:
            self._failures += 1
            if self._failures > PLACED_ANEW_MAX:
                raise
            self.is_cut_off = True

    def place_anew(self) -> None:
        """Find the rest of the range again.

        Since the plan, it was rewritten into a segment, or its segment was merged into a larger
        one.
        """
        wanted, where, start = self._wanted, self._where, self.next_offset
        partition = wanted.topic_partition
        follower = self._worker.follower(where.url)
        since_ms = wanted.row_filter.timestamp_min_ms

        async def place() -> PlacedRecords | None:
            await follower.refresh()
            return await follower.place(
                partition_id(partition),
                start,
                wanted.end_offset,
                since_ms=since_ms,
                read_committed=where.aborted is not None,
            )

        self._stretches = ()
        if start < wanted.end_offset:
            placed = self._worker.run(place())
            check_placed(
                partition,
                placed,
                start,
                wanted.end_offset,
                fail_on_data_loss=wanted.fail_on_data_loss,
            )
            if placed is not None:
                self._stretches = joined(placed.stretches)
                self._epochs = placed.epochs
                self.next_offset = max(start, placed.bounds.earliest)

    def _read_ahead(self, stretches: Sequence[Stretch]) -> Iterator[tuple[Stretch, bytes]]:
        waiting: deque[tuple[Sequence[Stretch], Future[list[bytes]]]] = deque()
        groups = _groups(stretches)
        try:
            while True:
                while len(waiting) < GROUPS_AHEAD and (group := next(groups, None)) is not None:
                    waiting.append((group, self._worker.submit(self._load(group))))
                if not waiting:
                    return
                group, future = waiting.popleft()
                loaded = future.result()
                for i, stretch in enumerate(group):
                    data, loaded[i] = loaded[i], b""
                    yield stretch, data
        finally:
            for _, future in waiting:
                future.cancel()

    async def _load(self, group: Sequence[Stretch]) -> list[bytes]:
        return await asyncio.gather(*(self._read(stretch) for stretch in group))

    async def _read(self, stretch: Stretch) -> bytes:
        async def attempt() -> bytes:
            position = stretch.position
            if stretch.is_in_payload:
                head = await self._store.read(stretch.key, start=0, length=HEADER_BYTES)
                position += parse_header(head, key=stretch.key).payload_start
            data = await self._store.read(stretch.key, start=position, length=stretch.size_bytes)
            check_batches(data, stretch, self._epochs)
            return data

        return await patiently(attempt, environment=self._worker.environment)


def _groups(stretches: Sequence[Stretch]) -> Iterator[Sequence[Stretch]]:
    """Yield small stretches together: each group is one hand-over between the threads."""
    group: list[Stretch] = []
    size = 0
    for stretch in stretches:
        is_full = size + stretch.size_bytes > READ_BYTES or len(group) >= STRETCHES_PER_GROUP_MAX
        if group and is_full:
            yield group
            group, size = [], 0
        group.append(stretch)
        size += stretch.size_bytes
    if group:
        yield group
