"""Decide on the abort of a transaction that an administrator believes to be hanging.

Pure. Owns the rule that a transaction ends the same way everywhere. If its coordinator still has it
open, it is aborted as a whole. If its coordinator is ending it, it ends as was decided. Only a
transaction that no coordinator knows is ended on one partition alone.
"""

import enum
from collections.abc import Iterable

from holdfast.identifiers import PartitionId
from holdfast.protocol.api import ErrorCode
from holdfast.transactions.decide import ProducerIdAndEpoch
from holdfast.transactions.state import Transaction, TransactionPhase


class AbortOf(enum.Enum):
    """The extent of an abort."""

    WHOLE_TRANSACTION = enum.auto()
    ONE_PARTITION = enum.auto()


def transaction_of(
    transactions: Iterable[Transaction], producer_id: int, partition: PartitionId
) -> Transaction | None:
    """Return the transaction of a producer that is open, or ending, on a partition."""
    for transaction in transactions:
        marker = transaction.marker
        of_producer = marker.producer_id if marker is not None else transaction.producer_id
        if of_producer == producer_id and partition in transaction.partitions:
            return transaction
    return None


def judge_abort(known: Transaction | None, producer: ProducerIdAndEpoch) -> AbortOf | ErrorCode:
    """Return what to abort if asked for one partition of a producer, or why that is refused."""
    if known is None:
        return AbortOf.ONE_PARTITION
    if known.phase is not TransactionPhase.ONGOING:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if producer.producer_epoch != known.producer_epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return AbortOf.WHOLE_TRANSACTION
