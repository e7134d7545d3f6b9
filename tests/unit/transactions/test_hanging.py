"""What the abort of a transaction by an administrator means."""

from uuid import UUID

import pytest

from holdfast.identifiers import PartitionId
from holdfast.protocol.api import ErrorCode
from holdfast.transactions.decide import ProducerIdAndEpoch
from holdfast.transactions.hanging import AbortOf, judge_abort, transaction_of
from holdfast.transactions.state import PendingMarker, Transaction, TransactionPhase

HERE, ELSEWHERE = PartitionId(UUID(int=1), 0), PartitionId(UUID(int=1), 1)


def transaction(
    phase: TransactionPhase, marker: PendingMarker | None = None, producer_id: int = 7
) -> Transaction:
    return Transaction(
        transactional_id="id",
        producer_id=producer_id,
        producer_epoch=3,
        timeout_ms=1,
        updated_ms=0,
        phase=phase,
        partitions={HERE},
        marker=marker,
    )


def test_only_what_no_coordinator_knows_is_ended_on_one_partition():
    assert judge_abort(None, ProducerIdAndEpoch(7, 3)) is AbortOf.ONE_PARTITION
    known = transaction(TransactionPhase.ONGOING)
    assert judge_abort(known, ProducerIdAndEpoch(7, 3)) is AbortOf.WHOLE_TRANSACTION


@pytest.mark.parametrize("epoch", [2, 4])
def test_another_epoch_than_the_producers_aborts_nothing(epoch: int):
    known = transaction(TransactionPhase.ONGOING)
    assert judge_abort(known, ProducerIdAndEpoch(7, epoch)) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("phase", [TransactionPhase.PREPARE_COMMIT, TransactionPhase.PREPARE_ABORT])
def test_what_is_ending_ends_as_was_decided(phase: TransactionPhase):
    known = transaction(phase, PendingMarker(7, 4, committed=True))
    assert judge_abort(known, ProducerIdAndEpoch(7, 3)) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_transaction_is_found_by_the_producer_that_wrote_and_its_partition():
    open_ = transaction(TransactionPhase.ONGOING)
    assert transaction_of([open_], 7, HERE) is open_
    assert transaction_of([open_], 7, ELSEWHERE) is None
    assert transaction_of([open_], 8, HERE) is None
    renewed = transaction(
        TransactionPhase.PREPARE_ABORT, PendingMarker(7, 4, committed=False), producer_id=8
    )
    assert transaction_of([renewed], 7, HERE) is renewed
    assert transaction_of([renewed], 8, HERE) is None
