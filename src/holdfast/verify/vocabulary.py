"""The words of histories for groups and transactions: what was asked, told, and made durable.

Pure. Owns no rule. A decision is what a lane object says of a group or a transactional id, told by
the store. Must never import what is being checked: members, partitions and groups are names.
"""

import msgspec

Partition = str
"""A topic's incarnation and a partition number, as the recorder names them: `orders/0`."""
Value = int
"""The identity of one record: each record that a client makes up gets its own."""
NO_COMMIT = -1
NO_TRANSACTION = -1


class Fact(msgspec.Struct, frozen=True, gc=False):
    """The root of all that a history holds: cheap to make, for a simulation makes millions."""


# What clients ask, and what they are told.


class InitProducer(Fact, frozen=True):
    transactional_id: str


class Initialised(Fact, frozen=True):
    """Whoever had the transactional id before is fenced."""

    producer_id: int
    producer_epoch: int


class ExtendTransaction(Fact, frozen=True):
    """What clients before KIP-890 send ahead of records and offsets."""

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
    """The identity of this commit: the brokers keep it beside the offsets."""
    offsets: tuple[tuple[Partition, int], ...]
    transactional_id: str = ""
    transaction: int = NO_TRANSACTION
    producer_id: int = -1
    producer_epoch: int = -1


class OffsetsTaken(Fact, frozen=True):
    """Of which partitions the offset was moved, and which are said to be another member's."""

    partitions: tuple[Partition, ...]
    not_owned: tuple[Partition, ...] = ()


class FetchOffsets(Fact, frozen=True):
    group: str
    partitions: tuple[Partition, ...]


class OffsetsTold(Fact, frozen=True):
    offsets: tuple[tuple[Partition, int, int], ...]
    """Partition, offset, and the commit that it is of; -1 and NO_COMMIT where there is none."""


class JoinGroup(Fact, frozen=True):
    group: str
    member: str


class Joined(Fact, frozen=True):
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
    """Of the new protocol (KIP-848)."""

    group: str
    member: str
    epoch: int


class Assigned(Fact, frozen=True):
    """What a member is told that it owns, in which generation or member epoch."""

    member: str
    generation: int
    partitions: tuple[Partition, ...] | None
    """None where nothing was said of them."""


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
CoordinatorResult = Initialised | OffsetsTaken | OffsetsTold | Joined | Assigned


# What lane objects say.


class GenerationLanded(Fact, frozen=True):
    """A classic group has these members now, and nobody owns anything yet."""

    group: str
    generation: int
    leader: str
    members: tuple[str, ...]


class AssignmentLanded(Fact, frozen=True):
    """Who owns what in a generation of a classic group."""

    group: str
    generation: int
    owners: tuple[tuple[str, tuple[Partition, ...]], ...]


class MemberRenamed(Fact, frozen=True):
    """A static member came back under another id, and has what it had."""

    group: str
    old: str
    new: str


class MemberOwns(Fact, frozen=True):
    """What a member of a consumer group (KIP-848) owns, and what it has still to give up."""

    group: str
    member: str
    epoch: int
    assigned: tuple[Partition, ...]
    giving_up: tuple[Partition, ...]


class MemberGone(Fact, frozen=True):
    group: str
    member: str


class OffsetsLanded(Fact, frozen=True):
    """Committed offsets; within a transaction where the producer id is not -1."""

    group: str
    offsets: tuple[tuple[Partition, int, int], ...]
    """Partition, offset and commit."""
    producer_id: int = -1
    producer_epoch: int = -1


class OffsetsEnded(Fact, frozen=True):
    """The transaction of a producer has ended for this group."""

    group: str
    producer_id: int
    committed: bool


class OffsetsForgotten(Fact, frozen=True):
    group: str
    partitions: tuple[Partition, ...]


class ProducerLanded(Fact, frozen=True):
    """A transactional id is of this producer and epoch now."""

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
