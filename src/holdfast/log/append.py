"""Decide whether a record batch joins a partition's log, and at which offset.

Pure. A refusal is a value with Kafka's own error name. Nothing is changed here: the fact that
comes out is applied by the lane.
"""

import dataclasses

from holdfast.log.facts import Appended
from holdfast.log.partition import PartitionLog
from holdfast.log.producers import OutOfSequence, RememberedBatch, Retry, check_sequence
from holdfast.records.batch import BatchHeader


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AppendRules:
    """The topic's settings that a batch must keep."""

    log_append_time: bool = False
    timestamp_after_max_ms: int = 3_600_000
    timestamp_before_max_ms: int = (1 << 63) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Accepted:
    """The batch is next; the fact says where."""

    fact: Appended


@dataclasses.dataclass(frozen=True, slots=True)
class Duplicate:
    """A retry: answered with the offset of the original, once that is durable."""

    original: RememberedBatch


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """The batch may not join; nothing of it will ever appear."""

    error: str
    """The name of a Kafka error code."""
    message: str


def decide_append(
    log: PartitionLog, header: BatchHeader, rules: AppendRules, now_ms: int
) -> Accepted | Duplicate | Refused:
    """One checked batch against one partition."""
    if header.producer_id >= 0:
        match check_sequence(log.producers.get(header.producer_id), header):
            case Retry(original):
                return Duplicate(original)
            case OutOfSequence(problem, message):
                return Refused(problem.name, f"{log.partition}: {message}")
            case None:
                pass
    max_timestamp = now_ms if rules.log_append_time else header.max_timestamp
    if not rules.log_append_time and header.max_timestamp >= 0:
        ahead = header.max_timestamp - now_ms
        if ahead > rules.timestamp_after_max_ms:
            return Refused("INVALID_TIMESTAMP", f"{log.partition}: a timestamp is {ahead} ms ahead")
        behind = now_ms - header.base_timestamp
        if behind > rules.timestamp_before_max_ms:
            return Refused("INVALID_TIMESTAMP", f"{log.partition}: a timestamp is {behind} ms old")
    base_offset = log.log_end_offset
    return Accepted(
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
        )
    )
