"""Checks consumer groups: ownership when offsets are committed, and the answers to members.

Pure. One function for each anomaly.
"""

from typing import TypeVar

from holdfast.verify.checkers.decided import Owners, decisions
from holdfast.verify.checkers.knowledge import FOR_EVER, Knowledge
from holdfast.verify.checkers.violation import Anomaly, Violation
from holdfast.verify.history import Call, Outcome
from holdfast.verify.vocabulary import (
    Assigned,
    AssignmentLanded,
    CommitOffsets,
    ConsumerHeartbeat,
    GenerationLanded,
    JoinAnswer,
    JoinGroup,
    MemberOwns,
    MemberRenamed,
    OffsetsLanded,
    OffsetsTaken,
    Partition,
    SyncGroup,
)

T = TypeVar("T")


def not_owner_commit(knowledge: Knowledge) -> list[Violation]:
    """Find commits of a partition that another member owned when the commit was taken."""
    found: list[Violation] = []
    asked = {
        call.operation.commit: call
        for call in knowledge.history.calls
        if isinstance(call.operation, CommitOffsets)
    }
    owners = Owners()
    for event, decision in decisions(knowledge.history):
        owners.apply(decision)
        if not isinstance(decision, OffsetsLanded):
            continue
        for partition, offset, commit in decision.offsets:
            call = asked.get(commit)
            if call is None or not isinstance(call.operation, CommitOffsets):
                continue
            others = [m for m in owners.of(decision.group, partition) if m != call.operation.member]
            if others:
                found.append(
                    Violation(
                        Anomaly.NOT_OWNER_COMMIT,
                        f"{decision.group}: {call.operation.member!r} moved {partition} to {offset}"
                        f", while {others} owned it",
                        (call.invoked, event),
                    )
                )
    return found


def owner_refused(knowledge: Knowledge) -> list[Violation]:
    """Find refused commits of a partition that no other member owned at any time of the call.

    In a KIP-848 group an old member epoch gets the same answer: those calls are not judged.
    """
    refused = [
        (call, call.operation, call.result.not_owned)
        for call in knowledge.history.calls
        if isinstance(call.operation, CommitOffsets)
        and isinstance(call.result, OffsetsTaken)
        and call.result.not_owned
    ]
    watched = sorted({(asked.group, p) for _, asked, partitions in refused for p in partitions})
    owners = Owners()
    epochs: dict[tuple[str, str], list[tuple[int, int]]] = {}
    held: dict[tuple[str, Partition], list[tuple[int, list[str]]]] = {}
    for event, decision in decisions(knowledge.history) if refused else ():
        owners.apply(decision)
        if isinstance(decision, MemberOwns):
            key = (decision.group, decision.member)
            epochs.setdefault(key, []).append((event, decision.epoch))
        for group, partition in watched:
            held.setdefault((group, partition), []).append((event, owners.of(group, partition)))
    found: list[Violation] = []
    for call, asked, partitions in refused:
        stood = _meanwhile(epochs.get((asked.group, asked.member), []), call)
        if any(epoch != asked.generation for epoch in stood):
            continue
        for partition in partitions:
            holders = _meanwhile(held.get((asked.group, partition), []), call)
            if not any(member != asked.member for who in holders for member in who):
                found.append(
                    Violation(
                        Anomaly.OWNER_REFUSED,
                        f"{asked.group}: {call.broker} refused {asked.member!r} its commit of "
                        f"{partition}, which no other member owned",
                        (call.invoked, call.completed),
                    )
                )
    return found


def _meanwhile(changes: list[tuple[int, T]], call: Call) -> list[T]:
    """Return the values that held at some time during a call."""
    before = [what for event, what in changes if event < call.invoked][-1:]
    return before + [what for event, what in changes if call.invoked <= event <= call.completed]


def ownership_overlap(knowledge: Knowledge) -> list[Violation]:
    """Find partitions that two members of one group own at the same time."""
    found: list[Violation] = []
    owners = Owners()
    for event, decision in decisions(knowledge.history):
        owners.apply(decision)
        if isinstance(decision, MemberOwns):
            touched = (*decision.assigned, *decision.giving_up)
        elif isinstance(decision, AssignmentLanded):
            touched = tuple(p for _, partitions in decision.owners for p in partitions)
        else:
            continue
        for partition in sorted(set(touched)):
            holders = owners.of(decision.group, partition)
            if len(holders) > 1:
                found.append(
                    Violation(
                        Anomaly.OWNERSHIP_OVERLAP,
                        f"{decision.group}: {partition} is owned by {holders}",
                        (event,),
                    )
                )
    return found


