"""A group with members moves from the classic to the consumer protocol, and back."""

import dataclasses

import msgspec
import pytest
from tests.support.classic_members import (
    ALL,
    COOPERATIVE,
    EAGER,
    Classic,
    all_beat,
    classic_group,
    owned,
    run,
)
from tests.support.consumer_groups import Client, ConsumerWorld, settle
from tests.support.groups import (
    GROUP,
    TOPIC,
    assignment,
    subscription,
)

from holdfast.groups.commits import NOT_OWNED, CommitDecision
from holdfast.groups.facts import GroupDowngraded, GroupUpgraded
from holdfast.groups.rules import GroupRules, MigrationPolicy
from holdfast.groups.state import stored_groups
from holdfast.protocol.api import ErrorCode


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld()


def with_policy(policy: MigrationPolicy) -> ConsumerWorld:
    return ConsumerWorld(GroupRules(group_consumer_migration_policy=policy))


@pytest.mark.parametrize("assignor", [EAGER, COOPERATIVE])
def test_a_member_of_the_new_protocol_joins_a_classic_group(world: ConsumerWorld, assignor: str):
    a, b = classic_group(world, 2, assignor)
    new = Client(world, "new")
    assert new.beat() is ErrorCode.NONE
    assert new.numbers == []
    assert world.coordinator.classic(GROUP) is None
    assert a.step() is ErrorCode.REBALANCE_IN_PROGRESS
    all_beat(a, b, new)
    assert owned(a, b, new) == ALL
    assert len(new.numbers) == 1
    assert world.group().phase.value == "Stable"
    assert a.generation == b.generation == new.epoch


def test_a_cooperative_member_keeps_what_stays_its_own(world: ConsumerWorld):
    a, b = classic_group(world, 2, COOPERATIVE)
    before = {a: a.owned, b: b.owned}
    new = Client(world, "new")
    new.beat()
    for _ in range(8):
        for member in (a, b):
            member.step()
            kept = before[member] - frozenset(new.numbers)
            assert len(member.owned & before[member]) >= min(1, len(kept))
        new.beat()
    assert owned(a, b, new) == ALL


def test_a_partition_is_given_on_when_its_classic_owner_has_joined_again(world: ConsumerWorld):
    (a,) = classic_group(world, 1, COOPERATIVE)
    new = Client(world, "new")
    new.beat()
    a.step()  # it hears, and joins with all that it has
    new.beat()
    assert new.numbers == []
    a.step()  # it syncs
    a.step()  # and hears what to give up
    assert len(a.to_revoke) == 2
    new.beat()
    assert new.numbers == []
    a.step()
    new.beat()
    assert len(new.numbers) == 2
    assert not a.owned & frozenset(new.numbers)


