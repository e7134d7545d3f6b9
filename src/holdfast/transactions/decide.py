"""Decide on transactions: which producer may write, what joins a transaction, how it ends.

Pure. Refusals are Kafka's error codes. Must never change anything: the lane applies the facts that
are returned. A producer epoch rises whenever a producer takes over and, for clients with KIP-890,
whenever a transaction ends: then a request of an earlier transaction can never reach a later one.
"""

import dataclasses
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from holdfast.identifiers import PartitionId
from holdfast.protocol.api import ErrorCode
from holdfast.transactions.facts import (
    ProducerInitialised,
    TransactionalIdExpired,
    TransactionEnding,
    TransactionExtended,
)
from holdfast.transactions.state import NO_PRODUCER, Transaction, TransactionPhase

EPOCH_MAX = 32_767
"""The last epoch of a producer id; it is kept for the marker that ends its last transaction."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRules:
    """The settings of transactions; the names are Kafka's."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 3_600_000


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and its epoch, as a request or a response carries them."""

    producer_id: int
    producer_epoch: int


NOBODY = ProducerIdAndEpoch(NO_PRODUCER, -1)


class Initialised(NamedTuple):
    """The producer may continue, under the producer id and epoch of the fact."""

    fact: ProducerInitialised


class GoOn(NamedTuple):
    """The request was sent again and is done already: `producer` continues."""

    producer: ProducerIdAndEpoch


class AbortFirst(NamedTuple):
    """Another transaction of this id is open: it is aborted, and the client asks again."""

    fact: TransactionEnding


class FreshIdNeeded(NamedTuple):
    """Epochs have run out, or the id is new: ask again with a producer id that was never used."""


class Ending(NamedTuple):
    """The end of the transaction is decided; the response names `producer`, which continues."""

    fact: TransactionEnding
    producer: ProducerIdAndEpoch


def init_producer(
    known: Transaction | None,
    transactional_id: str,
    timeout_ms: int,
    claimed: ProducerIdAndEpoch,
    rules: TransactionRules,
    *,
    fresh_id: int | None,
    now_ms: int,
) -> Initialised | GoOn | AbortFirst | FreshIdNeeded | ErrorCode:
    """Decide on a producer that wants the id; `claimed` is what it says it was, or NOBODY."""
    if not 0 < timeout_ms <= rules.transaction_max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    if known is None:
        if fresh_id is None:
            return FreshIdNeeded()
        return Initialised(ProducerInitialised(transactional_id, fresh_id, 0, timeout_ms, now_ms))
    current = ProducerIdAndEpoch(known.producer_id, known.producer_epoch)
    if claimed not in (NOBODY, current, _previous(known)):
        return ErrorCode.PRODUCER_FENCED
    if known.phase.is_ending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if known.phase is TransactionPhase.ONGOING:
        fencing = abort(known, fresh_id=fresh_id, now_ms=now_ms)
        return fencing if isinstance(fencing, FreshIdNeeded) else AbortFirst(fencing.fact)
    if claimed not in (NOBODY, current):  # its answer was lost (KIP-360)
        return GoOn(current)
    after = _bumped(current, fresh_id)
    if after is None:
        return FreshIdNeeded()
    return Initialised(ProducerInitialised(transactional_id, *after, timeout_ms, now_ms, *claimed))


def _previous(known: Transaction) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(known.previous_producer_id, known.previous_producer_epoch)


def _bumped(producer: ProducerIdAndEpoch, fresh_id: int | None) -> ProducerIdAndEpoch | None:
    if producer.producer_epoch + 1 < EPOCH_MAX:
        return ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + 1)
    return ProducerIdAndEpoch(fresh_id, 0) if fresh_id is not None else None


def writer_problem(known: Transaction | None, producer: ProducerIdAndEpoch) -> ErrorCode | None:
    """Return why a producer may not use the transactional id that it names; None if it may."""
    if known is None or known.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.producer_epoch != producer.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if known.phase.is_ending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return None


def extend(
    known: Transaction | None,
    producer: ProducerIdAndEpoch,
    *,
    partitions: Collection[PartitionId] = (),
    groups: Collection[str] = (),
    now_ms: int,
) -> TransactionExtended | ErrorCode | None:
    """Add partitions and groups to the transaction; None if they are in it already."""
    problem = writer_problem(known, producer)
    if problem is not None or known is None:
        return problem or ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_ongoing = known.phase is TransactionPhase.ONGOING
    new_partitions = [p for p in partitions if not is_ongoing or p not in known.partitions]
    new_groups = [g for g in groups if not is_ongoing or g not in known.groups]
    if not new_partitions and not new_groups:
        return None
    return TransactionExtended(known.transactional_id, new_partitions, new_groups, now_ms)


def verify(
    known: Transaction | None, producer: ProducerIdAndEpoch, partition: PartitionId
) -> ErrorCode | None:
    """Return why records may not be appended; None if the partition is in their transaction."""
    problem = writer_problem(known, producer)
    if problem is not None or known is None:
        return problem or ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.phase is not TransactionPhase.ONGOING or partition not in known.partitions:
        return ErrorCode.TRANSACTION_ABORTABLE
    return None


def verify_group(
    known: Transaction | None, producer: ProducerIdAndEpoch, group_id: str
) -> ErrorCode | None:
    """Return why offsets may not be committed; None if the group is in their transaction."""
    problem = writer_problem(known, producer)
    if problem is not None or known is None:
        return problem or ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.phase is not TransactionPhase.ONGOING or group_id not in known.groups:
        return ErrorCode.INVALID_TXN_STATE
    return None


def end(
    known: Transaction | None,
    producer: ProducerIdAndEpoch,
    *,
    committed: bool,
    bumps_epoch: bool,
    fresh_id: int | None,
    now_ms: int,
) -> Ending | GoOn | FreshIdNeeded | ErrorCode:
    """Commit or abort. With `bumps_epoch` (KIP-890) the producer continues in the next epoch."""
    if known is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    has_ended = known.phase not in (TransactionPhase.EMPTY, TransactionPhase.ONGOING)
    if bumps_epoch and has_ended and producer == _previous(known):
        return _sent_again(known, committed=committed)
    if producer.producer_id != known.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer.producer_epoch != known.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if known.phase is TransactionPhase.ONGOING:
        return _prepared(
            known, committed=committed, bumps_epoch=bumps_epoch, fresh_id=fresh_id, now_ms=now_ms
        )
    if known.phase.is_ending or not bumps_epoch:
        return _sent_again(known, committed=committed)
    if committed:
        return ErrorCode.INVALID_TXN_STATE
    # A producer aborts a transaction unknown here: its records may be in flight, so fence them.
    return _prepared(known, committed=False, bumps_epoch=True, fresh_id=fresh_id, now_ms=now_ms)


def _sent_again(known: Transaction, *, committed: bool) -> GoOn | ErrorCode:
    done = TransactionPhase.COMPLETE_COMMIT if committed else TransactionPhase.COMPLETE_ABORT
    ending = TransactionPhase.PREPARE_COMMIT if committed else TransactionPhase.PREPARE_ABORT
    if known.phase is done:
        return GoOn(ProducerIdAndEpoch(known.producer_id, known.producer_epoch))
    return (
        ErrorCode.CONCURRENT_TRANSACTIONS if known.phase is ending else ErrorCode.INVALID_TXN_STATE
    )


def _prepared(
    known: Transaction,
    *,
    committed: bool,
    bumps_epoch: bool,
    fresh_id: int | None,
    now_ms: int,
) -> Ending | FreshIdNeeded:
    producer = ProducerIdAndEpoch(known.producer_id, known.producer_epoch)
    after = _bumped(producer, fresh_id) if bumps_epoch else producer
    if after is None:
        return FreshIdNeeded()
    marker_epoch = producer.producer_epoch + 1 if bumps_epoch else producer.producer_epoch
    fact = TransactionEnding(known.transactional_id, committed, marker_epoch, *after, now_ms)
    return Ending(fact, after)


def abort(known: Transaction, *, fresh_id: int | None, now_ms: int) -> Ending | FreshIdNeeded:
    """Abort an open transaction without its producer's request, and fence the producer."""
    decided = _prepared(known, committed=False, bumps_epoch=True, fresh_id=fresh_id, now_ms=now_ms)
    if isinstance(decided, FreshIdNeeded):
        return decided
    return decided._replace(fact=msgspec.structs.replace(decided.fact, fences=True))


def is_overdue(transaction: Transaction, now_ms: int) -> bool:
    """True if a transaction has been open for longer than its producer allowed."""
    return (
        transaction.phase is TransactionPhase.ONGOING
        and now_ms - transaction.started_ms >= transaction.timeout_ms
    )


def expire(
    transaction: Transaction, rules: TransactionRules, now_ms: int
) -> TransactionalIdExpired | None:
    """Forget an id that has been idle for very long."""
    is_idle = not transaction.phase.is_ending and transaction.phase is not TransactionPhase.ONGOING
    age_ms = now_ms - transaction.updated_ms
    if is_idle and age_ms >= rules.transactional_id_expiration_ms:
        return TransactionalIdExpired(transaction.transactional_id)
    return None
