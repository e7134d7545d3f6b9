"""Who may move a committed offset: the rule of the late ack, and Kafka's own."""

import pytest
from tests.support.groups import GROUP, TOPIC_ID, World, assignment

from holdfast.groups.commits import NOT_OWNED, CommitDecision
from holdfast.groups.topics import Topics, TopicShape
from holdfast.identifiers import PartitionId
from holdfast.protocol.api import ErrorCode

RETENTION_S = 7 * 24 * 3600


@pytest.fixture
def world() -> World:
    return World()


def topics(name: str) -> Topics:
    return Topics({name: TopicShape(TOPIC_ID, 4)})


def errors(judged: ErrorCode | CommitDecision) -> list[ErrorCode]:
    assert isinstance(judged, CommitDecision)
    return judged.errors


def test_a_member_commits_what_is_assigned_to_it_or_to_nobody(world: World):
    a, _ = world.stable([assignment(0), assignment(1)])
    assert errors(world.commit(a, 1, {0: 10, 2: 5})) == [ErrorCode.NONE, ErrorCode.NONE]
    assert (world.committed(0), world.committed(2)) == (10, 5)


def test_a_late_ack_of_a_partition_that_another_has_now_is_refused_alone(world: World):
    a, b = world.stable([assignment(0, 1), assignment()])
    world.commit(a, 1, {1: 10})
    world.stable([assignment(0), assignment(1)], members=[a, b])
    assert errors(world.commit(b, 2, {1: 20})) == [ErrorCode.NONE]
    assert errors(world.commit(a, 2, {0: 7, 1: 15})) == [ErrorCode.NONE, NOT_OWNED]
    assert (world.committed(0), world.committed(1)) == (7, 20)
    assert world.coordinator.refused_commits == {GROUP: 1}


def test_a_transaction_that_names_no_member_commits_what_a_member_owns(world: World):
    """So aiokafka sends the offsets of the very group that its consumer is in."""
    a, _ = world.stable([assignment(0), assignment(1)])
    assert errors(world.commit("", -1, {0: 10, 1: 20}, producer=(7, 0))) == [ErrorCode.NONE] * 2
    assert errors(world.commit(a, 1, {1: 20}, producer=(7, 0))) == [NOT_OWNED]


def test_the_last_commit_of_a_cooperative_revoke_is_accepted(world: World):
    """Generation 2 takes the partition from A and gives it to nobody; generation 3 gives it to B.
    A's commit from its callback comes in between, with generation 2."""
    a, b = world.stable([assignment(0, 1), assignment()])
    world.stable([assignment(0), assignment()], members=[a, b])
    assert errors(world.commit(a, 2, {1: 15})) == [ErrorCode.NONE]
    world.stable([assignment(0), assignment(1)], members=[a, b])
    assert errors(world.commit(a, 3, {1: 16})) == [NOT_OWNED]
    assert world.committed(1) == 15


def test_commits_of_another_generation_are_refused(world: World):
    (a,) = world.stable([assignment(0)])
    assert world.commit(a, 0, {0: 1}) is ErrorCode.ILLEGAL_GENERATION
    assert world.commit("stranger", 1, {0: 1}) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit("", -1, {0: 1}) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.committed(0) is None


def test_an_eager_member_commits_before_it_joins_again(world: World):
    a, _ = world.stable([assignment(0), assignment(1)])
    world.join(world.new_member())
    assert errors(world.commit(a, 1, {0: 3})) == [ErrorCode.NONE]


def test_nobody_commits_while_the_leader_assigns(world: World):
    a = world.new_member()
    world.join(a)
    world.wait(3)
    assert world.commit(a, 1, {0: 3}) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_transaction_commits_also_while_the_leader_assigns(world: World):
    a = world.new_member()
    world.join(a)
    world.wait(3)
    assert errors(world.commit(a, 1, {0: 3}, producer=(7, 0))) == [ErrorCode.NONE]


def test_a_consumer_without_a_group_protocol_commits_to_a_group_that_nobody_is_in(world: World):
    assert errors(world.commit("", -1, {0: 3})) == [ErrorCode.NONE]
    assert world.phase() == "Empty"
    assert world.commit("", 5, {0: 4}) is ErrorCode.ILLEGAL_GENERATION
    (a,) = world.stable([assignment(0)])
    world.leave(a)
    assert errors(world.commit("", -1, {0: 1})) == [ErrorCode.NONE]
    assert world.committed(0) == 1


def test_a_group_with_members_is_not_deleted_and_an_empty_one_is(world: World):
    (a,) = world.stable([assignment(0)])
    world.commit(a, 1, {0: 1})
    assert world.coordinator.delete(GROUP) is ErrorCode.NON_EMPTY_GROUP
    world.leave(a)
    assert world.coordinator.delete(GROUP) is ErrorCode.NONE
    assert world.coordinator.delete(GROUP) is ErrorCode.GROUP_ID_NOT_FOUND
    world.crash()
    assert GROUP not in world.state.groups


def test_offsets_outlive_the_retention_while_a_member_wants_the_topic(world: World):
    (a,) = world.stable([assignment(0)])
    world.commit(a, 1, {0: 1})
    world.keep_alive(a, RETENTION_S + 1)
    list(world.coordinator.expire_offsets())
    assert world.committed(0) == 1


def test_offsets_of_topics_that_no_member_wants_go_after_the_retention(world: World):
    (a,) = world.stable([assignment(0)])
    world.commit(a, 1, {0: 1})
    world.keep_alive(a, RETENTION_S + 1)
    world.topics = topics("another")
    list(world.coordinator.expire_offsets())
    assert world.committed(0) is None
    assert world.phase() == "Stable"


def test_the_offsets_of_an_empty_group_are_kept_from_when_it_became_empty(world: World):
    (a,) = world.stable([assignment(0)])
    world.commit(a, 1, {0: 1})
    world.keep_alive(a, RETENTION_S)
    world.leave(a)
    world.wait(RETENTION_S - 1)
    list(world.coordinator.expire_offsets())
    assert world.committed(0) == 1
    world.wait(1)
    list(world.coordinator.expire_offsets())
    assert GROUP not in world.state.groups
    assert world.phase() == "Dead"


def test_the_offsets_of_a_deleted_topic_are_forgotten(world: World):
    world.commit("", -1, {0: 1, 1: 2})
    world.coordinator.remove_offsets(GROUP, [PartitionId(TOPIC_ID, 0)])
    assert (world.committed(0), world.committed(1)) == (None, 2)
    assert not world.state.groups[GROUP].mentions(PartitionId(TOPIC_ID, 0))
