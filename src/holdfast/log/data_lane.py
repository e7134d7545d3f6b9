"""A data lane that this broker owns: its partitions' logs, live.

Owns the wiring between the lane (durability), the tail (memory) and those who wait for records.
"""

import asyncio
from collections.abc import Callable, Sequence

from holdfast.environment import Environment
from holdfast.errors import HoldfastError
from holdfast.identifiers import PartitionId
from holdfast.lane.appender import GroupSettings
from holdfast.lane.claim import ClaimedLane
from holdfast.lane.entry import Buffer, EntryHeader
from holdfast.lane.owned import SNAPSHOT_EVERY, OwnedLane
from holdfast.log.facts import Appended, DataFact, PartitionRemoved
from holdfast.log.memory import ReadCache, Tail
from holdfast.log.partition import PartitionLog
from holdfast.log.reader import LogReader
from holdfast.log.state import LogState, LogStateKind
from holdfast.store.interface import Store


class DataLane(OwnedLane[LogState, DataFact]):
    """The partitions of one lane."""

    def __init__(
        self,
        *,
        store: Store,
        environment: Environment,
        claimed: ClaimedLane[LogState],
        settings: GroupSettings,
        tail: Tail,
        cache: ReadCache,
        on_lost: Callable[[HoldfastError], None],
        snapshot_every: int = SNAPSHOT_EVERY,
    ) -> None:
        self.tail = tail
        self._watchers: dict[PartitionId, dict[asyncio.Event, None]] = {}
        """In the order of their coming: a set of events would be in that of their addresses."""
        self._when_fenced: list[Callable[[HoldfastError], None]] = []
        self.entries_published = 0
        self.bytes_published = 0
        super().__init__(
            store=store,
            environment=environment,
            claimed=claimed,
            kind=LogStateKind(),
            settings=settings,
            snapshot_every=snapshot_every,
            on_lost=on_lost,
        )
        self.reader = LogReader(
            store=store,
            environment=environment,
            lane=claimed.cursor.lane,
            tail=tail,
            cache=cache,
        )

    def log_of(self, partition: PartitionId) -> PartitionLog:
        return self.state.log_of(partition)

    def published(
        self, header: EntryHeader, facts: Sequence[DataFact], payload: list[Buffer]
    ) -> None:
        super().published(header, facts, payload)
        self.entries_published += 1
        self.bytes_published += header.payload_bytes
        if payload:
            self.tail.add(self.lane, header.number, payload)
        if self._watchers:
            for fact in facts:
                if isinstance(fact, Appended | PartitionRemoved):
                    self._wake(fact.partition)

    def fenced(self, error: HoldfastError) -> None:
        self.tail.forget(self.lane)
        super().fenced(error)
        for partition in list(self._watchers):
            self._wake(partition)
        for told in self._when_fenced:
            told(error)

    def when_fenced(self, told: Callable[[HoldfastError], None]) -> None:
        """Have somebody told when the lane is no longer ours."""
        self._when_fenced.append(told)

    def watch(self, partition: PartitionId, event: asyncio.Event) -> None:
        """Set the event when the partition has more records, or this broker has it no longer."""
        self._watchers.setdefault(partition, {})[event] = None

    def unwatch(self, partition: PartitionId, event: asyncio.Event) -> None:
        watchers = self._watchers.get(partition)
        if watchers is not None:
            watchers.pop(event, None)
            if not watchers:
                del self._watchers[partition]

    def _wake(self, partition: PartitionId) -> None:
        for event in self._watchers.get(partition, ()):
            event.set()
