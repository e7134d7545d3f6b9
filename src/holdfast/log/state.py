"""The state of one data lane: the logs of its partitions, its groups and its transactions.

Pure. Owns how facts change them, how an object's payload is laid out (grouped by partition, so
that each partition's batches are one stretch), and the snapshot's encoding.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from uuid import UUID

import msgspec

from holdfast.groups.facts import GroupFact
from holdfast.groups.state import (
    GroupsState,
    StoredGroups,
    restored_groups,
    stored_groups,
)
from holdfast.identifiers import PartitionId, in_order
from holdfast.lane.entry import SPOOLED, Buffer, EntryHeader
from holdfast.log.columns import column_bytes, fill_column
from holdfast.log.facts import (
    Appended,
    CeilingReserved,
    DataFact,
    LogStartMoved,
    PartitionPurged,
    PartitionRemoved,
    ProducersExpired,
    RecordsMissing,
    Rewritten,
    SegmentRef,
    decode_facts,
    encode_facts,
)
from holdfast.log.partition import Ceiling, EpochStart, PartitionLog, PartitionRun
from holdfast.log.producers import NO_COORDINATOR_EPOCH, ProducerState, RememberedBatch
from holdfast.log.transactions import AbortedTxn, OpenTransaction, Transactions
from holdfast.transactions.facts import TransactionFact
from holdfast.transactions.state import (
    StoredTransactions,
    TransactionsState,
    restored_transactions,
    stored_transactions,
)


def segment_key(partition: PartitionId, name: str) -> str:
    return f"{partition_prefix(partition)}{name}"


def partition_prefix(partition: PartitionId) -> str:
    return f"topics/{partition.topic_id}/{partition.partition:06d}/"


class LogState:
    """All partitions, groups and transactions of a lane."""

    def __init__(self) -> None:
        self.groups = GroupsState()
        self.transactions = TransactionsState()
        self.partitions: dict[PartitionId, PartitionLog] = {}
        self.removed: dict[PartitionId, None] = {}
        """Partitions of deleted topics whose segments may still be in the store."""
        self.leader_epoch = -1
        self.claims = array("q")
        """The numbers of all claims. Those objects are never deleted."""
        self.rewritten_up_to = -1
        self.rewritten_before = -1
        """Earlier owners had rewritten objects up to here: none is in a read plan of ours."""
        self.collectable: list[str] = []
        """Keys of segments that nothing durable names any more."""
        self._dropped: dict[int, list[str]] = {}

    def log_of(self, partition: PartitionId) -> PartitionLog:
        """Return the log of a partition; before the first write it is empty and not kept."""
        return self.partitions.get(partition) or PartitionLog(partition)

    def _made(self, partition: PartitionId) -> PartitionLog:
        """Return the log of a partition that a fact is about; create it if it is missing."""
        log = self.partitions.get(partition)
        if log is None:
            log = self.partitions[partition] = PartitionLog(partition)
        return log

    def apply(self, fact: DataFact) -> None:
        match fact:
            case Appended():
                self._made(fact.partition).append(fact, self.leader_epoch)
            case LogStartMoved():
                self._made(fact.partition).move_start(fact.offset)
            case PartitionRemoved():
                self.partitions.pop(fact.partition, None)
                self.removed[fact.partition] = None
            case PartitionPurged():
                self.removed.pop(fact.partition, None)
            case Rewritten():
                self._rewrite(fact)
            case CeilingReserved():
                self._made(fact.partition).ceiling = Ceiling(fact.ceiling, fact.claim)
            case RecordsMissing():
                self._made(fact.partition).missing.append(fact)
            case ProducersExpired():
                for log in self.partitions.values():
                    log.expire_producers(fact.before_ms)
            case _:
                if isinstance(fact, TransactionFact):
                    self.transactions.apply(fact)
                else:
                    self.groups.apply(fact)

    def _rewrite(self, fact: Rewritten) -> None:
        self.rewritten_up_to = max(self.rewritten_up_to, fact.up_to)
        for part in fact.partitions:
            log = self.partitions.get(part.partition)
            if log is not None:  # None if it was removed while it was rewritten
                gone = log.replace(fact.up_to, part.replaced, part.segments)
                self._drop(fact, part.partition, gone)

    def _drop(self, fact: DataFact, partition: PartitionId, gone: Sequence[SegmentRef]) -> None:
        if gone:
            keys = self._dropped.setdefault(id(fact), [])
            keys.extend(segment_key(partition, segment.name) for segment in gone)

    def keys_to_drop(self) -> Iterator[str]:
        """Yield the keys of segments that facts under way will drop, once those are durable."""
        for keys in self._dropped.values():
            yield from keys

    def layout(self, facts: Sequence[DataFact], payloads: Sequence[Buffer | None]) -> list[Buffer]:
        grouped: dict[PartitionId, list[Buffer]] = {}
        for fact, payload in zip(facts, payloads, strict=True):
            if isinstance(fact, Appended) and payload is not None:
                grouped.setdefault(fact.partition, []).append(payload)
        return [payload for group in grouped.values() for payload in group]

    def index(self, header: EntryHeader, facts: Sequence[DataFact]) -> None:
        grouped: dict[PartitionId, list[Appended]] = {}
        removed: dict[PartitionId, int] = {}
        for fact in facts:
            if isinstance(fact, Appended):
                grouped.setdefault(fact.partition, []).append(fact)
            elif isinstance(fact, PartitionRemoved):
                removed[fact.partition] = len(grouped.get(fact.partition, ()))
        position = 0
        for partition, appended in grouped.items():
            # Batches from before a removal are in the payload, but in no log.
            gone = removed.get(partition, 0)
            position += sum(batch.size_bytes for batch in appended[:gone])
            batches = appended[gone:] if gone else appended
            size = sum(batch.size_bytes for batch in batches)
            log = self.partitions.get(partition)
            if log is not None and batches:
                log.add_run(
                    PartitionRun(
                        batches[0].base_offset,
                        batches[-1].last_offset,
                        header.number,
                        position,
                        size,
                        max(batch.max_timestamp for batch in batches),
                    )
                )
            position += size

    def publish(self, facts: Sequence[DataFact]) -> None:
        for fact in facts:
            if isinstance(fact, Appended):
                log = self.partitions.get(fact.partition)
                if log is not None:
                    log.publish(fact)
                continue
            if isinstance(fact, GroupFact):
                self.groups.publish(fact)
                continue
            if isinstance(fact, TransactionFact):
                self.transactions.publish(fact)
                continue
            self.collectable.extend(self._dropped.pop(id(fact), ()))
            if isinstance(fact, CeilingReserved):
                log = self.partitions.get(fact.partition)
                if log is not None:
                    log.durable_ceiling = Ceiling(fact.ceiling, fact.claim)
            elif isinstance(fact, LogStartMoved):
                log = self.partitions.get(fact.partition)
                gone = log.publish_start(fact.offset) if log is not None else []
                self.collectable.extend(segment_key(fact.partition, s.name) for s in gone)

    def claimed(self, header: EntryHeader, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.claims.append(header.number)
        self.rewritten_before = self.rewritten_up_to

    def encode(self) -> bytes:
        return _encode_state(self)

    @property
    def run_count(self) -> int:
        """The number of runs in lane objects. Runs that are only on a disk cannot be rewritten."""
        return sum(bisect_left(log.runs.number, SPOOLED) for log in self.partitions.values())


class LogStateKind:
    """The factory and fact codec of a data lane's state."""

    def empty(self) -> LogState:
        return LogState()

    def decode(self, data: bytes) -> LogState:
        return _decode_state(data)

    def encode_facts(self, facts: Sequence[DataFact]) -> bytes:
        return encode_facts(facts)

    def decode_facts(self, data: bytes) -> Sequence[DataFact]:
        return decode_facts(data)


