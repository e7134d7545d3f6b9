"""The transactions of one lane, as its facts have built them.

Pure. Owns the phases of a transaction and its encoding in the lane's snapshot.
"""

import enum

import msgspec

from holdfast.identifiers import PartitionId
from holdfast.lane.unsettled import Unsettled
from holdfast.transactions.facts import (
    ProducerInitialised,
    TransactionalIdExpired,
    TransactionEnded,
    TransactionEnding,
    TransactionExtended,
    TransactionFact,
)

NO_PRODUCER = -1


class TransactionPhase(enum.Enum):
    """The state of a transaction; the names are Kafka's."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def is_ending(self) -> bool:
        return self in (TransactionPhase.PREPARE_COMMIT, TransactionPhase.PREPARE_ABORT)


class PendingMarker(msgspec.Struct, frozen=True, array_like=True):
    """What is written to each participant when the transaction ends."""

    producer_id: int
    producer_epoch: int
    committed: bool


class Transaction(msgspec.Struct, kw_only=True):
    """One transactional id, and its newest transaction. Mutable: facts change it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    updated_ms: int
    phase: TransactionPhase = TransactionPhase.EMPTY
    previous_producer_id: int = NO_PRODUCER
    previous_producer_epoch: int = -1
    """With the id, the producer before its last step: it may still retry a request that is done."""
    started_ms: int = -1
    partitions: set[PartitionId] = msgspec.field(default_factory=set[PartitionId])
    groups: set[str] = msgspec.field(default_factory=set[str])
    marker: PendingMarker | None = None

    def extend(self, fact: TransactionExtended) -> None:
        if self.phase is not TransactionPhase.ONGOING:
            self.phase = TransactionPhase.ONGOING
            self.started_ms = fact.at_ms
        self.partitions.update(fact.partitions)
        self.groups.update(fact.groups)

    def prepare(self, fact: TransactionEnding) -> None:
        self.phase = (
            TransactionPhase.PREPARE_COMMIT if fact.committed else TransactionPhase.PREPARE_ABORT
        )
        self.marker = PendingMarker(self.producer_id, fact.marker_epoch, fact.committed)
        self.previous_producer_id = NO_PRODUCER if fact.fences else self.producer_id
        self.previous_producer_epoch = -1 if fact.fences else self.producer_epoch
        self.producer_id = fact.next_producer_id
        self.producer_epoch = fact.next_producer_epoch

    def complete(self) -> None:
        is_committed = self.phase is TransactionPhase.PREPARE_COMMIT
        self.phase = (
            TransactionPhase.COMPLETE_COMMIT if is_committed else TransactionPhase.COMPLETE_ABORT
        )
        self.partitions = set()
        self.groups = set()
        self.marker = None
        self.started_ms = -1


class TransactionsState:
    """All transactional ids of a lane."""

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        self._unsettled = Unsettled()

    def is_settled(self, transactional_id: str) -> bool:
        """True if all that was decided about an id is durable."""
        return transactional_id not in self._unsettled

    def apply(self, fact: TransactionFact) -> None:
        name = fact.transactional_id
        self._unsettled.decided(name)
        if isinstance(fact, ProducerInitialised):
            self.transactions[name] = Transaction(
                transactional_id=name,
                producer_id=fact.producer_id,
                producer_epoch=fact.producer_epoch,
                timeout_ms=fact.timeout_ms,
                updated_ms=fact.at_ms,
                previous_producer_id=fact.previous_producer_id,
                previous_producer_epoch=fact.previous_producer_epoch,
            )
            return
        if isinstance(fact, TransactionalIdExpired):
            self.transactions.pop(name, None)
            return
        transaction = self.transactions[name]
        transaction.updated_ms = fact.at_ms
        match fact:
            case TransactionExtended():
                transaction.extend(fact)
            case TransactionEnding():
                transaction.prepare(fact)
            case TransactionEnded():
                transaction.complete()

    def publish(self, fact: TransactionFact) -> None:
        """Note that the lane object of the fact is durable."""
        self._unsettled.published(fact.transactional_id)


class StoredTransactions(msgspec.Struct, frozen=True, array_like=True):
    """The transactions of a lane in its snapshot."""

    transactions: list[Transaction] = []


def stored_transactions(state: TransactionsState) -> StoredTransactions:
    return StoredTransactions([found for _, found in sorted(state.transactions.items())])


def restored_transactions(stored: StoredTransactions) -> TransactionsState:
    state = TransactionsState()
    state.transactions = {t.transactional_id: t for t in stored.transactions}
    return state
