"""Start and stop: what a broker owes to the owners before it, and what it must not break."""

import asyncio

import pytest
from tests.support.async_tests import simulated
from tests.support.brokers import (
    VALID_MS,
    Cluster,
    list_offset,
    log_of,
    pass_time,
    produce,
    topic,
)

from holdfast.errors import ConfigurationError, Fenced
from holdfast.identifiers import BrokerId
from holdfast.lane.entry import Claim
from holdfast.lane.liveness import ProcessIdentity
from holdfast.lane.pending import GroupSettings
from holdfast.protocol.api import ErrorCode

VALID_S = VALID_MS / 1000


class Proof:
    """A machine on which some brokers are known to be dead."""

    def __init__(self, *dead: int) -> None:
        self._dead = dead

    def identity(self) -> ProcessIdentity:
        return ProcessIdentity("", 0, 0)

    def has_ended(self, claim: Claim) -> bool:
        return claim.broker_id in self._dead


@simulated
async def test_a_successor_waits_until_the_owner_before_can_no_longer_answer(world: Cluster):
    old = await world.broker(1)
    await topic(old)
    await produce(old)
    claimed_at = world.loop.time()
    new = await world.broker(2)
    assert world.loop.time() >= claimed_at + VALID_S
    assert (await list_offset(new)).offset == 1
    assert (await list_offset(old)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@simulated
async def test_a_successor_of_a_broker_that_released_serves_at_once(world: Cluster):
    old = await world.broker(1)
    await topic(old)
    await produce(old)
    await old.stop(release=True)
    await world.broker(2)
    assert world.loop.time() < 1


@simulated
async def test_a_successor_of_a_broker_that_is_proved_dead_serves_at_once(world: Cluster):
    await world.broker(1)
    await world.broker(2, liveness=Proof(1))
    assert world.loop.time() < 1


@simulated
async def test_the_death_of_a_broker_that_was_still_waiting_does_not_excuse_the_owner_before_it(
    world: Cluster,
):
    paused = await world.broker(1)
    await topic(paused)
    await produce(paused)
    died = asyncio.ensure_future(world.broker(2))
    await pass_time(1)
    died.cancel()
    third = await world.broker(2, liveness=Proof(2))
    assert (await produce(third)).base_offset == 1
    assert (await list_offset(third)).offset == 2
    assert (await list_offset(paused)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@simulated
async def test_a_broker_that_is_stopped_while_it_waits_does_not_release_what_it_never_served(
    world: Cluster,
):
    paused = await world.broker(1)
    await topic(paused)
    await produce(paused)
    waiting = world.unstarted(2)
    starting = asyncio.ensure_future(waiting.start())
    await pass_time(1)
    starting.cancel()
    await waiting.stop(release=True)
    third = await world.broker(3)
    assert (await produce(third)).base_offset == 1
    assert (await list_offset(third)).offset == 2
    assert (await list_offset(paused)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@simulated
async def test_a_successor_waits_as_long_as_the_owner_before_was_configured_to_answer(
    world: Cluster,
):
    patient = await world.broker(1, group=GroupSettings(claim_valid_ms=60_000))
    await topic(patient)
    await produce(patient)
    hasty = await world.broker(2, group=GroupSettings(claim_valid_ms=100))
    await produce(hasty)
    assert (await list_offset(hasty)).offset == 2
    assert (await list_offset(patient)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@simulated
async def test_a_broker_with_another_number_of_lanes_is_refused_before_it_claims_anything(
    world: Cluster,
):
    serving = await world.broker(1, lanes=2)
    await topic(serving)
    with pytest.raises(ConfigurationError, match="2 data lanes"):
        await world.broker(2, lanes=3)
    assert (await produce(serving)).error_code == 0
    await topic(serving, "still-the-controller")
    assert not serving.lost.done()


@simulated
async def test_a_broker_that_lost_a_lane_says_so(world: Cluster):
    old = await world.broker(1)
    await topic(old)
    await world.broker(2)
    assert (await produce(old)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert isinstance(await asyncio.wait_for(old.lost, 1), Fenced)


@simulated
async def test_producer_ids_are_never_handed_out_twice_across_brokers(world: Cluster):
    seen: list[int] = []
    for number in range(3):
        broker = await world.broker(number)
        seen += [await broker.new_producer_id() for _ in range(5)]
    assert len(set(seen)) == len(seen)


@simulated
async def test_a_registration_that_changed_is_written_and_one_that_did_not_is_not(world: Cluster):
    first = await world.broker(1)
    numbers = first.control.cursor.next_number
    await first.stop(release=True)
    second = await world.broker(1)
    assert second.control.cursor.next_number == numbers + 2
    assert second.state.brokers[BrokerId(1)].host == "broker-1"
    assert second.state.cluster_id == first.state.cluster_id


@simulated
async def test_topics_and_records_survive_a_broker_that_was_killed(world: Cluster):
    first = await world.broker(1)
    topic_id = await topic(first, partitions=3, retention_ms="1000")
    for partition in range(3):
        await produce(first, [b"x"] * (partition + 1), partition=partition)
    second = await world.broker(2)
    found = second.state.topic_named("t")
    assert found is not None
    assert (found.topic_id, found.partitions) == (topic_id, 3)
    assert found.configs == {"retention.ms": "1000"}
    assert [log_of(second, partition=i).high_watermark for i in range(3)] == [1, 2, 3]
