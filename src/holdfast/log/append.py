"""Decide whether a record batch, or a marker, joins a partition's log, and at which offset.

Pure. A refusal is a value with Kafka's own error name. Must never change a log: the lane applies
the fact that is returned.
"""

import dataclasses

from holdfast.log.facts import Appended, TransactionEnd
from holdfast.log.partition import PartitionLog
from holdfast.log.producers import (
    Gap,
    OutOfSequence,
    RememberedBatch,
    RepeatedBatch,
    check_sequence,
)
from holdfast.log.transactions import NO_TRANSACTION
from holdfast.protocol.api import ErrorCode, Refused
from holdfast.records.batch import BatchHeader, parse_header
from holdfast.records.control import TransactionMarker, encode_marker

NOTHING_YET = -1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AppendRules:
    """The topic settings that a batch must satisfy."""

    log_append_time: bool = False
    timestamp_after_max_ms: int = 3_600_000
    timestamp_before_max_ms: int = (1 << 63) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Accepted:
    """The batch joins the log, at the offsets in the fact."""

    fact: Appended


@dataclasses.dataclass(frozen=True, slots=True)
class MarkerAccepted:
    """The marker joins the log. Its control batch still lacks the leader epoch."""

    fact: Appended
    record_batch: bytearray


@dataclasses.dataclass(frozen=True, slots=True)
class NothingToEnd:
    """The marker repeats an earlier one: it takes effect once everything decided is durable."""


@dataclasses.dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is a retry: it is answered with the original's offset, once that is durable."""

    original: RememberedBatch


@dataclasses.dataclass(frozen=True, slots=True)
class Early:
    """Earlier batches of the producer are missing here, but may still arrive."""

    otherwise: Accepted | Refused
    """The decision if they do not arrive."""
    expected_sequence: int
    """NOTHING_YET if the producer is unknown here: then it may continue with any sequence."""


def decide_append(
    log: PartitionLog, header: BatchHeader, rules: AppendRules, now_ms: int
) -> Accepted | Duplicate | Early | Refused:
    """Decide on one checked batch for one partition."""
    is_unknown = False
    if header.producer_id >= 0:
        known = log.producers.get(header.producer_id)
        match check_sequence(known, header):
            case RepeatedBatch(original):
                return Duplicate(original)
            case Gap(expected, message):
                code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                return Early(Refused(code, f"{log.partition}: {message}"), expected)
            case OutOfSequence(problem, message):
                return Refused(problem, f"{log.partition}: {message}")
            case None:
                is_unknown = known is None
        if not header.is_transactional and header.producer_id in log.transactions.open:
            return Refused(
                ErrorCode.INVALID_TXN_STATE,
                f"{log.partition}: producer {header.producer_id} has an open transaction here, but"
                " this record batch is not transactional",
            )
    max_timestamp = now_ms if rules.log_append_time else header.max_timestamp
    if not rules.log_append_time and header.max_timestamp >= 0:
        ahead = header.max_timestamp - now_ms
        if ahead > rules.timestamp_after_max_ms:
            return Refused(
                ErrorCode.INVALID_TIMESTAMP,
                f"{log.partition}: a record's timestamp is {ahead} ms in the future;"
                " message.timestamp.after.max.ms is"
                f" {rules.timestamp_after_max_ms}",
            )
        behind = now_ms - header.base_timestamp
        if behind > rules.timestamp_before_max_ms:
            return Refused(
                ErrorCode.INVALID_TIMESTAMP,
                f"{log.partition}: a record's timestamp is {behind} ms in the past;"
                " message.timestamp.before.max.ms is"
                f" {rules.timestamp_before_max_ms}",
            )
    base_offset = log.log_end_offset
    accepted = Accepted(
        Appended(
            log.partition,
            base_offset,
            base_offset + header.last_offset_delta,
            header.size_bytes,
            max_timestamp,
            header.crc,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            now_ms,
            header.is_transactional,
        )
    )
    is_early = is_unknown and header.base_sequence > 0
    return Early(accepted, NOTHING_YET) if is_early else accepted


def opens_transaction(log: PartitionLog, header: BatchHeader) -> bool:
    """True if a batch would begin a transaction here: then the coordinator must know of it."""
    if not header.is_transactional:
        return False
    found = log.transactions.open.get(header.producer_id)
    return found is None or found.producer_epoch != header.producer_epoch


def decide_marker(
    log: PartitionLog,
    *,
    producer_id: int,
    producer_epoch: int,
    committed: bool,
    coordinator_epoch: int,
    now_ms: int,
) -> MarkerAccepted | NothingToEnd | Refused:
    """Decide on the end of a producer's transaction on one partition.

    The first marker is appended even if the transaction wrote nothing here, because its epoch makes
    this partition refuse a late batch of that transaction.
    """
    known = log.producers.get(producer_id)
    found = log.transactions.open.get(producer_id)
    if known is not None and producer_epoch < known.epoch:
        return Refused(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"{log.partition}: the marker has epoch {producer_epoch} of producer {producer_id},"
            f" but the partition knows the newer epoch {known.epoch}",
        )
    if known is not None and coordinator_epoch < known.coordinator_epoch:
        return Refused(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"{log.partition}: the marker for producer {producer_id} has coordinator epoch"
            f" {coordinator_epoch}, but an earlier marker had {known.coordinator_epoch}",
        )
    if found is None and known is not None and producer_epoch == known.epoch:
        return NothingToEnd()
    marker = TransactionMarker(producer_id, producer_epoch, committed, coordinator_epoch, now_ms)
    offset = log.log_end_offset
    record_batch = bytearray(encode_marker(marker, base_offset=offset))
    header = parse_header(record_batch)
    first_offset = found.first_offset if found is not None else NO_TRANSACTION
    fact = Appended(
        log.partition,
        offset,
        offset,
        header.size_bytes,
        header.max_timestamp,
        header.crc,
        producer_id,
        producer_epoch,
        header.base_sequence,
        now_ms,
        True,
        TransactionEnd(committed, coordinator_epoch, first_offset),
    )
    return MarkerAccepted(fact, record_batch)
