"""The new consumer protocol (KIP-848), by its pure coordinator."""

from collections.abc import Callable

import pytest
from tests.support.consumer_groups import REBALANCE_S, SESSION_S, Client, ConsumerWorld, settle
from tests.support.groups import GROUP, TOPIC, assignment

from holdfast.groups.commits import NOT_OWNED, CommitDecision
from holdfast.groups.rules import GroupRules
from holdfast.groups.topics import Topics
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld()


def errors(judged: ErrorCode | CommitDecision) -> list[ErrorCode]:
    assert isinstance(judged, CommitDecision)
    return judged.errors


def test_the_first_member_owns_everything_in_its_first_answer(world: ConsumerWorld):
    a = Client(world, "a")
    assert a.beat() is ErrorCode.NONE
    assert (a.epoch, a.numbers) == (1, [0, 1, 2, 3])
    assert world.group().phase.value == "Stable"
    assert a.quiet_beat().assignment is None


def test_a_second_member_gets_what_the_first_has_said_to_have_given_up(world: ConsumerWorld):
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    assert (b.epoch, b.numbers) == (2, [])
    told = a.quiet_beat()
    assert told.member_epoch == 1
    assert told.assignment is not None
    assert a.quiet_beat().assignment is None
    b.beat()
    assert b.numbers == []
    assert world.group().phase.value == "Reconciling"
    a.beat()  # it is told once more, and follows
    assert (a.epoch, len(a.numbers)) == (1, 2)
    a.beat()
    assert a.epoch == 2
    b.beat()
    assert sorted(a.numbers + b.numbers) == [0, 1, 2, 3]
    assert world.group().phase.value == "Stable"


def test_what_a_leaving_member_had_is_free_at_once(world: ConsumerWorld):
    a, b = Client(world, "a"), Client(world, "b")
    settle(a, b)
    assert b.leave() is ErrorCode.NONE
    assert world.group().phase.value == "Assigning"
    a.beat()
    assert (a.epoch, a.numbers) == (3, [0, 1, 2, 3])
    assert b.leave() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_fenced_out_when_its_session_ends(world: ConsumerWorld):
    a, b = Client(world, "a"), Client(world, "b")
    settle(a, b)
    for _ in range(9):
        world.wait(SESSION_S / 9)
        a.beat()
    a.beat()
    assert a.numbers == [0, 1, 2, 3]
    assert b.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.owned == frozenset()


