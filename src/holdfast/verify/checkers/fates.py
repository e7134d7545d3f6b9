"""Checks transactions by the evidence that they were committed or aborted, and by their writers.

Pure. A transaction has the same end for all readers: evidence of both ends, in whatever partition
or group, means that it is torn. One function for each anomaly.
"""

import bisect
import dataclasses

from holdfast.verify.checkers.decided import Registers, decisions
from holdfast.verify.checkers.knowledge import FOR_EVER, Knowledge
from holdfast.verify.checkers.lanes import chains
from holdfast.verify.checkers.violation import Anomaly, Violation
from holdfast.verify.checkers.visibility import range_of
from holdfast.verify.history import READ_COMMITTED, Fetch, Fetched, Outcome, Produce, Value
from holdfast.verify.vocabulary import (
    NO_TRANSACTION,
    CommitOffsets,
    EndTransaction,
    InitialisedProducer,
    InitProducer,
    OffsetsLanded,
)


@dataclasses.dataclass(slots=True)
class _Fate:
    """Everything that is known about one transaction."""

    commit_asked: int = FOR_EVER
    commit_acked: int = FOR_EVER
    abort_acked: int = FOR_EVER
    committed: list[tuple[int, str]] = dataclasses.field(default_factory=list[tuple[int, str]])
    """The events that show it as committed, and what they show."""
    aborted: list[tuple[int, str]] = dataclasses.field(default_factory=list[tuple[int, str]])


def _fates(knowledge: Knowledge) -> dict[int, _Fate]:
    fates: dict[int, _Fate] = {}
    of_value: dict[Value, int] = {}
    of_commit: dict[int, int] = {}
    for call in knowledge.history.calls:
        match call.operation:
            case Produce(transaction=number) if number != NO_TRANSACTION:
                of_value.update(dict.fromkeys(call.operation.values, number))
            case CommitOffsets(transaction=number) if number != NO_TRANSACTION:
                of_commit[call.operation.commit] = number
            case EndTransaction(transaction=number, committed=committed):
                fate = fates.setdefault(number, _Fate())
                is_ok = call.outcome is Outcome.OK
                if committed:
                    fate.commit_asked = min(fate.commit_asked, call.invoked)
                    if is_ok:
                        fate.commit_acked = min(fate.commit_acked, call.completed)
                elif is_ok:
                    fate.abort_acked = min(fate.abort_acked, call.completed)
            case _:
                pass
    if not of_value and not of_commit:
        return {}
    _see_reads(knowledge, fates, of_value)
    for event, commit, committed in Registers(knowledge.history).ended:
        if commit in of_commit:
            fate = fates.setdefault(of_commit[commit], _Fate())
            seen = fate.committed if committed else fate.aborted
            seen.append((event, f"offsets of commit {commit}"))
    return fates


def _see_reads(knowledge: Knowledge, fates: dict[int, _Fate], of_value: dict[Value, int]) -> None:
    for partition, known in knowledge.partitions.items():
        offsets = sorted(known.values_at)
        for call in known.queries:
            asked, told = call.operation, call.result
            if not isinstance(asked, Fetch) or not isinstance(told, Fetched):
                continue
            if asked.isolation != READ_COMMITTED:
                continue
            for offset, value in told.records:
                if value in of_value:
                    fate = fates.setdefault(of_value[value], _Fate())
                    fate.committed.append((call.completed, f"{partition} at {offset} was shown"))
            shown = dict(told.records)
            start, stop = range_of(asked, told)
            low, high = bisect.bisect_left(offsets, start), bisect.bisect_left(offsets, stop)
            for offset in offsets[low:high]:
                if offset in shown:
                    continue
                for value in known.values_at[offset]:
                    if value in of_value:
                        fate = fates.setdefault(of_value[value], _Fate())
                        fate.aborted.append(
                            (call.completed, f"{partition} at {offset} was passed over")
                        )


def aborted_read(knowledge: Knowledge) -> list[Violation]:
    """Find transactions of which something counts before a commit was asked for, or despite an
    acked abort."""
    found: list[Violation] = []
    for number, fate in _fates(knowledge).items():
        if not fate.committed:
            continue
        event, what = min(fate.committed)
        if event < fate.commit_asked or fate.abort_acked < FOR_EVER:
            asked = fate.commit_asked if fate.commit_asked < FOR_EVER else "never"
            found.append(
                Violation(
                    Anomaly.ABORTED_READ,
                    f"transaction {number}: {what}; a commit was asked for: {asked}, an abort "
                    f"was acked: {fate.abort_acked if fate.abort_acked < FOR_EVER else 'never'}",
                    (event,),
                )
            )
    return found


def torn(knowledge: Knowledge) -> list[Violation]:
    """Find transactions of which one part counts and another was skipped for good."""
    return [
        Violation(
            Anomaly.TORN_TRANSACTION,
            f"transaction {number}: {fate.committed[0][1]}, but {fate.aborted[0][1]}",
            (fate.committed[0][0], fate.aborted[0][0]),
        )
        for number, fate in _fates(knowledge).items()
        if fate.committed and fate.aborted
    ]


def committed_lost(knowledge: Knowledge) -> list[Violation]:
    """Find transactions whose commit was acked and of which a part was skipped for good."""
    return [
        Violation(
            Anomaly.COMMITTED_LOST,
            f"transaction {number}: its commit was acked at {fate.commit_acked}, but "
            f"{fate.aborted[0][1]}",
            (fate.commit_acked, fate.aborted[0][0]),
        )
        for number, fate in _fates(knowledge).items()
        if fate.commit_acked < FOR_EVER and fate.aborted
    ]


def zombie(knowledge: Knowledge) -> list[Violation]:
    """Find writes, commits and ends by a producer whose id had a newer epoch by then."""
    fences: dict[int, list[tuple[int, int]]] = {}
    writers: dict[Value, Produce] = {}
    found: list[Violation] = []
    for call in knowledge.history.calls:
        match call.operation, call.result:
            case InitProducer(), InitialisedProducer(producer_id=producer_id, producer_epoch=epoch):
                fences.setdefault(producer_id, []).append((call.completed, epoch))
            case Produce(transaction=number), _ if number != NO_TRANSACTION:
                writers.update(dict.fromkeys(call.operation.values, call.operation))
            case _:
                pass

    def judge(event: int, producer_id: int, epoch: int, what: str) -> None:
        for fenced, newer in fences.get(producer_id, ()):
            if fenced < event and epoch < newer:
                found.append(
                    Violation(
                        Anomaly.ZOMBIE,
                        f"producer {producer_id} {what} in epoch {epoch}, after epoch {newer} had "
                        f"been given at {fenced}",
                        (fenced, event),
                    )
                )
                return

    for chain in chains(knowledge.history).values():
        for landing in chain.values():
            for append in landing.appends:
                writer = writers.get(append.values[0]) if append.values else None
                if writer is not None:
                    what = f"wrote {append.values} to {append.partition}"
                    judge(landing.sequence, writer.producer_id, writer.producer_epoch, what)
    for event, decision in decisions(knowledge.history):
        if isinstance(decision, OffsetsLanded) and decision.producer_id >= 0:
            what = f"committed offsets of {decision.group}"
            judge(event, decision.producer_id, decision.producer_epoch, what)
    for call in knowledge.history.calls:
        if isinstance(call.operation, EndTransaction) and call.outcome is Outcome.OK:
            asked = call.operation
            judge(call.invoked, asked.producer_id, asked.producer_epoch, "ended a transaction")
    return found
