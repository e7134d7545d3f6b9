"""A member of a classic group, request by request; and what it says to other clients' members."""

import struct

import pytest
from tests.support.driven_members import settings
from tests.support.groups import GROUP, TOPIC

from holdfast.client.membership.classic_core import ClassicCore
from holdfast.client.membership.core import TopicsSeen
from holdfast.client.membership.sticky import COOPERATIVE_STICKY, StickyMember, read_claim
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import (
    NO_GENERATION,
    Subscription,
    TopicPartition,
    assigned_partitions,
    assignment_bytes,
    read_subscription,
    sticky_generation,
    subscription_bytes,
)
from holdfast.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from holdfast.protocol.messages.leave_group import LeaveGroupRequest
from holdfast.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def seen(**counts: int) -> TopicsSeen:
    return TopicsSeen((TOPIC,), counts, {}, frozenset({TOPIC, "more"}))


def partition(number: int, topic: str = TOPIC) -> TopicPartition:
    return TopicPartition(topic, number)


def joined(generation: int, members: dict[str, bytes] | None = None) -> JoinGroupResponse:
    rows = [JoinGroupResponseMember(member_id=i, metadata=m) for i, m in (members or {}).items()]
    return JoinGroupResponse(
        generation_id=generation,
        protocol_name=COOPERATIVE_STICKY,
        leader="me" if members else "another",
        member_id="me",
        members=rows,
    )


def synced(*numbers: int) -> SyncGroupResponse:
    return SyncGroupResponse(assignment=assignment_bytes([partition(n) for n in numbers], 1))


def join_of(core: ClassicCore) -> tuple[JoinGroupRequest, Subscription]:
    assert core.due_at(0.0) == 0.0
    request = core.ask(9).request
    assert isinstance(request, JoinGroupRequest)
    subscription = read_subscription(request.protocols[0].metadata)
    assert subscription is not None
    return request, subscription


def rebalanced(core: ClassicCore, generation: int, *numbers: int, now: float = 0.0) -> None:
    join_of(core)
    core.apply(joined(generation), now)
    assert isinstance(core.ask(5).request, SyncGroupRequest)
    core.apply(synced(*numbers), now)


@pytest.fixture
def core() -> ClassicCore:
    made = ClassicCore(settings("classic", rack="here"))
    made.see(seen(orders=4), 0.0)
    return made


@pytest.fixture
def stable(core: ClassicCore) -> ClassicCore:
    """Owns 0 and 1 in generation 3."""
    rebalanced(core, 3, 0, 1)
    core.held.step(0.0)
    assert core.state == "stable"
    return core


def beaten(core: ClassicCore, code: ErrorCode, now: float = 1.0):
    request = core.ask(4).request
    assert isinstance(request, HeartbeatRequest)
    assert (request.member_id, request.generation_id) == (core.member_id, core.epoch)
    return core.apply(HeartbeatResponse(error_code=code), now)


def test_a_new_member_joins_again_under_the_id_that_it_is_given(core: ClassicCore):
    request, subscription = join_of(core)
    assert request.member_id == ""
    assert subscription == Subscription(3, [TOPIC], [], "here", NO_GENERATION, b"")
    assert [p.name for p in request.protocols] == [COOPERATIVE_STICKY]
    core.apply(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me"), 0.0)
    assert join_of(core)[0].member_id == "me"


def test_a_rebalance_touches_only_what_it_takes_away(stable: ClassicCore):
    assert beaten(stable, ErrorCode.REBALANCE_IN_PROGRESS).lost == frozenset()
    _, subscription = join_of(stable)
    assert subscription.owned == [partition(0), partition(1)]
    assert subscription.generation == 3
    stable.apply(joined(4), 2.0)
    stable.apply(synced(1, 2), 2.0)
    step = stable.held.step(2.0)
    assert step is not None
    assert {h.partition for h in step.revoke} == {0}
    assert stable.held.names == {partition(0), partition(1)}


def test_heartbeats_go_on_while_something_is_given_up_and_then_it_joins_again(
    stable: ClassicCore,
):
    beaten(stable, ErrorCode.REBALANCE_IN_PROGRESS)
    rebalanced(stable, 4, 1, now=2.0)
    stable.held.step(2.0)
    assert stable.asks is HeartbeatRequest
    assert stable.due_at(2.0) == 3.0
    assert beaten(stable, ErrorCode.REBALANCE_IN_PROGRESS, now=3.0).lost == frozenset()
    assert stable.asks is HeartbeatRequest
    stable.given_up(4.0)
    assert stable.held.step(4.0) is None
    _, subscription = join_of(stable)
    assert subscription.owned == [partition(1)]
    assert subscription.generation == 4


def test_after_nothing_was_taken_away_it_does_not_join_again(stable: ClassicCore):
    beaten(stable, ErrorCode.REBALANCE_IN_PROGRESS)
    rebalanced(stable, 4, 0, 1, 2, now=2.0)
    assert stable.held.step(2.0) is not None
    assert stable.asks is HeartbeatRequest
    assert stable.state == "stable"


@pytest.mark.parametrize(
    ("code", "member_id"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "me")],
)
def test_who_is_no_member_any_more_has_lost_everything_and_joins_anew(
    stable: ClassicCore, code: ErrorCode, member_id: str
):
    applied = beaten(stable, code)
    assert applied.lost == {partition(0), partition(1)}
    assert (stable.state, stable.epoch) == ("fenced", NO_GENERATION)
    request, subscription = join_of(stable)
    assert request.member_id == member_id
    assert subscription.owned == []
    assert subscription.generation == NO_GENERATION