def test_a_member_that_gives_nothing_up_in_time_is_fenced_out(world: ConsumerWorld):
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    for _ in range(REBALANCE_S // 10):
        assert a.quiet_beat().error_code == ErrorCode.NONE
        b.beat()
        world.wait(10)
    assert a.quiet_beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    b.beat()
    assert b.numbers == [0, 1, 2, 3]


def test_time_to_give_up_begins_anew_with_a_new_coordinator(world: ConsumerWorld):
    a, b = Client(world, "a"), Client(world, "b")
    a.beat(), b.beat(), a.quiet_beat()
    world.wait(30)
    world.crash()
    for _ in range(5):
        world.wait(10)
        a.quiet_beat(), b.beat()
    settle(a, b)
    assert len(a.numbers) == len(b.numbers) == 2


def test_epochs_that_are_not_the_members_are_fenced(world: ConsumerWorld):
    a = Client(world, "a")
    a.beat()
    for epoch in (a.epoch + 1, 7):
        request = a.request()
        request.member_epoch = epoch
        assert world.beat(request).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert Client(world, "x").leave() is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_answer_that_was_lost_is_given_again(world: ConsumerWorld):
    a, b = Client(world, "a"), Client(world, "b")
    settle(a, b)
    b.leave()
    lost = a.lost()
    assert lost.member_epoch == a.epoch + 1
    assert a.beat() is ErrorCode.NONE
    assert (a.epoch, a.numbers) == (lost.member_epoch, [0, 1, 2, 3])


def test_the_previous_epoch_with_partitions_that_are_not_its_own_is_fenced(world: ConsumerWorld):
    a, b = Client(world, "a"), Client(world, "b")
    settle(a, b)
    b.leave()
    a.lost()
    quiet = a.quiet_beat()
    assert quiet.error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_lost_answer_to_a_join_is_given_again(world: ConsumerWorld):
    a = Client(world, "a")
    a.lost()
    a.beat()
    assert (a.epoch, a.numbers) == (1, [0, 1, 2, 3])


def test_old_clients_are_given_their_member_id(world: ConsumerWorld):
    request = Client(world, "").request()
    assert world.beat(request, version=0).member_id == "id1"
    assert world.beat(request, version=1).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("group_id", "", ErrorCode.INVALID_REQUEST),
        ("instance_id", "", ErrorCode.INVALID_REQUEST),
        ("rack_id", "", ErrorCode.INVALID_REQUEST),
        ("rebalance_timeout_ms", -1, ErrorCode.INVALID_REQUEST),
        ("topic_partitions", None, ErrorCode.INVALID_REQUEST),
        ("subscribed_topic_names", None, ErrorCode.INVALID_REQUEST),
        ("member_epoch", -3, ErrorCode.INVALID_REQUEST),
        ("member_epoch", -2, ErrorCode.INVALID_REQUEST),
        ("member_epoch", 1, ErrorCode.GROUP_ID_NOT_FOUND),
        ("server_assignor", "sticky", ErrorCode.UNSUPPORTED_ASSIGNOR),
        ("subscribed_topic_regex", "(", ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_bad_requests_are_refused_and_leave_nothing_behind(
    world: ConsumerWorld, field: str, value: object, error: ErrorCode
):
    request = Client(world, "a").request()
    setattr(request, field, value)
    assert world.beat(request).error_code == error
    assert world.facts == []
    assert world.coordinator.consumer(GROUP) is None


def test_a_full_group_takes_nobody_more():
    world = ConsumerWorld(GroupRules(group_consumer_max_size=1))
    a = Client(world, "a")
    assert a.beat() is ErrorCode.NONE
    assert Client(world, "b").beat() is ErrorCode.GROUP_MAX_SIZE_REACHED
    a.abandon()
    assert a.beat() is ErrorCode.NONE


def test_new_partitions_and_topics_reach_members(world: ConsumerWorld):
    a = Client(world, "a", topics=[TOPIC, "later"])
    a.beat()
    world.have({TOPIC: 6})
    a.beat()
    assert (a.epoch, len(a.owned)) == (2, 6)
    world.have({TOPIC: 6, "later": 2, "other": 9})
    a.beat()
    assert (a.epoch, len(a.owned)) == (3, 8)
    world.have({TOPIC: 6})
    settle(a)
    assert len(a.owned) == 6
    epoch = a.epoch
    world.have({TOPIC: 6, "other": 1})
    a.beat()
    assert a.epoch == epoch


def test_topics_that_changed_while_nobody_coordinated_are_noticed(world: ConsumerWorld):
    a = Client(world, "a")
    a.beat()
    world.have({TOPIC: 5})
    world.crash()
    a.beat()
    assert a.numbers == [0, 1, 2, 3, 4]


def test_a_subscription_by_regular_expression_follows_the_topics(world: ConsumerWorld):
    a = Client(world, "a", topics=[], regex="log-.*")
    a.beat()
    assert a.owned == frozenset()
    world.have({"log-1": 1, "log-2": 2, TOPIC: 4})
    a.beat()
    assert len(a.owned) == 3
    a.regex = ""
    settle(a)
    assert a.owned == frozenset()


def test_a_changed_subscription_moves_partitions(world: ConsumerWorld):
    world.have({TOPIC: 2, "other": 3})
    a, b = Client(world, "a"), Client(world, "b", topics=[TOPIC, "other"])
    settle(a, b)
    assert (len(a.owned), len(b.owned)) == (2, 3)
    b.topics = [TOPIC]
    settle(a, b)
    assert (len(a.owned), len(b.owned)) == (1, 1)


def test_the_assignor_that_most_members_ask_for_is_taken(world: ConsumerWorld):
    world.have({TOPIC: 3, "other": 3})
    topics = [TOPIC, "other"]
    a, b = (Client(world, i, topics=topics, assignor="range") for i in "ab")
    settle(a, b)
    assert (len(a.owned), len(b.owned)) == (4, 2)
    assert world.group().durable.assignor == "range"
    c, d, e = (Client(world, i, topics=topics, assignor="uniform") for i in "cde")
    settle(a, b, c, d, e)
    assert world.group().durable.assignor == "uniform"
    assert max(len(m.owned) for m in (a, b, c, d, e)) == 2


def test_a_static_member_finds_its_partitions_when_it_comes_back(world: ConsumerWorld):
    a, b = Client(world, "a", instance="one"), Client(world, "b", instance="two")
    settle(a, b)
    before = a.numbers
    assert a.leave(-2) is ErrorCode.NONE
    epoch = world.group().durable.group_epoch
    settle(b)
    assert len(b.numbers) == 2
    again = Client(world, "a2", instance="one")
    assert again.beat() is ErrorCode.NONE
    assert (again.numbers, again.epoch) == (before, epoch)
    assert a.beat() is ErrorCode.UNRELEASED_INSTANCE_ID
    a.epoch = 1
    assert a.beat() is ErrorCode.FENCED_INSTANCE_ID
    assert world.group().phase.value == "Stable"


def test_a_static_member_that_stays_away_loses_its_place(world: ConsumerWorld):
    a, b = Client(world, "a", instance="one"), Client(world, "b")
    settle(a, b)
    a.leave(-2)
    for _ in range(10):
        world.wait(SESSION_S / 9)
        b.beat()
    assert b.numbers == [0, 1, 2, 3]


def test_an_instance_id_that_is_in_use_is_not_given_away(world: ConsumerWorld):
    Client(world, "a", instance="one").beat()
    assert Client(world, "b", instance="one").beat() is ErrorCode.UNRELEASED_INSTANCE_ID
    stranger = Client(world, "a", instance="two")
    stranger.epoch = 1
    assert stranger.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_commits_go_by_the_member_epoch(world: ConsumerWorld):
    a = Client(world, "a")
    a.beat()
    assert errors(world.commit("a", 1, {0: 5})) == [ErrorCode.NONE]
    assert errors(world.commit("a", 0, {0: 6})) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert world.commit("a", 2, {0: 6}) is ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit("b", 1, {0: 6}) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit("", -1, {0: 6}) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.committed(0) == 5
    a.leave()
    assert errors(world.commit("", -1, {0: 6})) == [ErrorCode.NONE]
    assert world.coordinator.classic(GROUP) is None


@pytest.mark.parametrize("crash", [ConsumerWorld.crash, ConsumerWorld.crash_onto_a_snapshot])
def test_a_commit_with_an_older_epoch_counts_for_what_was_owned_ever_since(
    world: ConsumerWorld, crash: Callable[[ConsumerWorld], None]
):
    a, b = Client(world, "a"), Client(world, "b")
    for client in (a, b, a, a, b):
        client.beat()
    kept, lost = a.numbers[0], b.numbers[0]
    b.leave()
    a.beat()
    a.beat()
    assert a.numbers == [0, 1, 2, 3]
    crash(world)
    stale = ErrorCode.STALE_MEMBER_EPOCH
    for epoch in range(1, a.epoch):
        assert errors(world.commit("a", epoch, {kept: 5, lost: 5})) == [ErrorCode.NONE, stale]
    assert errors(world.commit("a", a.epoch, {kept: 5, lost: 6})) == [ErrorCode.NONE] * 2
    assert (world.committed(kept), world.committed(lost)) == (5, 6)


def test_the_last_commit_of_a_revoke_is_accepted_and_a_late_ack_is_not(world: ConsumerWorld):
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()  # two of its partitions are to be given up
    (lost, *_) = sorted({0, 1, 2, 3} - set(a.numbers))
    assert errors(world.commit("b", b.epoch, {lost: 99})) == [NOT_OWNED]
    assert errors(world.commit("a", a.epoch, {lost: 7})) == [ErrorCode.NONE]
    a.beat()
    assert errors(world.commit("a", a.epoch, {lost: 8})) == [ErrorCode.NONE]  # nobody's
    b.beat()
    kept = a.numbers[0]
    judged = world.commit("a", a.epoch, {lost: 9, kept: 3})
    assert errors(judged) == [NOT_OWNED, ErrorCode.NONE]
    assert (world.committed(lost), world.committed(kept)) == (8, 3)
    assert world.coordinator.refused_commits == {GROUP: 2}


def test_committed_offsets_are_told_to_members_and_to_who_does_not_say_who_it_is(
    world: ConsumerWorld,
):
    Client(world, "a").beat()
    problem = world.coordinator.offset_fetch_problem
    assert problem(GROUP, None, -1) is None
    assert problem(GROUP, "a", 1) is None
    assert problem(GROUP, "a", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert problem(GROUP, "b", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_may_change_its_protocol_and_keeps_its_offsets(world: ConsumerWorld):
    (member,) = world.stable([assignment(0)])
    world.commit(member, 1, {0: 5})
    world.leave(member)
    a = Client(world, "a")
    assert a.beat() is ErrorCode.NONE
    assert (a.numbers, world.committed(0)) == ([0, 1, 2, 3], 5)
    world.crash_onto_a_snapshot()
    assert a.beat() is ErrorCode.NONE
    a.leave()
    world.crash()
    assert world.coordinator.consumer(GROUP) is not None
    world.stable([assignment(0)])
    assert world.coordinator.consumer(GROUP) is None
    assert world.committed(0) == 5
    world.crash()
    assert world.phase() == "Stable"


def test_a_consumer_group_is_deleted_when_it_is_empty(world: ConsumerWorld):
    a = Client(world, "a")
    a.beat()
    assert world.coordinator.delete(GROUP) is ErrorCode.NON_EMPTY_GROUP
    assert world.coordinator.subscribed_topics(GROUP) == {TOPIC}
    assert world.coordinator.offset_delete_problem(GROUP) is None
    a.leave()
    assert world.coordinator.delete(GROUP) is ErrorCode.NONE
    assert GROUP not in world.state.groups
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=3)
    assert world.beat(request).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_heartbeats_that_change_nothing_leave_no_facts(world: ConsumerWorld):
    a, b = Client(world, "a"), Client(world, "b")
    settle(a, b)
    count = len(world.facts)
    for _ in range(20):
        world.topics = Topics(dict(world.topics.by_name))
        settle(a, b)
        a.quiet_beat()
    assert len(world.facts) == count


def test_a_member_must_commit_in_a_version_that_knows_member_epochs(world: ConsumerWorld):
    a = Client(world, "a")
    a.beat()
    assert world.commit("a", 1, {0: 1}, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert world.commit("b", 1, {0: 1}, version=8) is ErrorCode.UNKNOWN_MEMBER_ID
    assert errors(world.commit("a", 1, {0: 1}, version=9)) == [ErrorCode.NONE]
    assert world.committed(0) == 1
