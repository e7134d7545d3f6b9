"""Checks committed offsets: each answer is durable, and never older than an earlier answer.

Pure. One function for each anomaly.
"""

from holdfast.verify.checkers.decided import Counted, Registers
from holdfast.verify.checkers.knowledge import FOR_EVER, Knowledge
from holdfast.verify.checkers.violation import Anomaly, Violation
from holdfast.verify.history import Call, Outcome
from holdfast.verify.vocabulary import (
    NO_COMMIT,
    NO_TRANSACTION,
    CommitOffsets,
    FetchOffsets,
    OffsetsTaken,
    OffsetsTold,
    Partition,
)


def commit_not_durable(knowledge: Knowledge) -> list[Violation]:
    """Find offset commits that were acked before a lane object held them."""
    registers = Registers(knowledge.history)
    found: list[Violation] = []
    for call in knowledge.history.calls:
        asked = call.operation
        if not isinstance(asked, CommitOffsets) or not isinstance(call.result, OffsetsTaken):
            continue
        for partition in call.result.partitions:
            event = registers.landed.get((asked.group, partition, asked.commit), FOR_EVER)
            if event > call.completed:
                found.append(
                    Violation(
                        Anomaly.COMMIT_NOT_DURABLE,
                        f"{asked.group}: {call.broker} acked commit {asked.commit} of {partition}; "
                        f"it landed at {'no time' if event == FOR_EVER else event}",
                        (call.invoked, call.completed),
                    )
                )
    return found


def offset_not_durable(knowledge: Knowledge) -> list[Violation]:
    """Find offsets in answers that did not count as committed in the lane at that time."""
    registers = Registers(knowledge.history)
    found: list[Violation] = []
    for call, group, partition, offset, commit in _told(knowledge):
        if commit == NO_COMMIT:
            continue
        counted = _place(registers, group, partition, commit)[1]
        if counted is None or counted.event > call.completed or counted.offset != offset:
            found.append(
                Violation(
                    Anomaly.OFFSET_NOT_DURABLE,
                    f"{group}: {call.broker} told {offset} for {partition}, of commit {commit}; "
                    f"the lane has {counted}",
                    (call.invoked, call.completed),
                )
            )
    return found


def committed_back(knowledge: Knowledge) -> list[Violation]:
    """Find answers with an older commit than one that was acked or answered before the question."""
    registers = Registers(knowledge.history)
    known: dict[tuple[str, Partition], list[tuple[int, int]]] = {}
    for call in knowledge.history.calls:
        asked = call.operation
        if (
            isinstance(asked, CommitOffsets)
            and isinstance(call.result, OffsetsTaken)
            and asked.transaction == NO_TRANSACTION
        ):
            for partition in call.result.partitions:
                place = _place(registers, asked.group, partition, asked.commit)[0]
                known.setdefault((asked.group, partition), []).append((call.completed, place))
    told = list(_told(knowledge))
    for call, group, partition, _, commit in told:
        place = _place(registers, group, partition, commit)[0]
        known.setdefault((group, partition), []).append((call.completed, place))
    found: list[Violation] = []
    for call, group, partition, offset, commit in told:
        place = _place(registers, group, partition, commit)[0]
        before = [p for completed, p in known[group, partition] if completed < call.invoked]
        if before and place < max(before):
            newer = registers.counted[group, partition][max(before)]
            found.append(
                Violation(
                    Anomaly.COMMITTED_BACK,
                    f"{group}: {call.broker} told {offset} for {partition}, of commit {commit}, "
                    f"though {newer} was known before",
                    (newer.event, call.invoked, call.completed),
                )
            )
    return found


def _told(knowledge: Knowledge) -> list[tuple[Call, str, Partition, int, int]]:
    return [
        (call, call.operation.group, partition, offset, commit)
        for call in knowledge.history.calls
        if isinstance(call.operation, FetchOffsets)
        and isinstance(call.result, OffsetsTold)
        and call.outcome is Outcome.OK
        for partition, offset, commit in call.result.offsets
    ]


def _place(
    registers: Registers, group: str, partition: Partition, commit: int
) -> tuple[int, Counted | None]:
    """Return the index of a commit among those that counted, in order, or -1 if it never did."""
    for place, counted in enumerate(registers.counted.get((group, partition), ())):
        if counted.commit == commit:
            return place, counted
    return -1, None