def test_another_member_with_its_instance_id_ends_it(stable: ClassicCore):
    applied = beaten(stable, ErrorCode.FENCED_INSTANCE_ID)
    assert applied.refused == ErrorCode.FENCED_INSTANCE_ID
    assert len(applied.lost) == 2


def test_a_rebalance_that_begins_anew_during_the_sync_is_joined(stable: ClassicCore):
    beaten(stable, ErrorCode.REBALANCE_IN_PROGRESS)
    join_of(stable)
    stable.apply(joined(4), 2.0)
    again = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    assert stable.apply(again, 2.0).lost == frozenset()
    _, subscription = join_of(stable)
    assert subscription.owned == [partition(0), partition(1)]


def test_a_sync_that_was_not_answered_begins_with_a_join_again(stable: ClassicCore):
    beaten(stable, ErrorCode.REBALANCE_IN_PROGRESS)
    join_of(stable)
    stable.apply(joined(4), 2.0)
    stable.unanswered()
    assert stable.asks is JoinGroupRequest


def test_a_leader_waits_until_it_has_seen_the_topics_of_all_and_gives_nothing_that_is_owned(
    core: ClassicCore,
):
    mine = subscription_bytes(Subscription(3, [TOPIC], [], None))
    owner = subscription_bytes(
        Subscription(1, [TOPIC, "more"], [partition(n) for n in range(4)], None, 7)
    )
    join_of(core)
    core.apply(joined(8, {"me": mine, "other": owner}), 0.0)
    assert core.is_blind
    assert core.due_at(0.0) is None
    assert core.wants_topics == {TOPIC, "more"}
    core.see(TopicsSeen((TOPIC,), {TOPIC: 4}, {}, frozenset({TOPIC})), 0.0)
    assert core.is_blind
    core.see(seen(orders=4, more=1), 0.0)
    assert core.due_at(0.0) == 0.0
    request = core.ask(5).request
    assert isinstance(request, SyncGroupRequest)
    given = {row.member_id: assigned_partitions(row.assignment) for row in request.assignments}
    assert given["me"] == []
    assert partition(0, "more") in (given["other"] or [])
    assert len(given["other"] or []) == 3


def test_a_leader_rebalances_when_a_topic_has_grown_and_others_do_not(core: ClassicCore):
    rebalanced(core, 3, 0, 1)
    core.held.step(0.0)
    core.see(seen(orders=9), 1.0)
    assert core.asks is HeartbeatRequest
    beaten(core, ErrorCode.REBALANCE_IN_PROGRESS)
    mine = subscription_bytes(Subscription(3, [TOPIC], [], None))
    join_of(core)
    core.apply(joined(4, {"me": mine}), 2.0)
    core.see(seen(orders=9), 2.0)
    core.ask(5)
    core.apply(synced(*range(9)), 2.0)
    core.held.step(2.0)
    core.see(seen(orders=9), 3.0)
    assert core.asks is HeartbeatRequest
    core.see(seen(orders=10), 4.0)
    assert core.asks is JoinGroupRequest


def test_a_topic_that_is_not_subscribed_any_more_is_given_up_before_the_join(stable: ClassicCore):
    stable.see(TopicsSeen(("more",), {"more": 1}, {}, frozenset({"more"})), 5.0)
    assert stable.asks is HeartbeatRequest
    step = stable.held.step(5.0)
    assert step is not None
    assert {h.partition for h in step.revoke} == {0, 1}
    stable.given_up(6.0)
    _, subscription = join_of(stable)
    assert (subscription.topics, subscription.owned) == (["more"], [])


def test_a_group_with_another_assignor_is_refused(core: ClassicCore):
    join_of(core)
    answer = joined(3)
    answer.protocol_name = "range"
    assert core.apply(answer, 0.0).refused == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("instance_id", "leaves"), [(None, True), ("one", False)])
def test_who_stops_leaves_unless_it_is_static(instance_id: str | None, leaves: bool):
    core = ClassicCore(settings("classic", instance_id=instance_id))
    core.see(seen(orders=4), 0.0)
    rebalanced(core, 3, 0, 1)
    core.held.step(0.0)
    core.stop(1.0)
    step = core.held.step(1.0)
    assert step is not None
    assert len(step.revoke) == 2
    core.given_up(2.0)
    assert core.held.is_settled
    assert core.asks is HeartbeatRequest
    goodbye = core.farewell()
    assert (goodbye is not None) == leaves
    if goodbye is not None:
        assert isinstance(goodbye.request, LeaveGroupRequest)
        assert goodbye.request.group_id == GROUP
        assert [row.member_id for row in goodbye.request.members] == ["me"]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_subscription_is_read_as_it_was_written(version: int):
    said = Subscription(
        version,
        [TOPIC, "more"],
        [partition(1, "more"), partition(0), partition(2)] if version >= 1 else [],
        "here" if version >= 3 else None,
        9 if version >= 2 else NO_GENERATION,
        b"user data",
    )
    assert read_subscription(subscription_bytes(said)) == said


def test_the_generation_of_other_clients_is_read_from_their_user_data():
    java = struct.pack(">i", 11)
    librdkafka = struct.pack(">ih", 1, 6) + b"orders" + struct.pack(">iiii", 2, 0, 1, 12)
    assert sticky_generation(java) == 11
    assert sticky_generation(librdkafka) == 12
    assert sticky_generation(b"other words") == NO_GENERATION
    claimed = subscription_bytes(
        Subscription(1, [TOPIC], [partition(0)], None, NO_GENERATION, java)
    )
    assert read_claim(claimed) == StickyMember(frozenset({TOPIC}), frozenset({partition(0)}), 11)
