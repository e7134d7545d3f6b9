"""The classic group protocol, by its pure coordinator."""

import pytest
from tests.support.groups import (
    GROUP,
    INITIAL_DELAY_S,
    REBALANCE_MS,
    SESSION_MS,
    World,
    assignment,
)

from holdfast.groups.rules import GroupRules
from holdfast.protocol.api import ErrorCode


@pytest.fixture
def world() -> World:
    return World()


def test_a_new_dynamic_member_is_given_an_id_before_it_joins(world: World):
    member = world.new_member()
    assert member.startswith("client-")
    token = world.join(member)
    assert token not in world.answers
    world.wait(INITIAL_DELAY_S)
    answer = world.joined(token)
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, member)
    assert [m.member_id for m in answer.members] == [member]


def test_old_clients_join_at_once_with_the_id_that_the_answer_tells(world: World):
    token = world.join(version=3)
    world.wait(INITIAL_DELAY_S)
    assert world.joined(token).member_id
    assert world.joined(token).error_code == 0


def test_a_first_generation_waits_for_more_members(world: World):
    first = world.join(world.new_member())
    world.wait(INITIAL_DELAY_S - 1)
    second = world.join(world.new_member())
    world.wait(INITIAL_DELAY_S - 1)
    assert first not in world.answers
    world.wait(1)
    assert world.joined(first).generation_id == world.joined(second).generation_id == 1
    assert len(world.joined(first).members) == 2
    assert world.joined(second).members == []


def test_assignments_reach_all_members_when_the_leader_syncs(world: World):
    a, b = world.new_member(), world.new_member()
    world.join(a), world.join(b)
    world.wait(INITIAL_DELAY_S)
    follower = world.sync(b, 1)
    assert follower not in world.answers
    leader = world.sync(a, 1, {a: b"for a", b: b"for b"})
    assert world.synced(leader).assignment == b"for a"
    assert world.synced(follower).assignment == b"for b"
    assert world.phase() == "Stable"


