"""A reader of some partitions of one topic, in one round of fetches after the other.

Owns the positions, and decides when a partition is done. One request goes to each leader in a
round. Errors that may pass are retried for a bounded time. Must never skip records silently: it
reports records that are gone from the log and batches that cannot be read.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.client.admin import EARLIEST, LATEST, list_offset
from holdfast.client.cluster import Cluster
from holdfast.client.fetch import PartitionFetch, PartitionToFetch, records_of
from holdfast.client.fetch_many import Unfetched, fetch_many
from holdfast.client.refusals import RETRIABLE, BrokerUnavailable, RefusedForNow, RequestRefused
from holdfast.errors import CorruptObject, RetryError
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.records.batch import BatchHeader
from holdfast.records.record import Record

ROUND_BYTES_MAX = 4 * 1024 * 1024
WAIT_MS = 500
PATIENCE_S = 60.0
PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class AtOffset:
    """A start at an offset, or at the nearest one if the log does not have it."""

    offset: int


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """A start this many offsets before the end."""

    records: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """A start at the first record that is not older than a timestamp."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtEnd:
    """A start at the end: only later records are read."""


Start = AtOffset | BeforeEnd | AtTime | AtEnd
FROM_THE_BEGINNING = AtOffset(0)


class FetchedRecords(NamedTuple):
    """The records of one fetch of one partition, and the offset to fetch next."""

    where: TopicPartition
    records: Iterator[Record]
    next_offset: int


class TopicReader:
    """A reader for one task. Partitions may be added and removed at any time.

    The reader owns the cluster and closes it: fetches wait for records, and no other request must
    wait behind them.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        read_committed: bool,
        tell: Callable[[str], None],
    ) -> None:
        self.positions: dict[int, int] = {}
        """The next offset of each partition that is read."""
        self.ends: dict[int, int] = {}
        """The offset at which a partition is done; a partition without one is read for ever."""
        self.batches_unreadable = 0
        self._cluster = cluster
        self._topic = topic
        self._read_committed = read_committed
        self._tell = tell
        self._failing_since: float | None = None

    def add(self, partition: int, position: int, end: int | None) -> None:
        self.positions[partition] = position
        if end is not None:
            self.ends[partition] = end

    def move(self, partition: int, position: int) -> None:
        """Continue at this position, if the partition is still read."""
        if partition in self.positions:
            self.positions[partition] = position

    async def close(self) -> None:
        """Close the connections, which the reader owns."""
        await self._cluster.close()

    def remove(self, partition: int) -> None:
        self.positions.pop(partition, None)
        self.ends.pop(partition, None)

    @property
    def unfinished(self) -> list[int]:
        """The partitions that have not reached their end."""
        return [n for n, at in self.positions.items() if n not in self.ends or at < self.ends[n]]

    async def fetch_round(self) -> list[FetchedRecords]:
        """Send one Fetch to each leader; return [] if no record came, or if an error may pass."""
        try:
            found = await self._fetch_round()
        except RetryError as error:
            now = self._cluster.environment.monotonic()
            if self._failing_since is None:
                self._failing_since = now
                self._tell(f"waiting for the cluster: {error}")
            elif now - self._failing_since > PATIENCE_S:
                raise BrokerUnavailable(
                    f"topic {self._topic!r} could not be read for {PATIENCE_S:.0f} s: {error}"
                ) from error
            await asyncio.sleep(PAUSE_S)
            return []
        self._failing_since = None
        return found

    async def _fetch_round(self) -> list[FetchedRecords]:
        by_leader: dict[int, list[PartitionToFetch]] = {}
        for partition in self.unfinished:
            leader = await self._cluster.leader(self._topic, partition)
            row = PartitionToFetch(
                self._topic, partition, self.positions[partition], ROUND_BYTES_MAX
            )
            by_leader.setdefault(leader.node_id, []).append(row)
        answers = await asyncio.gather(
            *(
                fetch_many(
                    self._cluster,
                    node_id,
                    wanted,
                    max_wait_ms=WAIT_MS,
                    max_bytes=ROUND_BYTES_MAX,
                    read_committed=self._read_committed,
                )
                for node_id, wanted in by_leader.items()
            )
        )
        found: list[FetchedRecords] = []
        problem: RetryError | None = None
        for where, answer in ((w, a) for answered in answers for w, a in answered.items()):
            if isinstance(answer, PartitionFetch):
                found.append(self._found(where, answer))
            elif where.partition not in self.positions:
                continue
            elif answer.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._go_on_after_a_gap(where)
            else:
                problem = self._problem(where, answer)
        if problem is not None and not found:
            raise problem
        return found

    def _found(self, where: TopicPartition, fetched: PartitionFetch) -> FetchedRecords:
        def unreadable(header: BatchHeader, error: CorruptObject) -> None:
            self.batches_unreadable += 1
            self._tell(
                f"{where.topic}-{where.partition}: offsets {header.base_offset} to"
                f" {header.last_offset} cannot be read and are left out: {error}"
            )

        records = records_of(fetched, read_committed=self._read_committed, on_unreadable=unreadable)
        return FetchedRecords(where, records, fetched.next_offset)

    async def _go_on_after_a_gap(self, where: TopicPartition) -> None:
        """Continue at the log start if retention has deleted what was to be read next."""
        position = self.positions[where.partition]
        earliest = (await list_offset(self._cluster, *where, at=EARLIEST)).offset
        if position >= earliest:
            latest = (await list_offset(self._cluster, *where, at=LATEST)).offset
            raise RequestRefused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{where.topic}-{where.partition} has no offset {position}: it has {earliest} to"
                f" {latest - 1}; was the topic deleted and created again?",
            )
        self._tell(
            f"{where.topic}-{where.partition}: offsets {position} to {earliest - 1} are gone from"
            f" the log (retention); going on at {earliest}"
        )
        self.positions[where.partition] = earliest

    def _problem(self, where: TopicPartition, answer: Unfetched) -> RetryError:
        message = f"fetch {where.topic}-{where.partition}: {answer.code.name}"
        if answer.code in RETRIABLE or answer.code == ErrorCode.NONE:
            return RefusedForNow(answer.code, message)
        raise RequestRefused(answer.code, message)


async def start_offsets(
    cluster: Cluster, starts: Mapping[TopicPartition, Start], *, read_committed: bool
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the start offset and the current end of each partition."""

    async def ask(where: TopicPartition, start: Start) -> tuple[int, int]:
        latest = await list_offset(cluster, *where, at=LATEST, read_committed=read_committed)
        end = latest.offset
        earliest = (await list_offset(cluster, *where, at=EARLIEST)).offset
        match start:
            case AtEnd():
                wanted = end
            case AtOffset():
                wanted = start.offset
            case BeforeEnd():
                wanted = end - start.records
            case AtTime():
                listed = await list_offset(
                    cluster, *where, at=start.timestamp_ms, read_committed=read_committed
                )
                wanted = listed.offset if listed.offset >= 0 else end
        return min(max(wanted, earliest), max(earliest, end)), end

    found = await asyncio.gather(*(ask(where, start) for where, start in starts.items()))
    return dict(zip(starts, found, strict=True))
