"""Very many groups, and a very large one: what they cost between two requests."""

from uuid import UUID

import msgspec
from tests.support.consumer_groups import Client, ConsumerWorld, settle
from tests.support.groups import TOPIC_ID, World

from holdfast.groups.consumer.consumer_group import PROMPT_MEMBERS_MAX, ConsumerPhase
from holdfast.groups.coordinator import SLICE_GROUPS, SLICE_OFFSETS
from holdfast.groups.facts import (
    CommittedOffset,
    GroupDeleted,
    OffsetsCommitted,
    TargetAssigned,
)
from holdfast.groups.state import (
    CHANGED_GROUPS_MAX,
    GroupsState,
    StoredGroups,
    restored_groups,
    stored_groups,
)
from holdfast.identifiers import PartitionId
from holdfast.protocol.api import ErrorCode

GROUPS = 5 * CHANGED_GROUPS_MAX


def committed(group_id: str, offset: int, topic: UUID = TOPIC_ID) -> OffsetsCommitted:
    partition = PartitionId(topic, 0)
    return OffsetsCommitted(group_id, [CommittedOffset(partition, offset, -1, "", 0)])


def test_a_snapshot_has_few_groups_left_to_encode_however_many_there_are():
    state = GroupsState()
    for i in range(GROUPS):
        state.apply(committed(f"g{i}", i))
    assert state.unencoded_groups() <= CHANGED_GROUPS_MAX
    first = msgspec.msgpack.encode(stored_groups(state))
    state.apply(committed("g7", 1_000_000))
    state.apply(GroupDeleted("g8"))
    assert state.unencoded_groups() == 2
    again = msgspec.msgpack.encode(stored_groups(state))
    assert again != first
    found = restored_groups(msgspec.msgpack.decode(again, type=StoredGroups))
    offsets = {i: next(iter(group.offsets.values())).offset for i, group in found.groups.items()}
    wanted = {f"g{i}": i for i in range(GROUPS) if i != 8} | {"g7": 1_000_000}
    assert offsets == wanted
    assert found.unencoded_groups() == 0
    assert msgspec.msgpack.encode(stored_groups(found)) == again


def test_old_offsets_are_looked_for_in_slices():
    world = World()
    for i in range(3 * SLICE_GROUPS):
        world.decide(committed(f"g{i}", i))
    world.crash()
    world.now += 8 * 24 * 3_600
    assert len(list(world.coordinator.expire_offsets())) == 3
    assert world.state.groups == {}


def test_the_offsets_of_deleted_topics_are_looked_for_in_slices():
    world = World()
    gone, kept = UUID(int=1), UUID(int=2)
    for i in range(2 * SLICE_GROUPS):
        topic = gone if i % 2 else kept
        world.decide(committed(f"g{i}", i, topic))
    world.facts.clear()
    assert list(world.coordinator.remove_offsets_of({gone})) == [SLICE_GROUPS // 2] * 2
    assert len(world.facts) == SLICE_GROUPS
    assert list(world.coordinator.remove_offsets_of({gone})) == [0, 0]
    left = [offset for group in world.state.groups.values() for offset in group.offsets]
    assert {partition.topic_id for partition in left} == {kept}


def test_a_slice_of_groups_with_many_offsets_has_fewer_groups():
    world = World()
    gone = UUID(int=1)
    offsets = [CommittedOffset(PartitionId(gone, i), 1, -1, "", 0) for i in range(1_000)]
    for i in range(30):
        # Half of them are in a transaction that is still open.
        world.decide(OffsetsCommitted(f"g{i}", offsets, i if i % 2 else -1, 0))
    removed = list(world.coordinator.remove_offsets_of({gone}))
    assert removed == [SLICE_OFFSETS] * 3
    assert not any(group.mentions(offsets[0].partition) for group in world.state.groups.values())


def targets(world: ConsumerWorld) -> int:
    return sum(isinstance(fact, TargetAssigned) for fact in world.facts)


def test_many_members_that_join_at_once_share_an_assignment():
    world = ConsumerWorld()
    clients = [Client(world, f"m{i:05}") for i in range(5 * PROMPT_MEMBERS_MAX)]
    for client in clients:
        assert client.beat() is ErrorCode.NONE
        assert client.epoch > 0
    # One for each member of a group that is still small; the next one waits for its time.
    assert targets(world) == PROMPT_MEMBERS_MAX
    assert world.group().phase is ConsumerPhase.ASSIGNING
    world.wait(world.rules.group_consumer_assignment_interval_ms / 1000)
    assert targets(world) == PROMPT_MEMBERS_MAX + 1
    settle(*clients)
    assert world.group().phase is ConsumerPhase.STABLE
    assert sorted(number for client in clients for number in client.numbers) == [0, 1, 2, 3]


def test_a_target_that_was_put_off_is_made_when_its_time_comes_and_after_a_crash():
    world = ConsumerWorld()
    clients = [Client(world, f"m{i:05}") for i in range(2 * PROMPT_MEMBERS_MAX)]
    for client in clients:
        client.beat()
    world.crash()
    assert world.group().phase is ConsumerPhase.ASSIGNING
    clients[0].beat()
    assert world.group().phase is not ConsumerPhase.ASSIGNING
    settle(*clients)
    assert sorted(number for client in clients for number in client.numbers) == [0, 1, 2, 3]
