"""A lane that is being taken over is left to who takes it: a broker that joins meanwhile, and that
should have it, asks for it when it is served. So is one that was given away a moment ago."""

import asyncio
import logging

import pytest
from tests.support.brokers import pass_time
from tests.support.clusters import Several, simulate

from holdfast.broker.broker import Broker
from holdfast.broker.cluster.given_lanes import GivenLanes
from holdfast.client.address import Address
from holdfast.identifiers import BrokerId, LaneId
from holdfast.protocol.message import Message
from holdfast.protocol.messages.lane_hand_over import LaneHandOverRequest


def taken_while_a_broker_joins() -> dict[str, set[LaneId]]:
    """Broker 2 takes the lanes of 1, which died; 3 joins while 2 still waits for the claims of 1 to
    be out of date."""
    found: dict[str, set[LaneId]] = {"coming": set(), "served": set()}

    async def test(world: Several) -> None:
        first = await world.join(1, lanes=6)
        taker = await world.join(2, lanes=6)
        await pass_time(15)
        await world.kill(first)
        await pass_time(2)
        found["coming"] = set(taker.served.coming)
        taker.served.when_served.append(lambda lane: found["served"].add(lane.lane))
        joined = await world.join(3, lanes=6)
        await pass_time(60)
        assert sorted([*taker.lanes, *joined.lanes]) == [LaneId(i) for i in range(1, 7)]
        assert len(taker.lanes) == len(joined.lanes) == 3

    simulate(test)
    return found


def test_a_broker_that_joins_leaves_a_lane_to_who_takes_it_and_is_given_it_then(
    caplog: pytest.LogCaptureFixture,
):
    with caplog.at_level(logging.INFO):
        found = taken_while_a_broker_joins()
    assert len(found["coming"]) >= 2
    assert found["served"] == found["coming"]
    assert "lane_lost" not in caplog.text
    assert "lane_not_taken" not in caplog.text


def test_where_nobody_says_what_is_coming_the_lane_is_taken_from_who_takes_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(Broker, "coming", property(lambda broker: frozenset[LaneId]()))
    with caplog.at_level(logging.INFO):
        found = taken_while_a_broker_joins()
    assert len(found["coming"]) >= 2
    for lane in found["coming"]:
        assert f"lane_lost lane={lane}" in caplog.text


def given_while_the_answer_is_on_its_way() -> list[bool]:
    """Broker 1 gives 2 a lane that waits for its disk, which is one more than 2 should have; the
    answer takes a second. Whether each lane that 2 served since was that one."""
    found: list[bool] = []

    async def slow(_: Address, __: Address, message: Message) -> None:
        if isinstance(message, LaneHandOverRequest):
            await asyncio.sleep(1)

    async def test(world: Several) -> None:
        giver, taker = [await world.join(each, lanes=4) for each in (1, 2)]
        await pass_time(30)
        world.wires.after.append(slow)
        lane = next(iter(giver.lanes))
        giver.disk_acks.awaits[lane] = BrokerId(2)
        taker.served.when_served.append(lambda taken: found.append(taken.lane == lane))
        await pass_time(60)
        assert len([*giver.lanes, *taker.lanes]) == 4

    simulate(test)
    return found


def test_a_lane_that_was_given_is_not_taken_back_before_its_new_owner_says_that_it_has_it(
    caplog: pytest.LogCaptureFixture,
):
    with caplog.at_level(logging.INFO):
        served = given_while_the_answer_is_on_its_way()
    assert served[0]
    assert "lane_lost" not in caplog.text
    assert "lane_not_taken" not in caplog.text


def test_where_nobody_says_whose_it_is_it_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(GivenLanes, "now", lambda given: dict[LaneId, BrokerId]())
    with caplog.at_level(logging.INFO):
        given_while_the_answer_is_on_its_way()
    assert "lane_lost" in caplog.text
