"""Decide which records a partition deletes, by time and by size.

Pure. The unit is a stored stretch (a segment, or a run in a lane object), as Kafka's unit is a
segment. A stretch goes when its newest record is too old, or when the rest is still large enough.
Must never delete at or past the last stable offset: the records of an open transaction stay until
it has ended, so that a transaction is read as a whole or not at all. Kafka stops at the high
watermark.
"""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.log.facts import LogStartMoved
from holdfast.log.partition import PartitionLog

UNLIMITED = -1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """The topic's retention settings."""

    retention_ms: int
    retention_bytes: int
    deletes: bool
    """True if cleanup.policy includes delete."""


class _Stretch(NamedTuple):
    last_offset: int
    size_bytes: int
    max_timestamp: int


def decide_retention(log: PartitionLog, rules: RetentionRules, now_ms: int) -> LogStartMoved | None:
    """Return the new start of the log; None if it need not move."""
    if not rules.deletes:
        return None
    start = log.log_start_offset
    remaining = log.stored_bytes
    for stretch in _stretches(log):
        too_old = (
            rules.retention_ms != UNLIMITED and stretch.max_timestamp < now_ms - rules.retention_ms
        )
        too_much = (
            rules.retention_bytes != UNLIMITED
            and remaining - stretch.size_bytes >= rules.retention_bytes
        )
        if not (too_old or too_much) or stretch.last_offset >= log.last_stable_offset:
            break
        remaining -= stretch.size_bytes
        # The age of a stretch without timestamps is unknown: it goes with an old one after it.
        if too_much or stretch.max_timestamp >= 0:
            start = stretch.last_offset + 1
    return LogStartMoved(log.partition, start) if start > log.start_decided else None


def _stretches(log: PartitionLog) -> Iterator[_Stretch]:
    for segment in log.segments:
        yield _Stretch(segment.last_offset, segment.size_bytes, segment.max_timestamp)
    runs = log.runs
    for i in range(len(runs)):
        yield _Stretch(runs.last[i], runs.size[i], runs.max_timestamp[i])
