"""What a read must show: all that was acked before it began, and nothing left out in between.

Pure. One function for each anomaly.
"""

import bisect

from holdfast.verify.checkers.knowledge import Knowledge, PartitionKnowledge
from holdfast.verify.checkers.violation import Kind, Violation
from holdfast.verify.history import Fetch, Fetched, Listed, ListOffsets, Outcome, Which

OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"


class _AckedEnds:
    """The highest offset after an acked record, as of any event."""

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
        """The end, and the event of the ack that brought the partition there."""
        index = bisect.bisect_left(self._events, event) - 1
        return (self._ends[index], self._events[index]) if index >= 0 else (0, -1)


def hidden(knowledge: Knowledge) -> list[Violation]:
    """An answer that denies a record which was acked before the question was asked."""
    found: list[Violation] = []
    for partition, known in knowledge.partitions.items():
        ends = _AckedEnds(known)
        for call in known.queries:
            end, event = ends.before(call.invoked)
            match call.operation, call.result:
                case Fetch(), Fetched(high_watermark=seen) if 0 <= seen < end:
                    what = f"a high watermark of {seen}"
                case ListOffsets(which=Which.LATEST), Listed(offset=seen) if seen < end:
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
                    Kind.HIDDEN,
                    f"{partition}: {call.broker} answered {what}, asked after the records "
                    f"below {end} had been acked at {event}",
                    (event, call.invoked, call.completed),
                )
            )
    return found


def gap(knowledge: Knowledge) -> list[Violation]:
    """A fetch that passes over an offset which is known to hold a record."""
    found: list[Violation] = []
    for partition, known in knowledge.partitions.items():
        offsets = sorted(known.values_at)
        for call in known.queries:
            if not isinstance(call.operation, Fetch) or not isinstance(call.result, Fetched):
                continue
            start = max(call.operation.offset, call.result.log_start)
            shown = [offset for offset, _ in call.result.records]
            if not shown:
                continue
            stop = max(shown)
            low = bisect.bisect_left(offsets, start)
            high = bisect.bisect_right(offsets, stop)
            missing = sorted(set(offsets[low:high]) - set(shown))
            if missing:
                found.append(
                    Violation(
                        Kind.GAP,
                        f"{partition}: {call.broker} answered a fetch from "
                        f"{call.operation.offset} without the records at {missing[:10]}, up to "
                        f"{stop}; high watermark {call.result.high_watermark}, log start "
                        f"{call.result.log_start}",
                        (call.invoked, call.completed),
                    )
                )
    return found


def above_watermark(knowledge: Knowledge) -> list[Violation]:
    """A fetch that shows a record at or above the high watermark that it names."""
    return [
        Violation(
            Kind.ABOVE_WATERMARK,
            f"{partition}: {call.broker} served offset {call.result.records[-1][0]} under a high "
            f"watermark of {call.result.high_watermark}",
            (call.invoked, call.completed),
        )
        for partition, known in knowledge.partitions.items()
        for call in known.queries
        if isinstance(call.result, Fetched)
        and call.outcome is Outcome.OK
        and call.result.records
        and call.result.records[-1][0] >= call.result.high_watermark >= 0
    ]


def empty_reads(knowledge: Knowledge) -> list[Violation]:
    """A fetch below its own high watermark that shows nothing, though a record is known there."""
    found: list[Violation] = []
    for partition, known in knowledge.partitions.items():
        offsets = sorted(known.values_at)
        for call in known.queries:
            if not isinstance(call.operation, Fetch) or not isinstance(call.result, Fetched):
                continue
            if call.result.records or call.operation.offset >= call.result.high_watermark:
                continue
            index = bisect.bisect_left(offsets, call.operation.offset)
            if index < len(offsets) and offsets[index] < call.result.high_watermark:
                found.append(
                    Violation(
                        Kind.HIDDEN,
                        f"{partition}: {call.broker} showed nothing from {call.operation.offset} "
                        f"under a high watermark of {call.result.high_watermark}; there is a "
                        f"record at {offsets[index]}",
                        (call.invoked, call.completed),
                    )
                )
    return found
