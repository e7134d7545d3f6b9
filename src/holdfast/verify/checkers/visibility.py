"""Checks that reads show everything that was acked before they began, and leave nothing out.

Pure. One function for each anomaly.
"""

import bisect

from holdfast.verify.checkers.knowledge import Knowledge, PartitionKnowledge
from holdfast.verify.checkers.violation import Anomaly, Violation
from holdfast.verify.history import (
    READ_COMMITTED,
    Call,
    Fetch,
    Fetched,
    Listed,
    ListOffsets,
    Outcome,
    Which,
)

OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"


class _AckedEnds:
    """The end of the acked records, as of any event."""

    def __init__(self, known: PartitionKnowledge) -> None:
        acks = sorted(
            (ack.call.completed, ack.produced.base_offset + len(ack.produce.values))
            for batch in known.batches
            for ack in batch.acks
        )
        self._events: list[int] = []
        self._ends: list[int] = []
        highest = 0
        for event, end in acks:
            highest = max(highest, end)
            self._events.append(event)
            self._ends.append(highest)

    def before(self, event: int) -> tuple[int, int]:
        """Return the end before an event, and the event of the ack that raised it to there."""
        index = bisect.bisect_left(self._events, event) - 1
        return (self._ends[index], self._events[index]) if index >= 0 else (0, -1)


def hidden(knowledge: Knowledge) -> list[Violation]:
    """Find answers that deny a record which was acked before the question was asked."""
    found: list[Violation] = []
    for partition, known in knowledge.partitions.items():
        ends = _AckedEnds(known)
        for call in known.queries:
            end, event = ends.before(call.invoked)
            match call.operation, call.result:
                case Fetch(), Fetched(high_watermark=seen) if 0 <= seen < end:
                    what = f"a high watermark of {seen}"
                case ListOffsets(which=Which.LATEST, isolation=0), Listed(offset=seen) if (
                    seen < end
                ):
                    what = f"latest {seen}"
                case Fetch(offset=offset), _ if (
                    call.error == OUT_OF_RANGE
                    and offset <= end
                    and offset >= known.asked_log_start(call.completed)
                    and not knowledge.history.rules_of(partition).retention
                    and not known.is_deleted
                ):
                    what = f"out of range at {offset}"
                case _:
                    continue
            found.append(
                Violation(
                    Anomaly.HIDDEN,
                    f"{partition}: {call.broker} answered {what}, asked after the records "
                    f"below {end} had been acked at {event}",
                    (event, call.invoked, call.completed),
                )
            )
    return found


def gap(knowledge: Knowledge) -> list[Violation]:
    """Find fetches that skip an offset which is known to hold a record.

    Records of a transaction that a read_committed fetch skips are judged with the transaction.
    """
    found: list[Violation] = []
    transactional = knowledge.transactional_values
    for partition, known in knowledge.partitions.items():
        offsets = sorted(offset for offset in known.values_at if not known.is_given_up(offset))
        for call in known.queries:
            if not isinstance(call.operation, Fetch) or not isinstance(call.result, Fetched):
                continue
            shown = [offset for offset, _ in call.result.records]
            start, stop = range_of(call.operation, call.result)
            low = bisect.bisect_left(offsets, start)
            high = bisect.bisect_left(offsets, stop)
            missing = sorted(set(offsets[low:high]) - set(shown))
            if call.operation.isolation == READ_COMMITTED:
                missing = [o for o in missing if known.values_at[o].keys() - transactional]
            if missing:
                found.append(
                    Violation(
                        Anomaly.GAP,
                        f"{partition}: {call.broker} answered a fetch from "
                        f"{call.operation.offset} without the records at {missing[:10]}, below "
                        f"{stop}; high watermark {call.result.high_watermark}, log start "
                        f"{call.result.log_start}",
                        (call.invoked, call.completed),
                    )
                )
    return found


def above_watermark(knowledge: Knowledge) -> list[Violation]:
    """Find fetches that show a record at or above the end that they report.

    The end is the high watermark, or for read_committed the last stable offset.
    """
    return [
        Violation(
            Anomaly.ABOVE_WATERMARK,
            f"{partition}: {call.broker} served offset {call.result.records[-1][0]}; by its own "
            f"answer there is nothing from {_end_of(call)} on",
            (call.invoked, call.completed),
        )
        for partition, known in knowledge.partitions.items()
        for call in known.queries
        if isinstance(call.result, Fetched)
        and call.outcome is Outcome.OK
        and call.result.records
        and call.result.records[-1][0] >= _end_of(call) >= 0
    ]


def _end_of(call: Call) -> int:
    """Return the end of what may be read, according to the answer itself."""
    if not isinstance(call.result, Fetched) or not isinstance(call.operation, Fetch):
        return -1
    if call.operation.isolation == READ_COMMITTED:
        return call.result.stable
    return call.result.high_watermark


def range_of(fetch: Fetch, fetched: Fetched) -> tuple[int, int]:
    """Return the offsets that an answer covers: the first, and the one after the last."""
    shown = fetched.records[-1][0] + 1 if fetched.records else fetch.offset
    return max(fetch.offset, fetched.log_start), max(shown, fetched.next_offset)


def empty_reads(knowledge: Knowledge) -> list[Violation]:
    """Find fetches below their own end that show nothing, though a record is known there.

    The end is the high watermark, or for read_committed the last stable offset.
    """
    found: list[Violation] = []
    for partition, known in knowledge.partitions.items():
        offsets = sorted(offset for offset in known.values_at if not known.is_given_up(offset))
        for call in known.queries:
            if not isinstance(call.operation, Fetch) or not isinstance(call.result, Fetched):
                continue
            end = call.result.high_watermark
            if call.operation.isolation == READ_COMMITTED:
                end = call.result.stable
            if call.result.records or call.operation.offset >= end:
                continue
            if call.result.next_offset > call.operation.offset:
                continue  # only markers or aborted records: the next fetch begins after them
            index = bisect.bisect_left(offsets, call.operation.offset)
            if index < len(offsets) and offsets[index] < end:
                found.append(
                    Violation(
                        Anomaly.HIDDEN,
                        f"{partition}: {call.broker} showed nothing from {call.operation.offset} "
                        f"below {end}; there is a "
                        f"record at {offsets[index]}",
                        (call.invoked, call.completed),
                    )
                )
    return found