def test_a_third_member_makes_the_others_join_again(world: World):
    a, b = world.stable([assignment(0), assignment(1)])
    c = world.new_member()
    waiting = world.join(c)
    assert world.heartbeat(a, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    world.join(a)
    assert waiting not in world.answers
    world.join(b)
    assert world.joined(waiting).generation_id == 2
    assert world.heartbeat(a, 2) is ErrorCode.NONE


def test_who_does_not_join_again_in_time_is_left_out(world: World):
    a, b = world.stable([assignment(0), assignment(1)])
    waiting = world.join(a)
    for _ in range(REBALANCE_MS // 5_000):
        world.wait(5)
        world.heartbeat(b, 1)
    assert [m.member_id for m in world.joined(waiting).members] == [a]
    assert world.heartbeat(b, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_loses_its_session_and_the_others_are_told(world: World):
    a, b = world.stable([assignment(0), assignment(1)])
    for _ in range(4):
        world.wait(SESSION_MS / 4000)
        assert world.heartbeat(a, 1) in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    world.wait(1)
    assert world.heartbeat(b, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat(a, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.joined(world.join(a)).generation_id == 2


def test_a_member_that_leaves_frees_its_partitions_at_once(world: World):
    a, b = world.stable([assignment(0), assignment(1)])
    assert world.leave(b) is ErrorCode.NONE
    assert world.leave(b) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.joined(world.join(a)).generation_id == 2


def test_the_last_member_leaves_an_empty_group_with_a_newer_generation(world: World):
    (a,) = world.stable([assignment(0)])
    world.leave(a)
    assert (world.phase(), world.generation()) == ("Empty", 2)


def test_a_lost_answer_to_join_is_given_again_while_the_leader_assigns(world: World):
    a, b = world.new_member(), world.new_member()
    world.join(a), world.join(b)
    world.wait(INITIAL_DELAY_S)
    assert world.joined(world.join(b)).generation_id == 1
    assert world.generation() == 1


def test_a_leader_that_joins_again_starts_a_rebalance_and_a_follower_does_not(world: World):
    a, b = world.stable([assignment(0), assignment(1)])
    assert world.joined(world.join(b)).generation_id == 1
    assert world.phase() == "Stable"
    world.join(a)
    assert world.phase() == "PreparingRebalance"


def test_a_changed_subscription_starts_a_rebalance(world: World):
    _, b = world.stable([assignment(0), assignment(1)])
    world.join(b, protocols=[("range", b"another")])
    assert world.phase() == "PreparingRebalance"


def test_a_leader_that_never_syncs_is_left_out(world: World):
    a, b = world.new_member(), world.new_member()
    world.join(a), world.join(b)
    world.wait(INITIAL_DELAY_S)
    follower = world.sync(b, 1)
    for _ in range(REBALANCE_MS // 5_000):
        world.wait(5)
        world.heartbeat(a, 1)
    assert world.synced(follower).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.heartbeat(a, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_waited_long_for_its_assignment_has_a_whole_session_when_it_comes(world: World):
    a, b = world.new_member(), world.new_member()
    world.join(a), world.join(b)
    world.wait(INITIAL_DELAY_S)
    world.sync(b, 1)
    for _ in range(4):
        world.wait(SESSION_MS / 1000 / 2)
        world.heartbeat(a, 1)
    world.sync(a, 1, {a: b"for a", b: b"for b"})
    world.wait(SESSION_MS / 1000 - 1)
    assert world.heartbeat(b, 1) == ErrorCode.NONE


def test_who_waited_for_a_leader_that_died_has_time_to_join_the_next_generation(world: World):
    a, b, c = (world.new_member() for _ in range(3))
    world.join(a), world.join(b), world.join(c)
    world.wait(INITIAL_DELAY_S)
    waiting = world.sync(b, 1), world.sync(c, 1)
    world.wait(SESSION_MS / 1000)
    for token in waiting:
        assert world.synced(token).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    first = world.join(b)
    world.wait(SESSION_MS / 1000 - 1)
    assert first not in world.answers
    second = world.join(c)
    assert world.joined(first).generation_id == world.joined(second).generation_id == 2


def test_the_protocol_that_all_can_do_and_most_prefer_is_chosen(world: World):
    a, b = world.new_member(), world.new_member()
    world.join(a, protocols=[("sticky", b""), ("range", b"")])
    token = world.join(b, protocols=[("roundrobin", b""), ("range", b"")])
    world.wait(INITIAL_DELAY_S)
    assert world.joined(token).protocol_name == "range"


def test_a_member_that_shares_no_protocol_is_refused(world: World):
    world.stable([assignment(0)])
    c = world.new_member()
    refused = world.joined(world.join(c, protocols=[("own", b"")]))
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other_type = world.joined(world.join(c, protocol_type="connect"))
    assert other_type.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_bad_requests_are_refused_by_kafkas_names(world: World):
    too_short = world.joined(world.join(session_ms=5_999))
    assert too_short.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert world.joined(world.join("stranger")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.synced(world.sync("stranger", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    (a,) = world.stable([assignment(0)])
    assert world.synced(world.sync(a, 7)).error_code == ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat(a, 0) is ErrorCode.ILLEGAL_GENERATION


def test_a_full_group_takes_nobody_more():
    world = World(GroupRules(group_max_size=1))
    world.stable([assignment(0)])
    refused = world.joined(world.join(world.new_member()))
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_static_member_that_comes_back_keeps_its_partitions_without_a_rebalance(world: World):
    first = world.join(instance="one")
    world.wait(INITIAL_DELAY_S)
    old = world.joined(first).member_id
    world.sync(old, 1, {old: assignment(0)})
    back = world.joined(world.join(instance="one"))
    assert (back.error_code, back.generation_id, back.skip_assignment) == (0, 1, True)
    assert back.member_id != old
    assert world.heartbeat(old, 1, "one") is ErrorCode.FENCED_INSTANCE_ID
    assert world.synced(world.sync(back.member_id, 1)).assignment == assignment(0)
    assert world.commit(back.member_id, 1, {0: 5})


def test_a_static_leader_of_an_old_client_does_not_take_itself_for_the_leader(world: World):
    first = world.join(instance="one")
    world.wait(INITIAL_DELAY_S)
    old = world.joined(first).member_id
    world.sync(old, 1, {old: assignment(0)})
    back = world.joined(world.join(instance="one", version=8))
    assert back.leader == old != back.member_id


def test_an_administrator_sends_a_static_member_away_by_its_instance_id(world: World):
    token = world.join(instance="one")
    world.wait(INITIAL_DELAY_S)
    member = world.joined(token).member_id
    world.sync(member, 1, {member: assignment(0)})
    assert world.leave("", "one") is ErrorCode.NONE
    assert world.phase() == "Empty"


def test_a_static_member_outlives_a_rebalance_that_it_missed(world: World):
    token = world.join(instance="one", session_ms=120_000)
    world.wait(INITIAL_DELAY_S)
    static = world.joined(token).member_id
    world.sync(static, 1, {static: assignment(0)})
    joining = world.join(world.new_member())
    world.wait(REBALANCE_MS / 1000)
    members = {m.member_id for m in world.joined(joining).members}
    assert static in members
    assert world.joined(joining).generation_id == 2


@pytest.mark.parametrize("how", ["crash", "crash_onto_a_snapshot"])
def test_a_new_coordinator_goes_on_with_the_same_generation(world: World, how: str):
    a, b = world.stable([assignment(0), assignment(1)])
    world.commit(b, 1, {1: 17})
    getattr(world, how)()
    assert world.phase() == "Stable"
    assert world.heartbeat(a, 1) is ErrorCode.NONE
    assert world.synced(world.sync(b, 1)).assignment == assignment(1)
    assert world.committed(1) == 17


def test_a_new_coordinator_gives_sessions_their_whole_time(world: World):
    a, _ = world.stable([assignment(0), assignment(1)])
    world.wait(SESSION_MS / 1000 - 1)
    world.crash()
    world.wait(SESSION_MS / 1000 - 1)
    assert world.heartbeat(a, 1) is ErrorCode.NONE
    world.wait(2)
    assert world.phase() == "PreparingRebalance"


def test_a_generation_that_was_formed_and_not_assigned_survives_its_coordinator(world: World):
    a, b = world.new_member(), world.new_member()
    world.join(a), world.join(b)
    world.wait(INITIAL_DELAY_S)
    world.crash()
    leader = world.sync(a, 1, {a: assignment(0), b: assignment(1)})
    assert world.synced(leader).assignment == assignment(0)
    assert world.synced(world.sync(b, 1)).assignment == assignment(1)


def test_whoever_comes_and_goes_leaves_nothing_behind(world: World):
    for _ in range(50):
        member = world.new_member()
        world.join(member)
        world.leave(member)
    assert world.facts == []
    assert GROUP not in world.state.groups
    assert world.coordinator.classic_groups() == []
    world.new_member()
    world.joined(world.join(protocols=[], version=3))
    assert len(world.coordinator.classic_groups()) == 1
    world.wait(SESSION_MS / 1000)
    assert world.coordinator.classic_groups() == []
    (a,) = world.stable([assignment(0)])
    for _ in range(200):
        world.stable([assignment(0)], members=[a])
    generation = world.state.groups[GROUP].generation
    assert generation is not None
    assert len(generation.members) == 1
    assert len(world.state.groups[GROUP].owners) == 1
