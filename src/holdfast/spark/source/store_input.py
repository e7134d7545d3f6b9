"""A Holdfast store as an input: its topics, offsets and byte ranges, without a broker.

Owns planning on the driver; `store_read` reads on executors. Must never write to the store.
"""

import asyncio
from collections.abc import Sequence

from holdfast.errors import CallError
from holdfast.follow.follower import KnownOffsets, PlacedRecords
from holdfast.identifiers import PartitionId
from holdfast.log.partition import epochs_within
from holdfast.log.transactions import AbortedTxn, intersecting
from holdfast.spark.runtime.worker import worker
from holdfast.spark.source.inputs import (
    DEFAULT_PLAN,
    DataLoss,
    Offsets,
    PlanOptions,
    Range,
    SourcePartition,
    StoreWhere,
    TopicInfo,
)
from holdfast.spark.source.task_split import joined, split, task_bytes

PLACES_AT_ONCE = 8
NOTHING = PlacedRecords(KnownOffsets(0, 0), [])


class StoreInput:
    """The input at a store's address. `topics` looks at the store; other calls use that look."""

    def __init__(self, url: str, *, read_committed: bool = False) -> None:
        self._url = url
        self._read_committed = read_committed
        self._worker = worker()
        self._follower = self._worker.new_follower(url)
        self._is_fresh = False

    def topics(self) -> dict[str, TopicInfo]:
        self._worker.run(self._follower.refresh())
        self._is_fresh = True
        return {
            topic.name: TopicInfo(topic.name, topic.topic_id, topic.partitions)
            for topic in self._follower.topics().values()
        }

    def earliest(self, partitions: Sequence[SourcePartition]) -> dict[SourcePartition, int]:
        return {partition: self._bounds(partition).earliest for partition in partitions}

    def latest(self, partitions: Sequence[SourcePartition]) -> dict[SourcePartition, int]:
        return {partition: self._bounds(partition).latest for partition in partitions}

    def by_timestamp(self, at_ms: Offsets) -> dict[SourcePartition, int | None]:
        async def look() -> dict[SourcePartition, int | None]:
            found: dict[SourcePartition, int | None] = {}
            for partition, timestamp in at_ms.items():
                timed = await self._follower.offset_for_time(
                    partition_id(partition), timestamp, read_committed=self._read_committed
                )
                found[partition] = timed.offset if timed is not None else None
            return found

        for partition in at_ms:
            self._bounds(partition)
        return self._worker.run(look())

    def plan(
        self, start: Offsets, end: Offsets, options: PlanOptions = DEFAULT_PLAN
    ) -> list[Range]:
        spans = [(p, start[p], last) for p, last in end.items() if start[p] < last]
        self._see(spans)
        several = self._worker.run(self._place(spans, options))
        total = sum(stretch.size_bytes for placed in several for stretch in placed.stretches)
        bytes_max = task_bytes(total, options.min_partitions)
        ranges: list[Range] = []
        for (partition, first, end_offset), placed in zip(spans, several, strict=True):
            first = max(first, placed.bounds.earliest)
            ranges += self._ranges(partition, first, end_offset, placed, bytes_max, options)
        return ranges

    def close(self) -> None:
        """Do nothing: the store belongs to the process and stays open."""

    def _see(self, spans: Sequence[tuple[SourcePartition, int, int]]) -> None:
        """Look again if an end is beyond what was seen: a checkpoint may know more than we do."""
        if not self._is_fresh:
            self.topics()
        for partition, _, end in spans:
            bounds = self._look(partition)
            if bounds is None or bounds.latest < end:
                self.topics()
                return

    def _bounds(self, partition: SourcePartition) -> KnownOffsets:
        if not self._is_fresh:
            self.topics()
        bounds = self._look(partition)
        if bounds is None:
            raise DataLoss(gone_message(partition))
        return bounds

    def _look(self, partition: SourcePartition) -> KnownOffsets | None:
        return self._follower.bounds(partition_id(partition), read_committed=self._read_committed)

    async def _place(
        self, spans: Sequence[tuple[SourcePartition, int, int]], options: PlanOptions
    ) -> list[PlacedRecords]:
        placing = asyncio.Semaphore(PLACES_AT_ONCE)
        since_ms = options.row_filter.timestamp_min_ms

        async def place(partition: SourcePartition, start: int, end: int) -> PlacedRecords:
            async with placing:
                placed = await self._follower.place(
                    partition_id(partition),
                    start,
                    end,
                    since_ms=since_ms,
                    read_committed=self._read_committed,
                )
            check_placed(partition, placed, start, end, fail_on_data_loss=options.fail_on_data_loss)
            return placed if placed is not None else NOTHING

        return await asyncio.gather(*(place(*span) for span in spans))

    def _ranges(
        self,
        partition: SourcePartition,
        start: int,
        end: int,
        placed: PlacedRecords,
        bytes_max: int,
        options: PlanOptions,
    ) -> list[Range]:
        pieces = split(placed.stretches, bytes_max)
        ranges: list[Range] = []
        for i, piece in enumerate(pieces):
            first = max(start, piece[0].base_offset)
            last = pieces[i + 1][0].base_offset if i + 1 < len(pieces) else end
            aborted: tuple[AbortedTxn, ...] | None = None
            if self._read_committed:
                aborted = tuple(intersecting(placed.aborted, first, min(end, last)))
            ranges.append(
                Range(
                    topic=partition.topic,
                    topic_id=partition.topic_id,
                    partition=partition.partition,
                    start_offset=first,
                    end_offset=min(end, last),
                    where=StoreWhere(
                        url=self._url,
                        stretches=tuple(joined(piece)),
                        epochs=epochs_within(
                            placed.epochs, piece[0].base_offset, piece[-1].last_offset
                        ),
                        aborted=aborted,
                    ),
                    include_headers=options.include_headers,
                    fail_on_data_loss=options.fail_on_data_loss,
                    fail_on_unreadable=options.fail_on_unreadable,
                    quarantine_store=options.quarantine_store,
                    row_filter=options.row_filter,
                )
            )
        return ranges


def partition_id(partition: SourcePartition) -> PartitionId:
    if partition.topic_id is None:
        raise CallError(f"{partition}: a topic of a store has an id; take it from topics()")
    return PartitionId(partition.topic_id, partition.partition)


def gone_message(partition: SourcePartition) -> str:
    return (
        f"{partition}: the topic with id {partition.topic_id} is deleted, or has no such partition;"
        " a topic of the same name that was created since is another one"
    )


def check_placed(
    partition: SourcePartition,
    placed: PlacedRecords | None,
    start: int,
    end: int,
    *,
    fail_on_data_loss: bool,
) -> None:
    """Raise DataLoss if a part of [start, end) cannot be read."""
    if not fail_on_data_loss:
        return
    if placed is None:
        raise DataLoss(f"offsets {start} to {end - 1} of {gone_message(partition)}")
    if start < placed.bounds.earliest:
        raise DataLoss(
            f"{partition}: offsets {start} to {min(end, placed.bounds.earliest) - 1} are gone: the"
            f" log starts at {placed.bounds.earliest}, by retention or DeleteRecords"
        )
    if end > placed.bounds.latest:
        raise DataLoss(
            f"{partition}: offsets {max(start, placed.bounds.latest)} to {end - 1} are not there:"
            f" the log ends at {placed.bounds.latest}"
        )