class _StoredProducer(msgspec.Struct, array_like=True):
    producer_id: int
    epoch: int
    last_ms: int
    batches: list[RememberedBatch]
    coordinator_epoch: int = NO_COORDINATOR_EPOCH


class _StoredTransaction(msgspec.Struct, array_like=True):
    producer_id: int
    open: OpenTransaction


class _StoredPartition(msgspec.Struct, array_like=True):
    topic_id: UUID
    partition: int
    start: int
    end: int
    runs: list[bytes]
    segments: list[SegmentRef]
    epochs: list[EpochStart]
    producers: list[_StoredProducer]
    transactions: list[_StoredTransaction] = []
    """Open transactions, oldest first."""
    aborted: list[AbortedTxn] = []
    ceiling: Ceiling = Ceiling(0, -1)
    missing: list[RecordsMissing] = []


class StoredState(msgspec.Struct, array_like=True):
    """The state of a data lane, as stored in a snapshot."""

    leader_epoch: int
    claims: bytes
    rewritten_up_to: int
    partitions: list[_StoredPartition]
    removed: list[PartitionId]
    groups: StoredGroups = StoredGroups()
    transactions: StoredTransactions = StoredTransactions()


_encoder = msgspec.msgpack.Encoder(uuid_format="bytes", order="deterministic")
"""It sorts sets and dicts, so that equal states give equal bytes, as `holdfast inspect` expects."""
_decoder = msgspec.msgpack.Decoder(StoredState)


