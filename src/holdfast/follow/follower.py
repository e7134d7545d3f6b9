"""Topics, offsets and the places of records, read from a store without a broker.

Owns one view of the whole store: the control lane and all data lanes, as of the last refresh. A
latest offset that was served once never goes back: if the store says less, `refresh` raises. Must
never write. A broker may write, rewrite and delete at the same time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from holdfast.cluster.state import ControlState, ControlStateKind
from holdfast.environment import Environment
from holdfast.errors import ConfigurationError, CorruptObject, ObjectNotFound
from holdfast.follow.lane import FollowedLane
from holdfast.follow.stretches import check_tiles, stretches_of_runs, stretches_of_segment
from holdfast.identifiers import CONTROL_LANE, LaneId, PartitionId
from holdfast.log.memory import ReadCache, Tail
from holdfast.log.partition import EpochStart, PartitionLog
from holdfast.log.reader import LogReader
from holdfast.log.state import LogState, LogStateKind
from holdfast.log.stored_batches import Stretch
from holdfast.log.times import TimedOffset, offset_for_time, offset_of_max_timestamp
from holdfast.log.transactions import AbortedTxn
from holdfast.store.interface import Store

T = TypeVar("T")

LOOKS_MAX = 5
INDEX_READS_AT_ONCE = 16
TIME_CACHE_BYTES = 16 * 1024 * 1024


class FollowedTopic(NamedTuple):
    """A topic that clients may use; one that was deleted and created again has another id."""

    name: str
    topic_id: UUID
    partitions: int


class KnownOffsets(NamedTuple):
    """The offsets that a partition has: from earliest up to, and without, latest."""

    earliest: int
    latest: int


class PlacedRecords(NamedTuple):
    """The places of records, and the partition's bounds when they were looked up.

    The stretches hold all requested offsets that are within the bounds, except stretches whose
    newest record is older than requested.
    """

    bounds: KnownOffsets
    stretches: list[Stretch]
    epochs: Sequence[EpochStart] = ()
    """The leader epochs of the stretches' batches."""
    aborted: Sequence[AbortedTxn] = ()
    """Aborted transactions with records in the requested offsets; only with `read_committed`."""


class _View(NamedTuple):
    partition: PartitionId
    read_committed: bool


class _Found(NamedTuple):
    lane: FollowedLane[LogState]
    reader: LogReader
    log: PartitionLog

    def bounds(self, *, read_committed: bool) -> KnownOffsets:
        log = self.log
        latest = log.last_stable_offset if read_committed else log.high_watermark
        return KnownOffsets(log.log_start_offset, latest)


