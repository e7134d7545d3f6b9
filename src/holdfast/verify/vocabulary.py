"""Calls, answers and durable decisions of groups and transactions, as histories name them.

Pure. Owns no rule. A decision is what a lane object says about a group or a transactional id, as
recorded by the store. Must never import what is being checked: members, partitions and groups are
names.
"""

import msgspec

Partition = str
"""A topic's name and a partition number, such as `orders/0`."""
Value = int
"""The identity of one record: each record that a client creates gets another one."""
NO_COMMIT = -1
NO_TRANSACTION = -1


class Fact(msgspec.Struct, frozen=True, gc=False):
    """The base class of all parts of a history. It is cheap, because a simulation creates
    millions."""


# The requests of clients, and the answers.


class InitProducer(Fact, frozen=True):
    transactional_id: str


class InitialisedProducer(Fact, frozen=True):
    """The answer to InitProducer: the previous producer of the transactional id is now fenced."""

    producer_id: int
    producer_epoch: int


class ExtendTransaction(Fact, frozen=True):
    """AddPartitionsToTxn or AddOffsetsToTxn, which clients before KIP-890 send first."""

    transactional_id: str
    transaction: int
    producer_id: int
    producer_epoch: int


class EndTransaction(Fact, frozen=True):
    transactional_id: str
    transaction: int
    committed: bool
    producer_id: int
    producer_epoch: int


class CommitOffsets(Fact, frozen=True):
    group: str
    member: str
    generation: int
    commit: int
    """The identity of this commit, which brokers store as metadata of the offsets."""
    offsets: tuple[tuple[Partition, int], ...]
    transactional_id: str = ""
    transaction: int = NO_TRANSACTION
    producer_id: int = -1
    producer_epoch: int = -1


class OffsetsTaken(Fact, frozen=True):
    """The partitions whose offset was committed, and those that the broker says others own."""

    partitions: tuple[Partition, ...]
    not_owned: tuple[Partition, ...] = ()


class FetchOffsets(Fact, frozen=True):
    group: str
    partitions: tuple[Partition, ...]


class OffsetsTold(Fact, frozen=True):
    offsets: tuple[tuple[Partition, int, int], ...]
    """(partition, offset, commit) for each partition; -1 and NO_COMMIT if nothing is committed."""


class JoinGroup(Fact, frozen=True):
    group: str
    member: str


class JoinAnswer(Fact, frozen=True):
    member: str
    generation: int
    leader: str


class SyncGroup(Fact, frozen=True):
    group: str
    member: str
    generation: int


class Heartbeat(Fact, frozen=True):
    group: str
    member: str
    generation: int


class LeaveGroup(Fact, frozen=True):
    group: str
    member: str


class ConsumerHeartbeat(Fact, frozen=True):
    """A ConsumerGroupHeartbeat (KIP-848)."""

    group: str
    member: str
    epoch: int


class Assigned(Fact, frozen=True):
    """The partitions that an answer says a member owns, and its generation or member epoch."""

    member: str
    generation: int
    partitions: tuple[Partition, ...] | None
    """The assigned partitions; None if the answer did not name any."""


CoordinatorOperation = (
    InitProducer
    | ExtendTransaction
    | EndTransaction
    | CommitOffsets
    | FetchOffsets
    | JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | ConsumerHeartbeat
)
CoordinatorResult = InitialisedProducer | OffsetsTaken | OffsetsTold | JoinAnswer | Assigned


# The decisions in lane objects.


class GenerationLanded(Fact, frozen=True):
    """A new generation of a classic group, in which no member owns a partition yet."""

    group: str
    generation: int
    leader: str
    members: tuple[str, ...]


class AssignmentLanded(Fact, frozen=True):
    """The assignment of a generation of a classic group: the partitions of each member."""

    group: str
    generation: int
    owners: tuple[tuple[str, tuple[Partition, ...]], ...]


class MemberRenamed(Fact, frozen=True):
    """A static member that came back under another id and still owns what it owned."""

    group: str
    old: str
    new: str


class MemberOwns(Fact, frozen=True):
    """The partitions that a KIP-848 member owns, and those that it still has to give up."""

    group: str
    member: str
    epoch: int
    assigned: tuple[Partition, ...]
    giving_up: tuple[Partition, ...]


class MemberGone(Fact, frozen=True):
    group: str
    member: str


class OffsetsLanded(Fact, frozen=True):
    """Committed offsets; part of a transaction if the producer id is not -1."""

    group: str
    offsets: tuple[tuple[Partition, int, int], ...]
    """(partition, offset, commit) for each partition."""
    producer_id: int = -1
    producer_epoch: int = -1


class OffsetsEnded(Fact, frozen=True):
    """The end of a producer's transaction, for one group."""

    group: str
    producer_id: int
    committed: bool


class OffsetsForgotten(Fact, frozen=True):
    group: str
    partitions: tuple[Partition, ...]


class ProducerLanded(Fact, frozen=True):
    """The producer id and epoch that a transactional id has from now on."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


Decision = (
    GenerationLanded
    | AssignmentLanded
    | MemberRenamed
    | MemberOwns
    | MemberGone
    | OffsetsLanded
    | OffsetsEnded
    | OffsetsForgotten
    | ProducerLanded
)