def encode_stored(stored: StoredState) -> bytes:
    return _encoder.encode(stored)


def _encode_state(state: LogState) -> bytes:
    """Encode the state as of the last indexed object.

    Everything decided by then is durable before the snapshot is written.
    """
    return encode_stored(
        StoredState(
            state.leader_epoch,
            column_bytes(state.claims),
            state.rewritten_up_to,
            [_stored_partition(state.partitions[key]) for key in in_order(state.partitions)],
            in_order(state.removed),
            stored_groups(state.groups),
            stored_transactions(state.transactions),
        )
    )


def _stored_partition(log: PartitionLog) -> _StoredPartition:
    start = log.start_decided
    first_run = log.runs.find(start)
    first_epoch = 0
    while first_epoch + 1 < len(log.epochs) and log.epochs[first_epoch + 1].start_offset <= start:
        first_epoch += 1
    return _StoredPartition(
        log.partition.topic_id,
        log.partition.partition,
        start,
        log.log_end_offset,
        [column_bytes(column[first_run:]) for column in log.runs.columns()],
        [segment for segment in log.segments if segment.last_offset >= start],
        log.epochs[first_epoch:],
        [
            _StoredProducer(
                producer_id,
                producer.epoch,
                producer.last_ms,
                producer.batches,
                producer.coordinator_epoch,
            )
            for producer_id, producer in sorted(log.producers.items())
        ],
        [_StoredTransaction(*item) for item in log.transactions.open.items()],
        log.transactions.aborted_since(start),
        log.ceiling,
        [missing for missing in log.missing if missing.last_offset >= start],
    )


def _decode_state(data: bytes) -> LogState:
    stored = _decoder.decode(data)
    state = LogState()
    state.leader_epoch = stored.leader_epoch
    fill_column(state.claims, stored.claims)
    state.rewritten_up_to = stored.rewritten_up_to
    state.removed = dict.fromkeys(stored.removed)
    state.groups = restored_groups(stored.groups)
    state.transactions = restored_transactions(stored.transactions)
    for part in stored.partitions:
        partition = PartitionId(part.topic_id, part.partition)
        log = state.partitions[partition] = PartitionLog(partition)
        log.start_decided = log.log_start_offset = part.start
        log.log_end_offset = log.high_watermark = part.end
        for column, values in zip(log.runs.columns(), part.runs, strict=True):
            fill_column(column, values)
        log.segments = list(part.segments)
        log.epochs = list(part.epochs)
        for p in part.producers:
            log.producers[p.producer_id] = ProducerState(
                p.epoch, list(p.batches), p.last_ms, p.coordinator_epoch
            )
        log.transactions = Transactions(
            ((t.producer_id, t.open) for t in part.transactions), part.aborted
        )
        log.ceiling = log.durable_ceiling = part.ceiling
        log.missing = list(part.missing)
    return state
