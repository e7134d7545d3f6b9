"""Idempotent producers: what is next, what is a retry, and what is neither."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.log.stretches import PARTITION

from holdfast.log.append import (
    NOTHING_YET,
    Accepted,
    AppendRules,
    Duplicate,
    Early,
    decide_append,
)
from holdfast.log.partition import PartitionLog
from holdfast.log.producers import REMEMBERED_BATCHES, SEQUENCES
from holdfast.protocol.api import ErrorCode, Refused
from holdfast.records.batch import BatchHeader, parse_header
from holdfast.records.record import Record, encode_batch

NOW = 1_000
RULES = AppendRules()


def header(sequence: int, count: int = 1, *, epoch: int = 0, value: bytes = b"v") -> BatchHeader:
    return parse_header(
        encode_batch(
            [Record(0, NOW, None, value)] * count,
            producer_id=7,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
    )


def decide(log: PartitionLog, batch: BatchHeader) -> Accepted | Duplicate | Early | Refused:
    decision = decide_append(log, batch, RULES, NOW)
    if isinstance(decision, Accepted):
        log.append(decision.fact, 0)
    return decision


def begin_at(log: PartitionLog, sequence: int) -> None:
    """One record of a producer that nobody remembers, so that this sequence is the next."""
    decision = decide_append(log, header(sequence - 1), RULES, NOW)
    assert isinstance(decision, Early) and isinstance(decision.otherwise, Accepted)
    log.append(decision.otherwise.fact, 0)


def refusal(log: PartitionLog, batch: BatchHeader) -> str:
    decision = decide(log, batch)
    assert isinstance(decision, Refused), decision
    return decision.error.name


def test_five_batches_are_remembered_and_the_sixth_is_out_of_order():
    log = PartitionLog(PARTITION)
    for i in range(REMEMBERED_BATCHES + 1):
        assert isinstance(decide(log, header(2 * i, 2)), Accepted)
    for i in range(1, REMEMBERED_BATCHES + 1):
        again = decide(log, header(2 * i, 2))
        assert isinstance(again, Duplicate) and again.original.base_offset == 2 * i
    assert refusal(log, header(0, 2)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_a_part_of_a_remembered_batch_or_more_than_it_is_no_retry():
    log = PartitionLog(PARTITION)
    decide(log, header(0, 4))
    for batch in (header(0, 2), header(0, 5), header(1, 3), header(2, 2)):
        assert refusal(log, batch) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_a_known_sequence_range_is_a_retry_whatever_its_bytes():
    log = PartitionLog(PARTITION)
    decide(log, header(0, value=b"one"))
    again = decide(log, header(0, value=b"two"))
    assert isinstance(again, Duplicate) and again.original.base_offset == 0
    assert log.log_end_offset == 1


def test_sequences_wrap_to_zero():
    log = PartitionLog(PARTITION)
    begin_at(log, SEQUENCES - 3)
    assert isinstance(decide(log, header(SEQUENCES - 3, 2)), Accepted)
    assert isinstance(decide(log, header(SEQUENCES - 1, 3)), Accepted)
    assert log.producers[7].batches[-1].last_sequence == 1
    assert isinstance(decide(log, header(SEQUENCES - 1, 3)), Duplicate)
    assert isinstance(decide(log, header(2)), Accepted)


def test_an_epoch_forgets_the_sequences_of_the_one_before_and_the_old_one_is_fenced():
    log = PartitionLog(PARTITION)
    decide(log, header(0))
    decide(log, header(1))
    assert expected_before(log, header(2, epoch=1)) == 0
    assert isinstance(decide(log, header(0, epoch=1)), Accepted)
    assert refusal(log, header(2, epoch=0)) == "INVALID_PRODUCER_EPOCH"
    assert isinstance(decide(log, header(0, epoch=1)), Duplicate)


def expected_before(log: PartitionLog, batch: BatchHeader) -> int:
    decision = decide(log, batch)
    assert isinstance(decision, Early), decision
    assert isinstance(decision.otherwise, Refused)
    assert decision.otherwise.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    return decision.expected_sequence


def test_a_batch_with_a_gap_before_it_is_early_and_out_of_order_if_the_gap_stays():
    log = PartitionLog(PARTITION)
    begin_at(log, SEQUENCES - 2)
    decide(log, header(SEQUENCES - 2))
    assert expected_before(log, header(3)) == SEQUENCES - 1
    decide(log, header(SEQUENCES - 1, 4))
    assert isinstance(decide(log, header(3)), Accepted)


def test_the_first_batch_that_is_seen_of_a_producer_is_early_if_it_cannot_be_its_first():
    decision = decide(PartitionLog(PARTITION), header(123))
    assert isinstance(decision, Early)
    assert decision.expected_sequence == NOTHING_YET
    assert isinstance(decision.otherwise, Accepted)
    assert decision.otherwise.fact.base_sequence == 123


def test_batches_without_a_producer_are_never_duplicates():
    log = PartitionLog(PARTITION)
    plain = parse_header(encode_batch([Record(0, NOW, None, b"v")]))
    for offset in range(3):
        decision = decide(log, plain)
        assert isinstance(decision, Accepted) and decision.fact.base_offset == offset
    assert log.producers == {}


@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    start=st.integers(SEQUENCES - 20, SEQUENCES - 1),
    retries=st.lists(st.integers(0, 11), max_size=12),
)
def test_any_mixture_of_sends_and_retries_lands_each_batch_once(
    counts: list[int], start: int, retries: list[int]
):
    log = PartitionLog(PARTITION)
    begin_at(log, start)
    sent: list[tuple[BatchHeader, int]] = []
    sequence = start
    for i, count in enumerate(counts):
        batch = header(sequence, count, value=b"%d" % i)
        decision = decide(log, batch)
        assert isinstance(decision, Accepted)
        sent.append((batch, decision.fact.base_offset))
        sequence = (sequence + count) % SEQUENCES
        for retry in retries:
            if retry < len(sent):
                repeated, offset = sent[retry]
                again = decide(log, repeated)
                if len(sent) - retry <= REMEMBERED_BATCHES:
                    assert isinstance(again, Duplicate) and again.original.base_offset == offset
                else:
                    assert isinstance(again, Refused)
    assert log.log_end_offset == 1 + sum(counts)
