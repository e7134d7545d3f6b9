"""A member of a consumer group (KIP-848), heartbeat by heartbeat."""

from uuid import UUID

import pytest
from tests.support.driven_members import settings
from tests.support.groups import REBALANCE_MS, TOPIC
from tests.unit.client.heartbeats import TOPIC_ID, answer, refusal

from holdfast.client.membership.consumer_core import ConsumerCore
from holdfast.client.membership.core import TopicsSeen
from holdfast.client.membership.reconciling import ReconcileStep
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)

OTHER_ID = UUID(int=8)
SEEN = TopicsSeen((TOPIC,), {TOPIC: 4}, {TOPIC_ID: TOPIC}, frozenset({TOPIC}))


def asked(core: ConsumerCore, version: int = 1) -> ConsumerGroupHeartbeatRequest:
    request = core.ask(version).request
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    return request


def numbers(step: ReconcileStep | None) -> tuple[list[int], list[int]]:
    assert step is not None
    return sorted(h.partition for h in step.revoke), sorted(h.partition for h in step.assign)


def owned(request: ConsumerGroupHeartbeatRequest) -> list[int] | None:
    rows = request.topic_partitions
    return None if rows is None else sorted(n for row in rows for n in row.partitions)


@pytest.fixture
def core() -> ConsumerCore:
    made = ConsumerCore(settings(rack="here"), member_id="me")
    made.see(SEEN, 0.0)
    return made


@pytest.fixture
def stable(core: ConsumerCore) -> ConsumerCore:
    """Owns 0 and 1 in epoch 5, and has said so."""
    asked(core)
    core.apply(answer(5, 0, 1), 0.0)
    assert numbers(core.held.step(0.0)) == ([], [0, 1])
    assert owned(asked(core)) == [0, 1]
    core.apply(answer(5, is_news=False), 0.0)
    assert core.state == "stable"
    return core


def test_a_join_says_everything_under_an_id_that_the_member_made(core: ConsumerCore):
    request = asked(core)
    assert (request.member_id, request.member_epoch, request.rack_id) == ("me", 0, "here")
    assert request.subscribed_topic_names == [TOPIC]
    assert request.rebalance_timeout_ms == REBALANCE_MS
    assert request.topic_partitions == []
    assert core.state == "joining"


def test_in_version_0_the_coordinator_makes_the_id(core: ConsumerCore):
    assert asked(core, version=0).member_id == ""
    core.apply(answer(5), 0.0)
    assert asked(core, version=0).member_id == "me"


def test_nothing_is_sent_before_topics_are_known():
    core = ConsumerCore(settings(), member_id="me")
    assert core.is_blind
    assert core.due_at(0.0) is None
    core.see(SEEN, 0.0)
    assert core.due_at(0.0) == 0.0


def test_an_assignment_is_acknowledged_at_once_and_then_only_changes_are_said(
    stable: ConsumerCore,
):
    assert stable.due_at(1.0) == 3.0
    request = asked(stable)
    assert owned(request) is None
    assert request.subscribed_topic_names is None
    assert request.rebalance_timeout_ms == -1
    assert (request.rack_id, request.member_epoch) == (None, 5)


def test_partitions_are_revoked_then_taken_then_reported(stable: ConsumerCore):
    asked(stable)
    stable.apply(answer(5, 1, 2), 10.0)
    step = stable.held.step(12.0)
    assert numbers(step) == ([0], [])
    assert step is not None
    assert step.seconds == REBALANCE_MS / 1000 - 2
    assert stable.held.step(12.0) is None
    assert stable.state == "reconciling"
    assert stable.due_at(12.0) == 13.0
    assert owned(asked(stable)) is None
    stable.apply(answer(5, is_news=False), 13.0)
    assert stable.held.names == {TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)}
    stable.given_up(14.0)
    assert numbers(stable.held.step(14.0)) == ([], [2])
    assert stable.due_at(14.0) == 14.0
    assert owned(asked(stable)) == [1, 2]


def test_a_heartbeat_that_was_on_its_way_does_not_count_as_the_acknowledgement(
    stable: ConsumerCore,
):
    asked(stable)
    stable.apply(answer(5, 1), 10.0)
    stable.held.step(10.0)
    asked(stable)
    stable.given_up(11.0)
    stable.apply(answer(5, is_news=False), 11.0)
    assert stable.due_at(11.0) == 11.0
    assert owned(asked(stable)) == [1]


