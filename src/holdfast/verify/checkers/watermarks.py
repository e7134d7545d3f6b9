"""Checks that offsets never move backwards, in the real-time order of all brokers' answers.

Pure. An answer is compared with what had been answered before it was asked, so two answers that
overlap in time may come in either order.
"""

from holdfast.verify.checkers.knowledge import COLD, Knowledge, PartitionKnowledge
from holdfast.verify.checkers.violation import Anomaly, Violation
from holdfast.verify.history import (
    READ_COMMITTED,
    Call,
    Deleted,
    Fetched,
    Listed,
    ListOffsets,
    Outcome,
    Which,
)


def watermark_back(knowledge: Knowledge) -> list[Violation]:
    """Find latest offsets and high watermarks below one that was already served."""
    found: list[Violation] = []
    for known in knowledge.partitions.values():
        answers = [
            (call, value) for call in known.queries if (value := _latest_in(call)) is not None
        ]
        cold = knowledge.history.cold.get(known.partition)
        end = cold.end if cold and not known.is_deleted else None
        found += _goes_back(known, answers, end, Anomaly.WATERMARK_BACK)
    return found


def stable_back(knowledge: Knowledge) -> list[Violation]:
    """Find last stable offsets below one that was already served."""
    found: list[Violation] = []
    for known in knowledge.partitions.values():
        answers = [
            (call, value) for call in known.queries if (value := _stable_in(call)) is not None
        ]
        found += _goes_back(known, answers, None, Anomaly.STABLE_BACK)
    return found


def stable_stuck(knowledge: Knowledge) -> list[Violation]:
    """Find records that no read_committed reader can reach, though every transaction has ended."""
    found: list[Violation] = []
    for partition, known in knowledge.partitions.items():
        cold = knowledge.history.cold.get(partition)
        if not knowledge.history.is_settled or cold is None or known.is_deleted:
            continue
        told = max((_stable_in(call) or 0 for call in known.queries), default=0)
        if told < cold.end:
            found.append(
                Violation(
                    Anomaly.STABLE_STUCK,
                    f"{partition}: the log goes up to {cold.end}, and its transactions have ended, "
                    f"but the last stable offset never got past {told}",
                )
            )
    return found


def log_start_back(knowledge: Knowledge) -> list[Violation]:
    """Find log starts below one that was already served: deleted records have come back."""
    found: list[Violation] = []
    for known in knowledge.partitions.values():
        answers = [
            (call, value) for call in known.queries if (value := _log_start_in(call)) is not None
        ]
        answers += [
            (ack.call, ack.produced.log_start)
            for batch in known.batches
            for ack in batch.acks
            if ack.produced.log_start >= 0 and ack.call.completed < known.deleted_at
        ]
        cold = knowledge.history.cold.get(known.partition)
        end = cold.log_start if cold and not known.is_deleted else None
        found += _goes_back(known, answers, end, Anomaly.LOG_START_BACK)
    return found


def log_start_unasked(knowledge: Knowledge) -> list[Violation]:
    """Find log starts above all that clients asked for, if the broker may not delete by itself."""
    found: list[Violation] = []
    for partition, known in knowledge.partitions.items():
        if knowledge.history.rules_of(partition).retention or known.is_deleted:
            continue
        seen = [
            (value, call.completed)
            for call in known.queries
            if (value := _log_start_in(call)) is not None
        ]
        cold = knowledge.history.cold.get(partition)
        if cold:
            seen.append((cold.log_start, COLD))
        for value, event in seen:
            asked = known.asked_log_start(event)
            if value > asked:
                found.append(
                    Violation(
                        Anomaly.LOG_START_UNASKED,
                        f"{partition}: the log starts at {value}; nobody asked past {asked}",
                        (event,),
                    )
                )
    return found


def _latest_in(call: Call) -> int | None:
    match call.result:
        case Fetched(high_watermark=value) if value >= 0:
            return value
        case Listed(offset=value) if (
            isinstance(call.operation, ListOffsets)
            and call.operation.which is Which.LATEST
            and call.operation.isolation != READ_COMMITTED
        ):
            return value
        case _:
            return None


def _stable_in(call: Call) -> int | None:
    match call.result:
        case Fetched(stable=value) if value >= 0:
            return value
        case Listed(offset=value) if (
            isinstance(call.operation, ListOffsets)
            and call.operation.which is Which.LATEST
            and call.operation.isolation == READ_COMMITTED
        ):
            return value
        case _:
            return None


def _log_start_in(call: Call) -> int | None:
    match call.result:
        case Fetched(log_start=value) if value >= 0:
            return value
        case Deleted(log_start=value):
            return value
        case Listed(offset=value) if (
            isinstance(call.operation, ListOffsets) and call.operation.which is Which.EARLIEST
        ):
            return value
        case _:
            return None


def _goes_back(
    known: PartitionKnowledge, answers: list[tuple[Call, int]], cold: int | None, kind: Anomaly
) -> list[Violation]:
    found: list[Violation] = []
    by_completion = sorted(
        ((call.completed, value, call) for call, value in answers if call.outcome is Outcome.OK),
        key=lambda answer: answer[0],
    )
    highest, highest_event, position = -1, -1, 0
    for call, value in sorted(answers, key=lambda answer: answer[0].invoked):
        while position < len(by_completion) and by_completion[position][0] < call.invoked:
            event, served, _ = by_completion[position]
            if served > highest:
                highest, highest_event = served, event
            position += 1
        if value < highest:
            found.append(
                Violation(
                    kind,
                    f"{known.partition}: {call.broker} answered {value} to a question asked at "
                    f"{call.invoked}, after {highest} had been answered at {highest_event}",
                    (highest_event, call.invoked, call.completed),
                )
            )
    if cold is not None:
        for event, served, _ in by_completion:
            if served > max(highest, cold):
                highest, highest_event = served, event
        if cold < highest:
            found.append(
                Violation(
                    kind,
                    f"{known.partition}: the cold read found {cold}, after {highest} had been "
                    f"answered at {highest_event}",
                    (highest_event,),
                )
            )
    return found
