"""What the simulation found in brokers that share the lanes, played step by step."""

import asyncio
import dataclasses

import pytest
from simulation.faults.skewed_environment import SkewedEnvironment
from tests.support.async_tests import simulated
from tests.support.brokers import Cluster, lane_of, log_of, pass_time, produce, topic
from tests.support.clusters import Several

from holdfast.client.address import Address
from holdfast.errors import Fenced
from holdfast.identifiers import CONTROL_LANE
from holdfast.log.facts import LogStartMoved
from holdfast.protocol.api import ErrorCode


@simulated
async def test_a_broker_that_is_replaced_while_it_joins_ends(world: Several):
    """Seeds 41, 152 and 159 of groups, 213 of records: it asked to be let in for ever."""
    await world.join(1)
    await world.join(3)
    world.wires.silent.add(Address("broker-2", 9092))
    unheard = asyncio.create_task(world.join(2))
    await pass_time(2)
    second = await world.join(2, port=9093)
    await pass_time(10)
    assert unheard.done()
    with pytest.raises(Fenced, match="another broker with the id 2"):
        unheard.result()
    assert not second.lost.done()


@pytest.mark.parametrize("seed", range(4))
@simulated
async def test_of_two_processes_with_one_incarnation_one_stays(world: Several, seed: int):
    """Seed 85 of groups: they took turns in the control lane, and with the lanes, for ever."""
    first = await world.join(1)
    twins = [world.make(2, port=port) for port in (9092, 9093)]
    starting = [asyncio.create_task(twin.start()) for twin in twins]
    await pass_time(10)
    assert twins[0].report().incarnation == twins[1].report().incarnation
    assert [twin.lost.done() for twin in twins].count(True) == 1
    assert all(each.done() for each in starting)
    assert [each.exception() is not None for each in starting].count(True) <= 1
    number = first.view.number
    await pass_time(10)
    assert first.view.number == number


@simulated
async def test_a_broker_that_is_pinged_before_it_knows_its_incarnation_is_not_replaced_by_its_past(
    world: Several,
):
    """Seed 47 of records: its clock was behind that of the process before it."""
    first = await world.join(1)
    await world.kill(await world.join(2))
    behind = SkewedEnvironment(seed=7, loop=world.loop, wall_offset_ms=1_600_000_000_000)
    again = world.make(2, environment=behind)
    assert again.membership is not None
    again.membership.neighbours.heard(first.report())
    await pass_time(1)
    assert again.state.brokers[2].incarnation > again.report().incarnation
    assert not again.lost.done()
    await again.start()
    await pass_time(2)
    assert not again.lost.done()
    assert again.lanes


@simulated
async def test_a_broker_whose_younger_process_died_before_it_was_registered_is_heard_again(
    world: Several,
):
    """Seed 683 of streams with disks: it was silent to one that had heard the other, for ever; the
    two took a lane from each other, which waited for the disk of the first."""
    brokers = [await world.join(i) for i in (1, 2)]
    await pass_time(10)
    doubled, hearer = sorted(brokers, key=lambda each: not each.is_controller)
    known = doubled.report()
    younger = dataclasses.replace(
        known, incarnation=known.incarnation + 1, port=9093, lanes={}, cleared={}
    )
    assert hearer.membership is not None
    hearer.membership.neighbours.heard(younger)  # and then it dies
    await pass_time(40)
    assert sorted(hearer.membership.alive()) == [1, 2]
    assert len(doubled.lanes) == len(hearer.lanes) == 2


@simulated
async def test_a_broker_that_joins_and_must_leave_the_control_lane_alone_for_a_while_rests(
    world: Several,
):
    """Seed 24940: it asked the store again and again without a pause, until the while was over."""
    joining = world.make(1)
    assert joining.membership is not None
    joining.membership.taken_away(CONTROL_LANE)
    starting = asyncio.create_task(joining.start())
    await pass_time(4)
    assert len(world.store.calls) < 200
    await pass_time(4)
    await starting
    assert joining.is_controller


@simulated
async def test_a_broker_that_just_joins_coordinates_nothing(world: Several):
    """Seeds 27643, 29042, 30069 and 33091: asked by another broker, before it knew how many lanes
    there are, it divided by none."""
    joining = world.make(1)
    assert joining.groups_of("group") is ErrorCode.NOT_COORDINATOR
    assert joining.transactions_of("worker") is ErrorCode.NOT_COORDINATOR


@simulated
async def test_a_stale_owner_that_knows_a_retry_does_not_tell_an_old_log_start(world: Cluster):
    """Found when it was checked who may answer for a lane: seeds 1058 and 1084 of groups."""
    old = await world.broker(1)
    await topic(old)
    for sequence in range(3):
        await produce(old, timestamp=1, producer=(9, 0, sequence))
    new = await world.broker(2)
    lane_of(new).add(LogStartMoved(log_of(new).partition, 2))
    await lane_of(new).flush()
    again = await produce(old, timestamp=1, producer=(9, 0, 2))
    assert (again.error_code, again.base_offset) == (0, 2)
    assert again.log_start_offset == -1
    here = await produce(new, timestamp=1, producer=(9, 0, 2))
    assert (here.base_offset, here.log_start_offset) == (2, 2)
