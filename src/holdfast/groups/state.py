"""The consumer groups of one lane, as its facts have built them.

Pure. Owns how facts change a group of either protocol, which member owns which partition now, and
which groups have facts that are not durable yet: an answer about such a group has to wait.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from holdfast.groups.consumer.state import ConsumerFact, ConsumerState, StoredConsumers, restored
from holdfast.groups.facts import (
    ClassicMember,
    CommittedOffset,
    GenerationAssigned,
    GenerationFormed,
    GroupDeleted,
    GroupDowngraded,
    GroupFact,
    GroupUpgraded,
    OffsetsCommitted,
    OffsetsRemoved,
    StaticMemberReplaced,
    TransactionalOffsetsEnded,
)
from holdfast.identifiers import PartitionId, in_order
from holdfast.lane.unsettled import Unsettled
from holdfast.protocol.consumer_protocol import PROTOCOL_TYPE, TopicPartition, assigned_partitions

CHANGED_GROUPS_MAX = 1_000
"""How many groups a snapshot has to encode at most; all others are encoded already."""


class Generation(msgspec.Struct, kw_only=True):
    """A generation of a classic group. Mutable: its assignment comes later."""

    number: int
    protocol_type: str
    protocol_name: str | None
    leader: str | None
    members: dict[str, ClassicMember]
    formed_ms: int
    assignments: dict[str, bytes] | None = None
    """None until the leader has sent them."""
    epochs: dict[str, int] | None = None
    """The number by which each member knows the generation, if the group was a consumer group just
    before. Such a generation only waits for the next one."""

    def number_of(self, member_id: str) -> int:
        """Return the number by which a member knows this generation."""
        return (self.epochs or {}).get(member_id, self.number)

    def owners(self) -> dict[TopicPartition, str]:
        """Return the owner of each partition, if the members are consumers."""
        if self.protocol_type != PROTOCOL_TYPE:
            return {}
        return {
            partition: member_id
            for member_id, assignment in (self.assignments or {}).items()
            for partition in assigned_partitions(assignment) or ()
        }

    def replace(self, old: str, member: ClassicMember) -> None:
        """Put a member in the place of another, assignment and leadership included."""
        new = member.member_id
        self.members = {
            (new if i == old else i): (member if i == old else m) for i, m in self.members.items()
        }
        if self.leader == old:
            self.leader = new
        if self.assignments is not None and old in self.assignments:
            self.assignments[new] = self.assignments.pop(old)


class PendingOffsets(NamedTuple):
    """The offsets that an open transaction will commit."""

    producer_epoch: int
    offsets: dict[PartitionId, CommittedOffset]


class Group:
    """One group: its members, if it has any, and its committed offsets.

    It is a classic or a consumer group, and may change from one to the other.
    """

    __slots__ = ("consumers", "generation", "group_id", "offsets", "owners", "pending")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.generation: Generation | None = None
        """None for a consumer group, and for one that never had members: clients only commit."""
        self.consumers: ConsumerState | None = None
        """None for a classic group."""
        self.owners: dict[TopicPartition, str] = {}
        """The owner of each partition, in a classic group."""
        self.offsets: dict[PartitionId, CommittedOffset] = {}
        self.pending: dict[int, PendingOffsets] = {}
        """The offsets of open transactions, by producer id."""

    def is_pending(self, partition: PartitionId) -> bool:
        """True if an open transaction is about to move the partition's offset."""
        return any(partition in found.offsets for found in self.pending.values())

    def owner(self, name: TopicPartition, partition: PartitionId) -> str | None:
        """Return the member that owns a partition now; classic groups assign by topic name."""
        if self.consumers is not None:
            return self.consumers.owners.get(partition)
        return self.owners.get(name)

    def form(self, generation: Generation | None) -> None:
        """Become a classic group with this generation."""
        self.consumers = None
        self.generation = generation
        self.owners = generation.owners() if generation is not None else {}

    def assign(self, fact: GenerationAssigned) -> None:
        generation = self.generation
        if generation is not None and generation.number == fact.generation:
            generation.assignments = dict(fact.assignments)
            self.owners = generation.owners()

    def replace_static(self, fact: StaticMemberReplaced) -> None:
        """Put the new id in the place of the old one, assignment and leadership included."""
        if self.generation is not None:
            self.generation.replace(fact.old_member_id, fact.member)
            self.owners = self.generation.owners()

    def downgrade(self, fact: GroupDowngraded) -> None:
        self.form(
            Generation(
                number=fact.generation,
                protocol_type=fact.protocol_type,
                protocol_name=fact.protocol_name,
                leader=None,
                members={member.member_id: member for member in fact.members},
                formed_ms=fact.formed_ms,
                assignments=dict(fact.assignments),
                epochs=dict(fact.epochs),
            )
        )

    def apply_to_consumers(self, fact: ConsumerFact) -> None:
        """Apply a fact of a consumer group; become one first if this is none yet."""
        if self.consumers is None or isinstance(fact, GroupUpgraded):
            self.form(None)
            self.consumers = ConsumerState()
        self.consumers.apply(fact)

    def commit(self, fact: OffsetsCommitted) -> None:
        if fact.producer_id < 0:
            self.offsets.update((item.partition, item) for item in fact.offsets)
            return
        pending = self.pending.get(fact.producer_id)
        if pending is None or pending.producer_epoch != fact.producer_epoch:
            pending = PendingOffsets(fact.producer_epoch, {})
            self.pending[fact.producer_id] = pending
        pending.offsets.update((item.partition, item) for item in fact.offsets)

    def end_transaction(self, fact: TransactionalOffsetsEnded) -> None:
        pending = self.pending.pop(fact.producer_id, None)
        if pending is not None and fact.committed:
            self.offsets.update(pending.offsets)

    def mentions(self, partition: PartitionId) -> bool:
        """True if the partition has a committed offset, or an open transaction has one for it."""
        return partition in self.offsets or any(
            partition in pending.offsets for pending in self.pending.values()
        )

    def partitions_of(self, topics: Collection[UUID]) -> list[PartitionId]:
        """Return the partitions of these topics that `mentions` is true for."""
        found = [partition for partition in self.offsets if partition.topic_id in topics]
        for pending in self.pending.values():
            found += [partition for partition in pending.offsets if partition.topic_id in topics]
        return list(dict.fromkeys(found)) if self.pending else found

    def offset_count(self) -> int:
        """Return the number of committed offsets, with those of open transactions."""
        return len(self.offsets) + sum(len(each.offsets) for each in self.pending.values())

    def remove_offsets(self, partitions: Sequence[PartitionId]) -> None:
        for partition in partitions:
            self.offsets.pop(partition, None)
            for pending in self.pending.values():
                pending.offsets.pop(partition, None)