def test_the_last_member_of_the_new_protocol_leaves_and_the_group_is_classic_again(
    world: ConsumerWorld,
):
    a, b = classic_group(world, 2)
    new = Client(world, "new")
    new.beat()
    all_beat(a, b, new)
    generation = a.generation
    new.leave()
    assert world.coordinator.consumer(GROUP) is None
    assert world.phase() == "PreparingRebalance"
    assert world.heartbeat(a.member_id, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    run(a, b)
    assert world.phase() == "Stable"
    assert owned(a, b) == ALL
    assert a.generation == generation + 2


def test_members_that_lag_behind_are_known_by_their_own_epoch_after_the_downgrade(
    world: ConsumerWorld,
):
    a, b = classic_group(world, 2)
    first, second = Client(world, "first"), Client(world, "second")
    settle(first, second)
    all_beat(a, b, first, second)
    generation, number = a.generation, a.numbers[0]
    first.leave()
    second.leave()
    assert world.phase() == "PreparingRebalance"
    assert a.commit(number)
    assert world.heartbeat(a.member_id, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.heartbeat(a.member_id, generation + 1) is ErrorCode.ILLEGAL_GENERATION
    run(a, b)
    assert owned(a, b) == ALL


def test_the_last_member_of_the_new_protocol_is_fenced_out(world: ConsumerWorld):
    a, b = classic_group(world, 2)
    new = Client(world, "new")
    new.beat()
    all_beat(a, b, new)
    run(a, b, rounds=20)
    assert world.coordinator.consumer(GROUP) is None
    assert owned(a, b) == ALL
    assert world.phase() == "Stable"


def test_a_group_is_moved_over_one_member_at_a_time_and_back(world: ConsumerWorld):
    a, b = classic_group(world, 2)
    c, d = Client(world, "c"), Client(world, "d")
    c.beat()
    all_beat(a, b, c)
    a.leave()
    d.beat()
    all_beat(b, c, d)
    assert owned(b, c, d) == ALL
    b.leave()
    settle(c, d)
    assert owned(c, d) == ALL
    assert world.group().phase.value == "Stable"
    e = Classic(world)
    all_beat(c, d, e)
    assert owned(c, d, e) == ALL
    assert len(e.numbers) == 1
    c.leave()
    d.leave()
    run(e)
    assert owned(e) == ALL
    assert world.phase() == "Stable"


@pytest.mark.parametrize("policy", list(MigrationPolicy))
def test_the_policy_says_which_ways_are_open(policy: MigrationPolicy):
    world = with_policy(policy)
    (a,) = classic_group(world, 1)
    new = Client(world, "new")
    error = new.beat()
    if policy in (MigrationPolicy.DOWNGRADE, MigrationPolicy.DISABLED):
        assert error is ErrorCode.GROUP_ID_NOT_FOUND
        a.leave()
        assert new.beat() is ErrorCode.NONE
    else:
        assert error is ErrorCode.NONE
    if not a.member_id:
        a = Classic(world)
    all_beat(a, new)
    assert owned(a, new) == ALL
    new.leave()
    is_open = policy in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)
    assert (world.coordinator.classic(GROUP) is not None) is is_open
    run(a)
    assert owned(a) == ALL


def test_a_group_that_only_classic_members_are_left_in_is_downgraded_when_the_policy_allows_it():
    world = with_policy(MigrationPolicy.UPGRADE)
    (a,) = classic_group(world, 1)
    new = Client(world, "new")
    new.beat()
    all_beat(a, new)
    new.leave()
    all_beat(a)
    assert owned(a) == ALL
    assert world.coordinator.classic(GROUP) is None
    world.rules = dataclasses.replace(
        world.rules, group_consumer_migration_policy=MigrationPolicy.BIDIRECTIONAL
    )
    world.crash()
    b = Classic(world)
    run(a, b)
    assert world.phase() == "Stable"
    assert owned(a, b) == ALL


def test_a_group_of_another_protocol_type_is_not_upgraded(world: ConsumerWorld):
    world.join(world.new_member(protocol_type="connect"), protocol_type="connect")
    world.wait(3)
    token = world.sync("client-id1", 1)
    assert world.synced(token).error_code == ErrorCode.NONE
    assert Client(world, "new").beat() is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_assignor_that_tells_its_members_more_is_not_replaced(world: ConsumerWorld):
    protocols = [("stream", subscription(TOPIC))]
    member = world.new_member(protocols=protocols)
    world.join(member, protocols=protocols)
    world.wait(3)
    data = assignment(0)[:-4] + b"\x00\x00\x00\x05tasks"
    world.sync(member, 1, {member: data})
    assert world.phase() == "Stable"
    assert Client(world, "new").beat() is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.heartbeat(member, 1) is ErrorCode.NONE


def test_a_subscription_that_cannot_be_read_is_not_upgraded(world: ConsumerWorld):
    protocols = [("range", b"?")]
    member = world.new_member(protocols=protocols)
    world.join(member, protocols=protocols)
    world.wait(3)
    world.sync(member, 1, {member: assignment(0)})
    assert Client(world, "new").beat() is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_that_is_full_is_not_upgraded_for_a_member_that_would_be_refused():
    world = ConsumerWorld(GroupRules(group_consumer_max_size=1))
    (a,) = classic_group(world, 1)
    count = len(world.facts)
    assert Client(world, "new").beat() is ErrorCode.GROUP_ID_NOT_FOUND
    assert a.step() is ErrorCode.NONE
    assert len(world.facts) == count


def test_a_generation_that_is_not_assigned_yet_is_waited_for(world: ConsumerWorld):
    member = world.new_member()
    new = Client(world, "new")
    world.join(member)
    assert new.beat() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.wait(3)
    assert new.beat() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.sync(member, 1, {member: assignment(*ALL)})
    assert new.beat() is ErrorCode.NONE
    assert world.owners() == dict.fromkeys(ALL, member)


def test_whoever_waits_for_the_next_generation_is_sent_into_the_consumer_group(
    world: ConsumerWorld,
):
    a, b = classic_group(world, 2)
    late = Classic(world)
    late.step()
    late.step()
    late.step()
    assert late.joining is not None
    b.join()
    new = Client(world, "new")
    new.beat()
    assert world.joined(late.joining).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert late.member_id in world.group().durable.members
    all_beat(a, b, late, new)
    assert owned(a, b, late, new) == ALL
    assert all(len(m.numbers) == 1 for m in (a, b, late, new))


def test_what_a_cooperative_member_still_has_to_give_up_is_not_given_on_by_the_upgrade(
    world: ConsumerWorld,
):
    (a,) = classic_group(world, 1, COOPERATIVE)
    b = Classic(world, COOPERATIVE)
    for _ in range(40):
        if not a.to_revoke:
            b.step()
            a.step()
            world.wait(0.5)
    revoking = set(a.to_revoke)
    new = Client(world, "new")
    new.beat()
    b.step()
    new.beat()
    assert revoking
    assert {world.owners()[number] for number in revoking} == {a.member_id}
    all_beat(a, b, new)
    assert owned(a, b, new) == ALL


def test_a_leader_that_gives_a_partition_to_two_members_is_believed_once(world: ConsumerWorld):
    a, b = world.stable([assignment(0, 1), assignment(1, 2)])
    new = Client(world, "new")
    assert new.beat() is ErrorCode.NONE
    owners = world.owners()
    assert owners[0] == a
    assert owners[2] == b


def test_what_members_own_is_known_after_the_downgrade_and_after_the_next_upgrade(
    world: ConsumerWorld,
):
    a, b = classic_group(world, 2, COOPERATIVE)
    new = Client(world, "new")
    new.beat()
    all_beat(a, b, new)
    generation, kept = a.generation, a.numbers
    new.leave()
    assert world.phase() == "PreparingRebalance"
    judged = world.commit(b.member_id, generation, dict.fromkeys(kept, 9))
    assert isinstance(judged, CommitDecision)
    assert judged.errors == [NOT_OWNED] * len(kept)
    again = Client(world, "again")
    assert again.beat() is ErrorCode.NONE
    assert not set(again.numbers) & {*a.numbers, *b.numbers}
    assert {world.owners()[number] for number in kept} == {a.member_id}
    all_beat(a, b, again)
    assert owned(a, b, again) == ALL


@pytest.mark.parametrize("moment", range(6))
@pytest.mark.parametrize("assignor", [EAGER, COOPERATIVE])
@pytest.mark.parametrize("how", ["crash", "crash_onto_a_snapshot"])
def test_a_coordinator_that_takes_over_goes_on(
    world: ConsumerWorld, moment: int, assignor: str, how: str
):
    a, b = classic_group(world, 2, assignor)
    new = Client(world, "new")
    for i in range(3):
        new.beat()
        if i == moment:
            getattr(world, how)()
        a.step()
        b.step()
    all_beat(a, b, new)
    assert owned(a, b, new) == ALL
    new.leave()
    for i in range(3, 6):
        if i == moment:
            getattr(world, how)()
        a.step()
        b.step()
    run(a, b)
    assert owned(a, b) == ALL
    assert world.phase() == "Stable"
    assert any(isinstance(fact, GroupUpgraded) for fact in world.facts)
    assert any(isinstance(fact, GroupDowngraded) for fact in world.facts)


def test_a_downgrade_is_followed_by_a_rebalance_also_after_a_crash(world: ConsumerWorld):
    a, b = classic_group(world, 2)
    new = Client(world, "new")
    new.beat()
    all_beat(a, b, new)
    new.leave()
    world.crash_onto_a_snapshot()
    assert world.phase() == "PreparingRebalance"
    run(a, b)
    assert owned(a, b) == ALL


def test_nothing_grows_with_the_number_of_moves(world: ConsumerWorld):
    a, b = classic_group(world, 2, COOPERATIVE)
    sizes: list[int] = []
    for turn in range(30):
        new = Client(world, f"new-{turn:04}")
        new.beat()
        all_beat(a, b, new)
        sizes.append(len(msgspec.msgpack.encode(stored_groups(world.state))))
        new.leave()
        run(a, b, rounds=3)
    assert owned(a, b) == ALL
    epoch_bytes = 2 * 5 * len(world.state.groups)
    assert max(sizes[5:]) - min(sizes[5:]) <= epoch_bytes