def told_anothers(knowledge: Knowledge) -> list[Violation]:
    """Find members that are assigned a partition which others owned during the whole call."""
    told = [
        (call, call.operation.group, call.result.member, call.result.partitions)
        for call in knowledge.history.calls
        if isinstance(call.operation, SyncGroup | ConsumerHeartbeat)
        and isinstance(call.result, Assigned)
        and call.result.partitions
    ]
    owners = Owners()
    held: dict[tuple[str, Partition], list[tuple[int, list[str]]]] = {}
    watched = sorted({(group, p) for _, group, _, partitions in told for p in partitions})
    for event, decision in decisions(knowledge.history) if told else ():
        owners.apply(decision)
        for group, partition in watched:
            held.setdefault((group, partition), []).append((event, owners.of(group, partition)))
    found: list[Violation] = []
    for call, group, member, partitions in told:
        for partition in partitions:
            holders = _meanwhile(held.get((group, partition), []), call)
            if holders and all(who and member not in who for who in holders):
                found.append(
                    Violation(
                        Anomaly.TOLD_ANOTHERS,
                        f"{group}: {call.broker} told {member!r} to own {partition}, which was "
                        f"{holders[0]}'s",
                        (call.invoked, call.completed),
                    )
                )
    return found


_Told = tuple[str, str, int, tuple[Partition, ...]]
"""(group, member, generation or member epoch, partitions)."""


class _Durable:
    """The events from which on memberships and assignments are durable."""

    def __init__(self, knowledge: Knowledge) -> None:
        self.assignments: dict[_Told, int] = {}
        self.memberships: dict[tuple[str, str, int], int] = {}
        members: dict[str, tuple[int, dict[str, tuple[Partition, ...]]]] = {}
        for event, decision in decisions(knowledge.history):
            match decision:
                case GenerationLanded():
                    members[decision.group] = (decision.generation, {})
                    for member in decision.members:
                        key = (decision.group, member, decision.generation)
                        self.memberships.setdefault(key, event)
                case AssignmentLanded():
                    members[decision.group] = (decision.generation, dict(decision.owners))
                    for member, partitions in decision.owners:
                        told = (decision.group, member, decision.generation, partitions)
                        self.assignments.setdefault(told, event)
                case MemberRenamed():
                    generation, owned = members.get(decision.group, (-1, {}))
                    key = (decision.group, decision.new, generation)
                    self.memberships.setdefault(key, event)
                    partitions = owned.pop(decision.old, ())
                    owned[decision.new] = partitions
                    self.assignments.setdefault((*key, partitions), event)
                case MemberOwns():
                    told = (decision.group, decision.member, decision.epoch, decision.assigned)
                    self.assignments.setdefault(told, event)
                case _:
                    pass


def assignment_not_durable(knowledge: Knowledge) -> list[Violation]:
    """Find answers with a generation or an assignment that no lane object held at that time."""
    durable = _Durable(knowledge)
    found: list[Violation] = []
    for call in knowledge.history.calls:
        if call.outcome is not Outcome.OK:
            continue
        match call.operation, call.result:
            case JoinGroup(group=group), JoinAnswer(member=member, generation=generation):
                event = durable.memberships.get((group, member, generation), FOR_EVER)
                what = f"to be in generation {generation}"
            case (
                SyncGroup(group=group) | ConsumerHeartbeat(group=group),
                Assigned(member=member, generation=generation, partitions=tuple(partitions)),
            ):
                told = (group, member, generation, partitions)
                event = durable.assignments.get(told, FOR_EVER)
                what = f"to own {list(partitions)} in {generation}"
            case _:
                continue
        if event > call.completed:
            found.append(_early(call, f"{group}: {member} was told {what}", event))
    return found


def _early(call: Call, what: str, event: int) -> Violation:
    when = "never was" if event == FOR_EVER else f"was durable at {event}"
    return Violation(
        Anomaly.ASSIGNMENT_NOT_DURABLE, f"{what}; that {when}", (call.invoked, call.completed)
    )