class GroupsState:
    """All groups of a lane."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self._unsettled = Unsettled()
        self._encoded: dict[str, msgspec.Raw] = {}
        """Groups as a snapshot holds them; only groups that have not changed since."""
        self._changed: dict[str, None] = {}

    def is_settled(self, group_id: str) -> bool:
        """True if all that was decided about a group is durable."""
        return group_id not in self._unsettled

    def _made(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id)
        return group

    def apply(self, fact: GroupFact) -> None:
        self._unsettled.decided(fact.group_id)
        self._note_change(fact.group_id)
        if isinstance(fact, GroupDeleted):
            self.groups.pop(fact.group_id, None)
            return
        group = self._made(fact.group_id)
        match fact:
            case GenerationFormed():
                group.form(
                    Generation(
                        number=fact.generation,
                        protocol_type=fact.protocol_type,
                        protocol_name=fact.protocol_name,
                        leader=fact.leader,
                        members={member.member_id: member for member in fact.members},
                        formed_ms=fact.formed_ms,
                    )
                )
            case GenerationAssigned():
                group.assign(fact)
            case StaticMemberReplaced():
                group.replace_static(fact)
            case GroupDowngraded():
                group.downgrade(fact)
            case OffsetsCommitted():
                group.commit(fact)
            case TransactionalOffsetsEnded():
                group.end_transaction(fact)
            case OffsetsRemoved():
                group.remove_offsets(fact.partitions)
            case _:
                group.apply_to_consumers(fact)

    def _note_change(self, group_id: str) -> None:
        """Forget how a group was encoded. If many groups have changed, encode the one whose change
        is longest ago at once, so that a snapshot never has to encode more than a few."""
        self._encoded.pop(group_id, None)
        self._changed.pop(group_id, None)
        if len(self._changed) >= CHANGED_GROUPS_MAX:
            self._encode(next(iter(self._changed)))
        self._changed[group_id] = None

    def _encode(self, group_id: str) -> None:
        del self._changed[group_id]
        group = self.groups.get(group_id)
        if group is not None:
            self._encoded[group_id] = encode_group(_stored(group))

    def unencoded_groups(self) -> int:
        """Return how many groups the next snapshot has to encode."""
        return len(self._changed)

    def encoded(self) -> list[msgspec.Raw]:
        """Return all groups in the order of their names, each as it is in a snapshot."""
        for group_id in list(self._changed):
            self._encode(group_id)
        return [self._encoded[group_id] for group_id in sorted(self.groups)]

    def restore(self, group: Group, encoded: msgspec.Raw) -> None:
        """Add a group that a snapshot held."""
        self.groups[group.group_id] = group
        self._encoded[group.group_id] = encoded

    def publish(self, fact: GroupFact) -> None:
        """Note that the lane object of the fact is durable."""
        self._unsettled.published(fact.group_id)


class _StoredPending(msgspec.Struct, array_like=True):
    producer_id: int
    producer_epoch: int
    offsets: list[CommittedOffset]


class StoredGroup(msgspec.Struct, frozen=True, array_like=True):
    """One group in a snapshot."""

    group_id: str
    generation: Generation | None
    offsets: list[CommittedOffset]
    pending: list[_StoredPending]
    consumers: StoredConsumers | None = None


class StoredGroups(msgspec.Struct, frozen=True, array_like=True):
    """The groups of a lane in its snapshot."""

    groups: list[msgspec.Raw] = []


_ENCODER = msgspec.msgpack.Encoder(uuid_format="bytes", order="deterministic")
"""Must have the same options as the encoder of the snapshot that the groups go into."""
_DECODER = msgspec.msgpack.Decoder(StoredGroup)


def encode_group(group: StoredGroup) -> msgspec.Raw:
    return msgspec.Raw(_ENCODER.encode(group))


def _stored(group: Group) -> StoredGroup:
    return StoredGroup(
        group.group_id,
        group.generation,
        _by_partition(group.offsets),
        [
            _StoredPending(producer_id, pending.producer_epoch, _by_partition(pending.offsets))
            for producer_id, pending in sorted(group.pending.items())
        ],
        group.consumers.stored() if group.consumers is not None else None,
    )


def stored_groups(state: GroupsState) -> StoredGroups:
    return StoredGroups(state.encoded())


def _by_partition(offsets: Mapping[PartitionId, CommittedOffset]) -> list[CommittedOffset]:
    return [offsets[key] for key in in_order(offsets)]


def restored_groups(stored: StoredGroups) -> GroupsState:
    state = GroupsState()
    for encoded in stored.groups:
        item = _DECODER.decode(encoded)
        group = Group(item.group_id)
        group.form(item.generation)
        if item.consumers is not None:
            group.consumers = restored(item.consumers)
        group.offsets = {offset.partition: offset for offset in item.offsets}
        for pending in item.pending:
            offsets = {offset.partition: offset for offset in pending.offsets}
            group.pending[pending.producer_id] = PendingOffsets(pending.producer_epoch, offsets)
        state.restore(group, encoded)
    return state
