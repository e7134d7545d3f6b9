"""A data lane that this broker owns, with the live logs of its partitions.

Owns which way a batch goes (straight to the store, or by the disk first), and what follows when it
is published: it stays in memory, and the fetches that wait for it wake up.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from holdfast.environment import Environment
from holdfast.errors import HoldfastError
from holdfast.identifiers import PartitionId
from holdfast.lane.claim import ClaimedLane
from holdfast.lane.effects import Effect, Indexed, Journaled, LaneLost, Stored
from holdfast.lane.entry import Buffer
from holdfast.lane.journal_queue import FlushRules, JournalSettings
from holdfast.lane.lane import CLOSE_PATIENCE_S, Lane
from holdfast.lane.pending import GroupSettings
from holdfast.lane.snapshots import SNAPSHOT_EVERY
from holdfast.lane.spool.disk import Disk
from holdfast.lane.spool.frames import SpoolId
from holdfast.lane.spool.spool import Spool
from holdfast.log.facts import (
    Appended,
    CeilingReserved,
    DataFact,
    PartitionRemoved,
    ProducersExpired,
)
from holdfast.log.memory import ReadCache, Tail
from holdfast.log.partition import PartitionLog
from holdfast.log.reader import LogReader
from holdfast.log.state import LogState, LogStateKind
from holdfast.store.interface import Store

RESERVED_OFFSETS = 1_000_000
"""How far past its log end a partition's ceiling is raised: one fact for this many records."""


