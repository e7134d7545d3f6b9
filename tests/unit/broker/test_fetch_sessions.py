"""Incremental fetch sessions: what a consumer follows, remembered within a bound."""

import pytest
from tests.support.async_tests import simulated
from tests.support.brokers import (
    Ask,
    Cluster,
    fetch_all,
    produce,
    records_in,
    topic,
)

from holdfast.broker.broker import Broker
from holdfast.broker.fetch_sessions import EPOCHS, FetchSessions, Opened, SessionProblem
from holdfast.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic


def request(session_id: int = 0, epoch: int = 0, *partitions: int) -> FetchRequest:
    wanted = [
        FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=1) for p in partitions
    ]
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=wanted)] if wanted else [],
    )


def opened(sessions: FetchSessions, asked: FetchRequest) -> Opened:
    found = sessions.open(asked)
    assert isinstance(found, Opened), found
    return found


def test_a_session_remembers_what_was_asked_for():
    sessions = FetchSessions(10)
    first = opened(sessions, request(0, 0, 1, 2))
    assert first.session is not None and not first.is_incremental
    again = opened(sessions, request(first.session.session_id, 1))
    assert again.is_incremental
    assert [w.partition.partition for w in again.wanted] == [1, 2]


def test_epochs_must_come_in_order_and_wrap_to_one():
    sessions = FetchSessions(10)
    session = opened(sessions, request(0, 0, 1)).session
    assert session is not None
    wrong = sessions.open(request(session.session_id, 2))
    assert wrong is SessionProblem.INVALID_FETCH_SESSION_EPOCH
    assert isinstance(sessions.open(request(session.session_id, 1)), Opened)
    session.next_epoch = EPOCHS - 1
    assert isinstance(sessions.open(request(session.session_id, EPOCHS - 1)), Opened)
    assert session.next_epoch == 1


def test_an_unknown_session_is_refused_by_name():
    found = FetchSessions(10).open(request(77, 5))
    assert found is SessionProblem.FETCH_SESSION_ID_NOT_FOUND


def test_the_oldest_session_makes_room_and_a_bound_of_zero_means_none():
    sessions = FetchSessions(2)
    ids = []
    for _ in range(3):
        session = opened(sessions, request(0, 0, 1)).session
        assert session is not None
        ids.append(session.session_id)
    assert len(sessions) == 2 and len(set(ids)) == 3
    assert sessions.open(request(ids[0], 1)) is SessionProblem.FETCH_SESSION_ID_NOT_FOUND
    assert isinstance(sessions.open(request(ids[2], 1)), Opened)
    assert opened(FetchSessions(0), request(0, 0, 1)).session is None


def test_sessions_hold_a_bounded_number_of_partitions_in_all():
    sessions = FetchSessions(100, partitions_max=10)
    first = opened(sessions, request(0, 0, *range(6))).session
    second = opened(sessions, request(0, 0, *range(6))).session
    assert first is not None and second is not None
    assert (len(sessions), sessions.partitions) == (1, 6)
    gone = sessions.open(request(first.session_id, 1))
    assert gone is SessionProblem.FETCH_SESSION_ID_NOT_FOUND
    whole = opened(sessions, request(0, 0, *range(11)))
    assert whole.session is None and len(whole.wanted) == 11
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_a_session_that_grows_past_the_bound_ends():
    sessions = FetchSessions(100, partitions_max=10)
    session = opened(sessions, request(0, 0, *range(6))).session
    assert session is not None
    grown = sessions.open(request(session.session_id, 1, *range(6, 12)))
    assert grown is SessionProblem.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_a_final_epoch_ends_the_session():
    sessions = FetchSessions(10)
    session = opened(sessions, request(0, 0, 1)).session
    assert session is not None
    assert opened(sessions, request(session.session_id, -1)).session is None
    assert len(sessions) == 0


async def three_partitions(world: Cluster) -> Broker:
    broker = await world.broker()
    await topic(broker, partitions=3)
    for partition in range(3):
        await produce(broker, partition=partition)
    return broker


def told(response: FetchResponse) -> dict[int, int]:
    return {
        part.partition_index: len(records_in(part))
        for answer in response.responses
        for part in answer.partitions
    }


@simulated
async def test_an_incremental_answer_holds_only_what_the_client_does_not_know(world: Cluster):
    broker = await three_partitions(world)
    asks = [Ask(partition=i, offset=1) for i in range(3)]
    first = await fetch_all(broker, asks, session_epoch=0)
    assert told(first) == {0: 0, 1: 0, 2: 0}
    session = {"session_id": first.session_id}
    assert told(await fetch_all(broker, [], session_epoch=1, **session)) == {}
    await produce(broker, partition=1)
    assert told(await fetch_all(broker, [], session_epoch=2, **session)) == {1: 1}
    moved = [Ask(partition=1, offset=2)]
    assert told(await fetch_all(broker, moved, session_epoch=3, **session)) == {}
    forgotten = [Ask(partition=2)]
    await produce(broker, partition=2)
    answer = await fetch_all(broker, [], session_epoch=4, forgotten=forgotten, **session)
    assert told(answer) == {}


@simulated
async def test_an_error_is_told_each_time_until_it_is_over(world: Cluster):
    broker = await three_partitions(world)
    first = await fetch_all(broker, [Ask(offset=9)], session_epoch=0)
    assert told(first) == {0: 0}
    for epoch in (1, 2):
        again = await fetch_all(broker, [], session_id=first.session_id, session_epoch=epoch)
        assert told(again) == {0: 0}


@pytest.mark.parametrize("rounds", [6])
@simulated
async def test_a_small_bound_serves_every_partition_of_a_session_in_turn(
    world: Cluster, rounds: int
):
    broker = await three_partitions(world)
    asks = [Ask(partition=i) for i in range(3)]
    first = await fetch_all(broker, asks, session_epoch=0, max_bytes=1)
    served = [partition for partition, count in told(first).items() if count]
    for epoch in range(1, rounds):
        answer = await fetch_all(
            broker, [], session_id=first.session_id, session_epoch=epoch, max_bytes=1
        )
        served += [partition for partition, count in told(answer).items() if count]
    assert sorted(served) == [0, 0, 1, 1, 2, 2]
