"""Translates the group and transaction facts of a lane object into the words of a history.

Owns the translation: product facts go in, names and numbers come out. Must never judge facts, nor
keep any state: the checkers work out what follows from them.
"""

from collections.abc import Callable, Iterable

from holdfast.groups.facts import (
    ConsumerMemberLeft,
    GenerationAssigned,
    GenerationFormed,
    MemberReconciled,
    OffsetsCommitted,
    OffsetsRemoved,
    OwnedPartitions,
    StaticConsumerReplaced,
    StaticMemberReplaced,
    TransactionalOffsetsEnded,
)
from holdfast.identifiers import PartitionId
from holdfast.log.facts import DataFact
from holdfast.protocol.consumer_protocol import assigned_partitions
from holdfast.transactions.facts import ProducerInitialised, TransactionEnding
from holdfast.verify.vocabulary import (
    NO_COMMIT,
    AssignmentLanded,
    Decision,
    GenerationLanded,
    MemberGone,
    MemberOwns,
    MemberRenamed,
    OffsetsEnded,
    OffsetsForgotten,
    OffsetsLanded,
    ProducerLanded,
)

NameOf = Callable[[PartitionId], str]


def decisions_of(facts: Iterable[DataFact], name_of: NameOf) -> tuple[Decision, ...]:
    """Return what the facts of one object decide about groups and transactional ids, in order."""
    found = (_decision(fact, name_of) for fact in facts)
    return tuple(decision for decision in found if decision is not None)


def _decision(fact: DataFact, name_of: NameOf) -> Decision | None:
    match fact:
        case OffsetsCommitted():
            return OffsetsLanded(
                fact.group_id,
                tuple(
                    (name_of(o.partition), o.offset, commit_in(o.metadata)) for o in fact.offsets
                ),
                fact.producer_id,
                fact.producer_epoch,
            )
        case TransactionalOffsetsEnded():
            return OffsetsEnded(fact.group_id, fact.producer_id, fact.committed)
        case OffsetsRemoved():
            return OffsetsForgotten(fact.group_id, tuple(map(name_of, fact.partitions)))
        case ProducerInitialised():
            return ProducerLanded(fact.transactional_id, fact.producer_id, fact.producer_epoch)
        case TransactionEnding():
            return ProducerLanded(
                fact.transactional_id, fact.next_producer_id, fact.next_producer_epoch
            )
        case _:
            return _of_members(fact, name_of)


def _of_members(fact: DataFact, name_of: NameOf) -> Decision | None:
    match fact:
        case GenerationFormed():
            members = tuple(member.member_id for member in fact.members)
            return GenerationLanded(fact.group_id, fact.generation, fact.leader or "", members)
        case GenerationAssigned():
            return AssignmentLanded(
                fact.group_id,
                fact.generation,
                tuple((member, partitions_in(given)) for member, given in fact.assignments),
            )
        case StaticMemberReplaced() | StaticConsumerReplaced():
            return MemberRenamed(fact.group_id, fact.old_member_id, fact.member.member_id)
        case ConsumerMemberLeft():
            return MemberGone(fact.group_id, fact.member_id)
        case MemberReconciled():
            return MemberOwns(
                fact.group_id,
                fact.member_id,
                fact.member_epoch,
                _names(fact.assigned, name_of),
                _names(fact.pending_revocation, name_of),
            )
        case _:
            return None


def partitions_in(assignment: bytes) -> tuple[str, ...]:
    """Return the partitions that an assignment of the classic protocol names."""
    return tuple(sorted(f"{t}/{p}" for t, p in assigned_partitions(assignment) or ()))


def commit_in(metadata: str | None) -> int:
    """Return the commit of a committed offset, which the simulated clients store as its
    metadata."""
    return int(metadata) if metadata else NO_COMMIT


def _names(topics: Iterable[OwnedPartitions], name_of: NameOf) -> tuple[str, ...]:
    return tuple(
        sorted(name_of(PartitionId(t.topic_id, number)) for t in topics for number in t.partitions)
    )
