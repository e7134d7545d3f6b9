"""The facts about consumer groups: all that outlives the process that coordinates them.

Pure. Owns their encoding. Pending joins and session deadlines are not facts: a new coordinator asks
the members again. Fields are positional: new ones go last, with a default.
"""

from uuid import UUID

import msgspec

from holdfast.identifiers import PartitionId


class ClassicMember(msgspec.Struct, frozen=True, array_like=True):
    """A member of a generation of a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: list[tuple[str, bytes]]
    """The protocols that it supports, the best first; the bytes are for the group's leader."""


class GenerationFormed(msgspec.Struct, frozen=True, array_like=True, tag="gf"):
    """The members of a classic group's next generation are known; the assignment is not, yet."""

    group_id: str
    generation: int
    protocol_type: str
    protocol_name: str | None
    leader: str | None
    members: list[ClassicMember]
    """The members of the generation; empty if the last one left."""
    formed_ms: int


class GenerationAssigned(msgspec.Struct, frozen=True, array_like=True, tag="ga"):
    """The leader of a generation has sent the assignment."""

    group_id: str
    generation: int
    assignments: list[tuple[str, bytes]]


class StaticMemberReplaced(msgspec.Struct, frozen=True, array_like=True, tag="gs"):
    """A process with a known group.instance.id came back under a new member id (KIP-345)."""

    group_id: str
    old_member_id: str
    member: ClassicMember


class CommittedOffset(msgspec.Struct, frozen=True, array_like=True):
    """The committed offset of a group in one partition."""

    partition: PartitionId
    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int = -1
    """When the offset expires, if the client chose a retention (OffsetCommit before version 5)."""


class OffsetsCommitted(msgspec.Struct, frozen=True, array_like=True, tag="go"):
    """A group committed offsets; in a transaction, they count only when that is committed."""

    group_id: str
    offsets: list[CommittedOffset]
    producer_id: int = -1
    producer_epoch: int = -1


class TransactionalOffsetsEnded(msgspec.Struct, frozen=True, array_like=True, tag="gt"):
    """The transaction in which a producer committed offsets of this group has ended."""

    group_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class OffsetsRemoved(msgspec.Struct, frozen=True, array_like=True, tag="gr"):
    """Committed offsets that were deleted, are too old, or belong to a deleted topic."""

    group_id: str
    partitions: list[PartitionId]


class GroupDeleted(msgspec.Struct, frozen=True, array_like=True, tag="gd"):
    """A group was deleted: nothing of it is left."""

    group_id: str


class OwnedPartitions(msgspec.Struct, frozen=True, array_like=True):
    """Partitions of one topic."""

    topic_id: UUID
    partitions: list[int]


class ClassicSide(msgspec.Struct, frozen=True, array_like=True):
    """What is known only about a classic member of a consumer group."""

    session_timeout_ms: int
    protocols: list[tuple[str, bytes]]
    """The protocols of its join, kept in case the group becomes a classic one again."""


class ConsumerMember(msgspec.Struct, frozen=True, array_like=True):
    """A member of a consumer group (KIP-848): its identity and its subscription."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topic_names: list[str]
    topic_regex: str | None = None
    assignor: str | None = None
    classic: ClassicSide | None = None
    """None for a member that speaks the new protocol."""


class ConsumerMemberSubscribed(msgspec.Struct, frozen=True, array_like=True, tag="cm"):
    """A member of a consumer group is new or has changed; `group_epoch` is the one after that."""

    group_id: str
    member: ConsumerMember
    group_epoch: int


class StaticConsumerReplaced(msgspec.Struct, frozen=True, array_like=True, tag="cs"):
    """A static member that had left came back under a new member id: it takes over its place."""

    group_id: str
    old_member_id: str
    member: ConsumerMember
    group_epoch: int


class ConsumerMemberLeft(msgspec.Struct, frozen=True, array_like=True, tag="cl"):
    """A member left, or was fenced out: what it owned is free."""

    group_id: str
    member_id: str
    group_epoch: int
    left_ms: int = 0


class ConsumerGroupEpochMoved(msgspec.Struct, frozen=True, array_like=True, tag="ce"):
    """The subscribed topics have changed, so a new target assignment is due."""

    group_id: str
    group_epoch: int


class TargetAssigned(msgspec.Struct, frozen=True, array_like=True, tag="ct"):
    """The target assignment of a group epoch; members that are not named keep their target."""

    group_id: str
    assignment_epoch: int
    assignor: str
    targets: list[tuple[str, list[OwnedPartitions]]]


class MemberReconciled(msgspec.Struct, frozen=True, array_like=True, tag="cc"):
    """A member has come closer to its target: what it owns now, and what it has to give up."""

    group_id: str
    member_id: str
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: list[OwnedPartitions]
    pending_revocation: list[OwnedPartitions]


class UpgradedMember(msgspec.Struct, frozen=True, array_like=True):
    """A member of a classic group, as it continues in a consumer group."""

    member: ConsumerMember
    member_epoch: int
    assigned: list[OwnedPartitions]
    pending_revocation: list[OwnedPartitions]
    """What it had to give up in its last generation, and may still have."""


class GroupUpgraded(msgspec.Struct, frozen=True, array_like=True, tag="cu"):
    """A classic group becomes a consumer group; so far all its members are classic ones."""

    group_id: str
    group_epoch: int
    members: list[UpgradedMember]


class GroupDowngraded(msgspec.Struct, frozen=True, array_like=True, tag="gw"):
    """A consumer group becomes a classic group, with a generation made of what its members own.

    That generation has no leader, and the next one must follow at once.
    """

    group_id: str
    generation: int
    protocol_type: str
    protocol_name: str | None
    members: list[ClassicMember]
    assignments: list[tuple[str, bytes]]
    epochs: list[tuple[str, int]]
    """The number by which each member knows the generation: its last member epoch."""
    formed_ms: int


GroupFact = (
    GenerationFormed
    | GenerationAssigned
    | StaticMemberReplaced
    | OffsetsCommitted
    | TransactionalOffsetsEnded
    | OffsetsRemoved
    | GroupDeleted
    | ConsumerMemberSubscribed
    | StaticConsumerReplaced
    | ConsumerMemberLeft
    | ConsumerGroupEpochMoved
    | TargetAssigned
    | MemberReconciled
    | GroupUpgraded
    | GroupDowngraded
)
