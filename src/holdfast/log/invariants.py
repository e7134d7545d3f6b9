"""What is always true of a partition's log: named predicates, each with the problem or None.

Pure. The log asks the first three before it changes, because data would be lost or hidden behind a
wrong change; the simulation asks all others after each change. Must never change or repair
anything.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from holdfast.log.facts import SegmentRef

if TYPE_CHECKING:
    from holdfast.log.partition import PartitionLog, PartitionRun


def batch_follows(log: "PartitionLog", base_offset: int, last_offset: int) -> str | None:
    """A record batch begins exactly at the log end offset."""
    if base_offset == log.log_end_offset and last_offset >= base_offset:
        return None
    return (
        f"a record batch has offsets {base_offset}..{last_offset}, but the log end offset is"
        f" {log.log_end_offset}"
    )


def run_follows(log: "PartitionLog", run: "PartitionRun") -> str | None:
    """A run begins where the run before it ends."""
    runs = log.runs
    if not len(runs) or run.base_offset == runs.last[-1] + 1:
        return None
    return (
        f"lane object {run.number} holds offsets {run.base_offset}..{run.last_offset}, but the"
        f" object before it ends at offset {runs.last[-1]}"
    )


def segments_follow(segments: Sequence[SegmentRef]) -> str | None:
    """Each segment begins where the segment before it ends."""
    for before, after in pairwise(segments):
        if after.base_offset != before.last_offset + 1:
            return f"segments {before.name} and {after.name} leave a gap or overlap"
    return None


def offsets_are_in_order(log: "PartitionLog") -> str | None:
    """Log start <= last stable offset <= high watermark <= log end, and start_decided is ahead."""
    start, stable = log.log_start_offset, log.last_stable_offset
    offsets = (start, stable, log.high_watermark, log.log_end_offset)
    if list(offsets) == sorted(offsets) and log.start_decided >= start:
        return None
    return (
        f"log start {start} (decided {log.start_decided}), last stable {stable}, high watermark"
        f" {log.high_watermark} and log end {log.log_end_offset} are out of order"
    )


def published_records_are_stored(log: "PartitionLog") -> str | None:
    """Every offset below the high watermark is in a run or a segment."""
    if log.high_watermark <= max(log.sealed_end_offset, log.log_start_offset):
        return None
    return f"the high watermark is {log.high_watermark}, but runs end at {log.sealed_end_offset}"


def runs_follow_segments(log: "PartitionLog") -> str | None:
    """The runs of lane objects begin where the segments end."""
    if not log.segments or not len(log.runs):
        return None
    end = log.segments[-1].last_offset + 1
    if log.runs.base[0] == end:
        return None
    return f"segments end at {end}, and the first run begins at {log.runs.base[0]}"


def epochs_rise(log: "PartitionLog") -> str | None:
    """Leader epochs and their start offsets only rise."""
    for before, after in pairwise(log.epochs):
        if after.leader_epoch <= before.leader_epoch or after.start_offset < before.start_offset:
            return f"leader epoch {after} follows {before}"
    return None


def open_transactions_are_in_the_log(log: "PartitionLog") -> str | None:
    """An open transaction began below the log end, and its producer is known."""
    for producer_id, found in log.transactions.open.items():
        if found.first_offset >= log.log_end_offset:
            return f"a transaction of producer {producer_id} begins at {found.first_offset}"
        if producer_id not in log.producers:
            return f"producer {producer_id} has an open transaction, and is not known"
    return None


def problems(log: "PartitionLog") -> Iterator[str]:
    """Yield what is wrong with a log as a whole."""
    for predicate in (
        offsets_are_in_order,
        published_records_are_stored,
        runs_follow_segments,
        epochs_rise,
        open_transactions_are_in_the_log,
    ):
        problem = predicate(log)
        if problem is not None:
            yield f"{log.partition}: {problem}"
    problem = segments_follow(log.segments)
    if problem is not None:
        yield f"{log.partition}: {problem}"