class DataLane(Lane[LogState, DataFact]):
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
        disk: Disk | None = None,
        journal_settings: JournalSettings | None = None,
    ) -> None:
        self.tail = tail
        self._watchers: dict[PartitionId, dict[asyncio.Event, None]] = {}
        """The events of waiting fetches, in order of arrival. A set would order them by address."""
        self._when_fenced: list[Callable[[HoldfastError], None]] = []
        self.entries_published = 0
        self.bytes_published = 0
        self._by_disk: set[PartitionId] = set()
        """Partitions whose newest batch went by the disk."""
        self.records_by_disk = 0
        """The number of records that were acknowledged before they were in the store."""
        self.bypassed: Counter[str] = Counter()
        """Batches of disk-acked topics that went straight to the store, by the reason."""
        self.awaited: dict[PartitionId, int] = {
            partition: claim
            for partition, log in claimed.state.partitions.items()
            if (claim := log.awaits_claim) is not None
        }
        """Partitions whose newest records may be only on the disk of an earlier claim, with that
        claim. They are neither read nor written until those records are replayed or given up."""
        cursor = claimed.cursor
        spool = None
        if disk is not None:
            spool = Spool(disk, SpoolId(cursor.lane, cursor.claim, claimed.writer))
        super().__init__(
            store=store,
            environment=environment,
            claimed=claimed,
            kind=LogStateKind(),
            settings=settings,
            snapshot_every=snapshot_every,
            on_lost=on_lost,
            journal=spool,
            journal_settings=journal_settings,
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

    def is_offline(self, partition: PartitionId) -> bool:
        """True if the end of the partition's log may be on a disk that is not replayed."""
        return bool(self.awaited) and partition in self.awaited

    def is_by_disk(self, partition: PartitionId) -> bool:
        """True if the newest batch of a partition went by the disk."""
        return partition in self._by_disk

    def append(
        self,
        fact: Appended,
        record_batch: Buffer,
        *,
        to_disk: bool,
        flush: FlushRules | None = None,
    ) -> bool:
        """Add a decided batch to its log, by the disk if `to_disk` and allowed; True if so."""
        if not to_disk:
            self.add(fact, record_batch)
            self.lower_ceiling(fact.partition)
            return False
        log = self.log_of(fact.partition)
        reason = self._why_not_by_disk(log, fact)
        if reason is None:
            is_next = fact.partition in self._by_disk or log.high_watermark == log.log_end_offset
            self._by_disk.add(fact.partition)
            self.add_to_journal(fact, record_batch, flush=flush, after_put=not is_next)
        else:
            self.bypassed[reason] += 1
            self.add(fact, record_batch)
        if reason in (None, "ceiling", "order"):
            self._reserve(fact.partition)
        return reason is None

    def _why_not_by_disk(self, log: PartitionLog, fact: Appended) -> str | None:
        """Return why a batch must go straight to the store; None if it need not.

        "order": an earlier batch of its partition waits for the next object, and a flush would
        put this one before it.
        """
        if self.queue is None:
            return "no disk"
        if not self.takes_to_journal:
            return "disk failed"
        if fact.is_transactional:
            return "transaction"
        if fact.last_offset >= self._ceiling_of(log):
            return "ceiling"
        if fact.partition not in self._by_disk and log.sealed_end_offset != log.log_end_offset:
            return "order"
        return None

    def _ceiling_of(self, log: PartitionLog) -> int:
        """Return the offset below which this owner may acknowledge from its disk.

        It is the lower of the durable and the decided ceiling: one that is about to be lowered
        protects nothing.
        """
        claim = self.claimed_lane.cursor.claim
        if log.durable_ceiling.claim != claim or log.ceiling.claim != claim:
            return 0
        return min(log.durable_ceiling.offset, log.ceiling.offset)

    def lower_ceiling(self, partition: PartitionId) -> None:
        """Lower a partition's ceiling to its log end, so that no later owner needs this disk."""
        log = self.log_of(partition)
        claim = self.claimed_lane.cursor.claim
        if log.ceiling.claim == claim and log.ceiling.offset > log.log_end_offset:
            self.add(CeilingReserved(partition, log.log_end_offset, claim))

    def _reserve(self, partition: PartitionId) -> None:
        """Raise the ceiling well before the log reaches it."""
        log = self.log_of(partition)
        claim = self.claimed_lane.cursor.claim
        is_low = log.ceiling.offset - log.log_end_offset < RESERVED_OFFSETS // 2
        if is_low or log.ceiling.claim != claim:
            ceiling = log.log_end_offset + RESERVED_OFFSETS
            self.add(CeilingReserved(partition, ceiling, claim))

    async def close(self, *, release: bool, patience_s: float = CLOSE_PATIENCE_S) -> bool:
        """Put everything that waits. After a release, no record is only on the disk."""
        if release and self.is_open:
            for partition in self.state.partitions:
                self.lower_ceiling(partition)
        return await super().close(release=release, patience_s=patience_s)

    def add(self, fact: DataFact, payload: Buffer | None = None) -> None:
        """Add a fact, after journaled batches of its partition."""
        if isinstance(fact, PartitionRemoved):
            self.awaited.pop(fact.partition, None)
        if self._by_disk and self._ends_journaling(fact):
            self.flush_journal_soon()
        super().add(fact, payload)

    def _ends_journaling(self, fact: DataFact) -> bool:
        """True if a fact must come after journaled batches; newer ones take another way."""
        if isinstance(fact, ProducersExpired):
            self._by_disk.clear()  # the fact is about all partitions
            return True
        partition = getattr(fact, "partition", None)
        if partition not in self._by_disk or self._raises_ceiling(fact):
            return False
        self._by_disk.discard(partition)
        return True

    def _raises_ceiling(self, fact: DataFact) -> bool:
        if not isinstance(fact, CeilingReserved):
            return False
        return fact.ceiling > self.log_of(fact.partition).log_end_offset

    def consume(self, effect: Effect[DataFact]) -> None:
        match effect:
            case Stored(header, facts, payload, frames):
                self.entries_published += 1
                self.bytes_published += header.payload_bytes
                if payload:
                    self.tail.add(self.lane, header.number, payload)
                    self.tail.unpin(self.lane, header.number)
                self._wake_readers(facts)
                for frame in frames:
                    self.tail.unpin(self.lane, frame)
            case Journaled(facts, is_stored):
                if not is_stored:
                    self.records_by_disk += sum(
                        fact.last_offset - fact.base_offset + 1
                        for fact in facts
                        if isinstance(fact, Appended)
                    )
                self._wake_readers(facts)
            case Indexed(number, payload):
                self.tail.pin(self.lane, number, payload)
            case LaneLost(error):
                self.tail.forget(self.lane)
                self.wake_all()
                for told in self._when_fenced:
                    told(error)

    def _wake_readers(self, facts: Sequence[DataFact]) -> None:
        if self._watchers:
            for fact in facts:
                if isinstance(fact, Appended | PartitionRemoved):
                    self._wake_fetches(fact.partition)

    def when_fenced(self, told: Callable[[HoldfastError], None]) -> None:
        """Register a callback for the moment when this broker loses the lane."""
        self._when_fenced.append(told)

    def watch(self, partition: PartitionId, event: asyncio.Event) -> None:
        """Set `event` when the partition has more records, is deleted, or leaves this broker."""
        self._watchers.setdefault(partition, {})[event] = None

    def unwatch(self, partition: PartitionId, event: asyncio.Event) -> None:
        watchers = self._watchers.get(partition)
        if watchers is not None:
            watchers.pop(event, None)
            if not watchers:
                del self._watchers[partition]

    def wake_all(self) -> None:
        """Wake all fetches that wait for records, because this broker has lost the lane."""
        for partition in list(self._watchers):
            self._wake_fetches(partition)

    def _wake_fetches(self, partition: PartitionId) -> None:
        for event in self._watchers.get(partition, ()):
            event.set()