def test_after_an_answer_that_never_came_everything_is_said_again(stable: ConsumerCore):
    asked(stable)
    stable.unanswered()
    assert stable.due_at(1.0) == 1.0
    request = asked(stable)
    assert owned(request) == [0, 1]
    assert request.subscribed_topic_names == [TOPIC]
    assert request.rebalance_timeout_ms == REBALANCE_MS
    assert request.member_epoch == 5


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_has_lost_everything_and_joins_again(stable: ConsumerCore, code: ErrorCode):
    asked(stable)
    applied = stable.apply(refusal(code), 10.0)
    assert applied.lost == {TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)}
    assert applied.refused is None
    assert (stable.state, stable.held.owned) == ("fenced", frozenset())
    request = asked(stable)
    assert (request.member_epoch, owned(request)) == (0, [])
    stable.apply(answer(9, 0), 11.0)
    assert numbers(stable.held.step(11.0)) == ([], [0])


def test_what_is_lost_while_it_is_given_up_is_lost(stable: ConsumerCore):
    asked(stable)
    stable.apply(answer(5, 1), 10.0)
    stable.held.step(10.0)
    asked(stable)
    applied = stable.apply(refusal(ErrorCode.FENCED_MEMBER_EPOCH), 11.0)
    assert applied.lost == {TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)}
    assert stable.held.is_settled


@pytest.mark.parametrize(
    ("code", "is_elsewhere"),
    [
        (ErrorCode.NOT_COORDINATOR, True),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
    ],
)
def test_a_coordinator_that_moves_takes_nothing_away(
    stable: ConsumerCore, code: ErrorCode, is_elsewhere: bool
):
    asked(stable)
    applied = stable.apply(refusal(code), 10.0)
    assert (applied.is_postponed, applied.is_elsewhere) == (True, is_elsewhere)
    assert applied.lost == frozenset()
    assert owned(asked(stable)) == [0, 1]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.FENCED_INSTANCE_ID,
    ],
)
def test_what_no_other_try_would_change_is_refused_with_words(
    stable: ConsumerCore, code: ErrorCode
):
    asked(stable)
    applied = stable.apply(refusal(code), 10.0)
    assert applied.refused == code
    assert "the broker's words" in applied.detail
    assert len(applied.lost) == 2


def test_a_topic_whose_name_is_not_known_yet_is_taken_when_it_is(stable: ConsumerCore):
    asked(stable)
    stable.apply(answer(6, 0, topic_id=OTHER_ID), 10.0)
    assert stable.is_blind
    assert numbers(stable.held.step(10.0)) == ([0, 1], [])
    stable.given_up(10.0)
    assert stable.held.step(10.0) is None
    assert owned(asked(stable)) == []
    stable.apply(answer(6, 0, topic_id=OTHER_ID), 10.0)
    assert stable.due_at(10.1) == 13.0
    stable.see(TopicsSeen((TOPIC,), {TOPIC: 4}, {OTHER_ID: TOPIC}), 11.0)
    assert numbers(stable.held.step(11.0)) == ([], [0])
    assert stable.due_at(11.0) == 11.0
    (row,) = asked(stable).topic_partitions or []
    assert (row.topic_id, row.partitions) == (OTHER_ID, [0])


def test_another_subscription_is_said_at_once_and_alone(stable: ConsumerCore):
    stable.see(TopicsSeen((TOPIC, "more"), {}, {}), 1.0)
    assert stable.due_at(1.0) == 1.0
    request = asked(stable)
    assert request.subscribed_topic_names == [TOPIC, "more"]
    assert owned(request) is None


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("one", -2)])
def test_who_stops_gives_up_everything_and_says_goodbye(instance_id: str | None, epoch: int):
    core = ConsumerCore(settings(instance_id=instance_id), member_id="me")
    assert core.farewell() is None
    core.see(SEEN, 0.0)
    asked(core)
    core.apply(answer(5, 0, 1), 0.0)
    core.held.step(0.0)
    core.stop(1.0)
    assert numbers(core.held.step(1.0)) == ([0, 1], [])
    asked(core)
    core.apply(answer(6, 0, 1, 2), 2.0)
    core.given_up(3.0)
    assert core.held.step(3.0) is None
    goodbye = core.farewell()
    assert goodbye is not None
    request = goodbye.request
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    assert (request.member_id, request.member_epoch) == ("me", epoch)
    assert request.instance_id == instance_id