class StoreFollower:
    """One reader's view of a store. Its calls may overlap; only `refresh` changes what they see."""

    def __init__(self, store: Store, *, environment: Environment) -> None:
        self._store = store
        self._environment = environment
        self._control = FollowedLane(store, environment, CONTROL_LANE, ControlStateKind())
        self._lanes: dict[LaneId, FollowedLane[LogState]] = {}
        self._readers: dict[LaneId, LogReader] = {}
        self._served: dict[_View, KnownOffsets] = {}
        self._refreshing = asyncio.Lock()

    async def refresh(self) -> None:
        """Take in all that is durable now; read only objects that are new since the last time."""
        async with self._refreshing:
            if not self._lanes:
                await self._open_lanes()
            await self._refresh_lanes()
            # After the data lanes: a partition is removed there only when the deletion of its topic
            # is durable here, so none is ever seen emptied under a topic that seems to live.
            await self._control.refresh()
            for lane in self._lanes.values():
                lane.state.collectable.clear()
                lane.forget_starts_up_to(lane.state.rewritten_up_to)
            self._check_served()

    async def _refresh_lanes(self) -> None:
        # All of them end before a failure is raised: the next refresh must find none running.
        outcomes = await asyncio.gather(
            *(lane.refresh() for lane in self._lanes.values()), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _open_lanes(self) -> None:
        await self._control.refresh()
        if not self._control.cursor.next_number:
            raise ConfigurationError(
                f"{self._store.url} has no lane 0, so it is not a Holdfast store: check the"
                " address, with its prefix"
            )
        for number in range(1, self._control.state.lanes + 1):
            lane = LaneId(number)
            self._lanes[lane] = FollowedLane(self._store, self._environment, lane, LogStateKind())
            self._readers[lane] = LogReader(
                store=self._store,
                environment=self._environment,
                lane=lane,
                tail=Tail(0),
                cache=ReadCache(TIME_CACHE_BYTES),
            )

    def _check_served(self) -> None:
        for view, served in list(self._served.items()):
            found = self._find(view.partition)
            if found is None:
                del self._served[view]  # the topic is deleted, and its id never comes back
                continue
            latest = found.bounds(read_committed=view.read_committed).latest
            if latest < served.latest:
                raise CorruptObject(
                    f"{view.partition}: the latest offset is {latest} now, but {served.latest} was"
                    " served before: was the store put back to an older state?"
                )

    @property
    def _cluster(self) -> ControlState:
        return self._control.state

    @property
    def cluster_id(self) -> str:
        return self._cluster.cluster_id

    @property
    def entries_followed(self) -> int:
        """How many objects were read one by one, besides those that a recovery read."""
        lanes = [self._control, *self._lanes.values()]
        return sum(lane.entries_followed for lane in lanes)

    @property
    def recoveries(self) -> int:
        """How often a lane had to be read from its newest snapshot on."""
        return sum(lane.recoveries for lane in [self._control, *self._lanes.values()])

    def topics(self) -> dict[str, FollowedTopic]:
        """Return all topics that clients may use, by name."""
        return {
            topic.name: FollowedTopic(topic.name, topic.topic_id, topic.partitions)
            for name in sorted(self._cluster.names)
            if (topic := self._cluster.topic_named(name)) is not None
        }

    def bounds(
        self, partition: PartitionId, *, read_committed: bool = False
    ) -> KnownOffsets | None:
        """Return earliest and latest; None if there is no such partition, or no longer.

        With `read_committed`, latest is the last stable offset.
        """
        found = self._find(partition)
        if found is None:
            return None
        now = found.bounds(read_committed=read_committed)
        view = _View(partition, read_committed)
        before = self._served.get(view, now)
        held = KnownOffsets(max(now.earliest, before.earliest), max(now.latest, before.latest))
        self._served[view] = held
        return held

    async def offset_for_time(
        self, partition: PartitionId, timestamp: int, *, read_committed: bool = False
    ) -> TimedOffset | None:
        """Return the first record that is not older than the timestamp; None if all are older."""

        def look(found: _Found) -> Awaitable[TimedOffset | None]:
            end = found.bounds(read_committed=read_committed).latest
            return offset_for_time(found.reader, found.log, timestamp, end)

        return await self._looked_anew(partition, look)

    async def offset_of_max_timestamp(
        self, partition: PartitionId, *, read_committed: bool = False
    ) -> TimedOffset | None:
        """Return the first record with the greatest timestamp."""

        def look(found: _Found) -> Awaitable[TimedOffset | None]:
            end = found.bounds(read_committed=read_committed).latest
            return offset_of_max_timestamp(found.reader, found.log, end)

        return await self._looked_anew(partition, look)

    async def place(
        self,
        partition: PartitionId,
        start: int,
        end: int,
        *,
        since_ms: int | None = None,
        read_committed: bool = False,
    ) -> PlacedRecords | None:
        """Return where the records from start up to end are; None if there is no such partition.

        With `since_ms`, stretches in which every batch says that its records are older are left
        out. The others may still hold older records. With `read_committed`, the records of aborted
        transactions are there too, and the transactions are named.
        """

        def look(found: _Found) -> Awaitable[PlacedRecords]:
            bounds = found.bounds(read_committed=read_committed)
            first, last = max(start, bounds.earliest), min(end, bounds.latest)
            transactions = found.log.transactions
            aborted = transactions.aborted_within(first, last) if read_committed else ()
            return self._place(
                found, PlacedRecords(bounds, [], aborted=aborted), (first, last), since_ms
            )

        return await self._looked_anew(partition, look)

    async def _place(
        self, found: _Found, placed: PlacedRecords, wanted: tuple[int, int], since_ms: int | None
    ) -> PlacedRecords:
        log = found.log
        start, end = wanted
        # Copied before the first await: a refresh may change the log from then on.
        epochs = tuple(log.epochs)
        runs = stretches_of_runs(log, found.lane.lane, found.lane.payload_starts, start, end)
        segments = [s for s in log.segments if s.last_offset >= start and s.base_offset < end]
        stretches: list[Stretch] = []
        for i in range(0, len(segments), INDEX_READS_AT_ONCE):
            several = await asyncio.gather(
                *(
                    stretches_of_segment(found.reader, log.partition, segment, start, end)
                    for segment in segments[i : i + INDEX_READS_AT_ONCE]
                )
            )
            stretches.extend(stretch for some in several for stretch in some)
        stretches.extend(runs)
        check_tiles(log.partition, stretches, start, end)
        return placed._replace(stretches=_since(stretches, since_ms), epochs=epochs)

    def _find(self, partition: PartitionId) -> _Found | None:
        topic = self._cluster.usable(partition.topic_id)
        number = topic.lane_of(partition.partition) if topic is not None else None
        if number is None:
            return None
        lane = self._lanes[number]
        return _Found(lane, self._readers[number], lane.state.log_of(partition))

    async def _looked_anew(
        self, partition: PartitionId, look: Callable[[_Found], Awaitable[T]]
    ) -> T | None:
        """Look, and after a refresh again if an object is gone: it was rewritten or dropped."""
        missing = ""
        for _ in range(LOOKS_MAX):
            found = self._find(partition)
            if found is None:
                return None
            try:
                return await look(found)
            except ObjectNotFound as error:
                missing = str(error)
            await self.refresh()
        raise CorruptObject(
            f"{partition}: after {LOOKS_MAX} looks the lane still names an object that is not"
            f" there: {missing}"
        )


def _since(stretches: Sequence[Stretch], since_ms: int | None) -> list[Stretch]:
    return [s for s in stretches if since_ms is None or s.max_timestamp >= since_ms]
