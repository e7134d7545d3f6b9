"""Classic members of a consumer group: what they ask and are told, and when they are late."""

import pytest
from tests.support.classic_members import ALL, Classic, all_beat, classic_group, owned, run
from tests.support.consumer_groups import Client, ConsumerWorld
from tests.support.groups import GROUP, REBALANCE_MS, SESSION_MS, TOPIC, assignment, subscription

from holdfast.groups.commits import NOT_OWNED, CommitDecision
from holdfast.protocol.api import ErrorCode


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld()


def test_a_classic_member_that_is_silent_is_fenced_out_after_its_own_session(
    world: ConsumerWorld,
):
    a, b = classic_group(world, 2)
    new = Client(world, "new")
    new.beat()
    all_beat(a, b, new)
    for _ in range(4):
        world.wait(SESSION_MS / 1000 / 3)
        a.step()
        new.beat()
    all_beat(a, new)
    assert owned(a, new) == ALL
    assert b.step() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("does_join", [False, True])
def test_a_classic_member_that_does_not_join_or_sync_in_time_is_fenced_out(
    world: ConsumerWorld, does_join: bool
):
    (a,) = classic_group(world, 1)
    new = Client(world, "new")
    new.beat()
    assert world.heartbeat(a.member_id, a.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    if does_join:
        answer = world.joined(world.join(a.member_id))
        a.generation = answer.generation_id
    for _ in range(REBALANCE_MS // SESSION_MS * 2):
        world.wait(SESSION_MS / 1000 / 2)
        world.heartbeat(a.member_id, a.generation)
        new.beat()
    world.wait(1)
    assert a.member_id not in world.group().durable.members
    new.beat()
    assert new.numbers == ALL


def test_a_late_ack_of_a_classic_member_is_refused_for_what_another_owns(world: ConsumerWorld):
    a, b = classic_group(world, 2)
    new = Client(world, "new")
    new.beat()
    all_beat(a, b, new)
    number = new.numbers[0]
    judged = world.commit(a.member_id, a.generation, {number: 7, a.numbers[0]: 8})
    assert isinstance(judged, CommitDecision)
    assert judged.errors == [NOT_OWNED, ErrorCode.NONE]
    assert world.commit(a.member_id, a.generation - 1, {number: 7}) is ErrorCode.ILLEGAL_GENERATION
    assert world.coordinator.refused_commits == {GROUP: 1}


def test_a_static_member_comes_back_under_the_new_protocol_and_has_its_place(
    world: ConsumerWorld,
):
    a, b = Classic(world, instance="x"), Classic(world)
    run(a, b)
    old, numbers = a.member_id, a.numbers
    new = Client(world, "new", instance="x")
    assert new.beat() is ErrorCode.NONE
    assert new.numbers == numbers
    assert a.step() is ErrorCode.FENCED_INSTANCE_ID
    assert old not in world.group().durable.members
    all_beat(b, new)
    assert owned(b, new) == ALL


def test_a_static_member_comes_back_as_a_classic_one_and_the_group_is_classic_again(
    world: ConsumerWorld,
):
    a = Classic(world)
    run(a)
    new = Client(world, "new", instance="x")
    new.beat()
    all_beat(a, new)
    new.leave(-2)
    assert world.coordinator.consumer(GROUP) is not None
    b = Classic(world, instance="x")
    run(a, b)
    assert world.phase() == "Stable"
    assert owned(a, b) == ALL


def test_a_regular_expression_counts_for_its_member_alone(world: ConsumerWorld):
    (a,) = classic_group(world, 1)
    world.have({TOPIC: 4, "other": 2})
    new = Client(world, "new", topics=[], regex="o.*")
    new.beat()
    all_beat(a, new)
    assert {p.topic_id for p in new.owned} >= {world.topics.by_name["other"].topic_id}
    assert sum(p.topic_id == world.topics.by_name["other"].topic_id for p in new.owned) == 2
    assert len(a.numbers) + len(new.owned) == 6


def test_classic_members_hear_of_new_partitions_without_a_leader(world: ConsumerWorld):
    a, b = classic_group(world, 2)
    new = Client(world, "new")
    new.beat()
    all_beat(a, b, new)
    world.have({TOPIC: 6})
    assert a.step() is ErrorCode.REBALANCE_IN_PROGRESS
    all_beat(a, b, new)
    assert owned(a, b, new) == [0, 1, 2, 3, 4, 5]


def test_what_a_leader_says_is_not_asked_for(world: ConsumerWorld):
    a, b = classic_group(world, 2)
    new = Client(world, "new")
    new.beat()
    all_beat(a, b, new)
    answer = world.joined(world.join(a.member_id))
    assert (answer.leader, answer.members) == ("", [])
    given = {a.member_id: assignment(*ALL), b.member_id: assignment()}
    synced = world.synced(world.sync(a.member_id, answer.generation_id, given))
    assert synced.error_code == ErrorCode.NONE
    assert owned(a, b, new) == ALL


def test_classic_requests_are_for_classic_members_and_heartbeats_for_the_others(
    world: ConsumerWorld,
):
    (a,) = classic_group(world, 1)
    new = Client(world, "new")
    new.beat()
    all_beat(a, new)
    assert world.heartbeat("new", new.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.leave("new") is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.joined(world.join("new")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    other = Client(world, a.member_id)
    other.epoch = a.generation
    assert other.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    unreadable = world.joined(world.join(protocols=[("range", b"?")]))
    assert unreadable.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    stranger = world.joined(world.join(protocols=[("other", subscription(TOPIC))]))
    assert stranger.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    connect = world.joined(world.join(protocol_type="connect"))
    assert connect.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_group_never_asks_for_more_than_its_members_do_in_time(world: ConsumerWorld):
    (a,) = classic_group(world, 1)
    new = Client(world, "new")
    new.beat()
    all_beat(a, new)
    for _ in range(3 * REBALANCE_MS // SESSION_MS):
        world.wait(SESSION_MS / 1000 - 1)
        assert a.step() is ErrorCode.NONE
        new.beat()
    assert owned(a, new) == ALL
