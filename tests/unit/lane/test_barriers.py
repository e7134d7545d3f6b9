"""Barriers and ends of a lane: who gives up harms nobody; a failed lane never looks done."""

import asyncio

import pytest
from tests.support.async_tests import simulated
from tests.support.lanes import P0, P1, World, append, append_all, flush
from tests.support.stores import Hold

from holdfast.errors import Fenced, HoldfastError, StoreUnavailable
from holdfast.lane.pending import GroupSettings
from holdfast.log.facts import PartitionRemoved
from holdfast.log.rewriter import RewriteSettings, purge_removed, rewrite


def held_put(world: World) -> Hold:
    """Stop the next data object on its way to the store."""
    hold = Hold("create", "lanes/0001/")
    world.store.before.append(hold)
    return hold


@pytest.mark.parametrize("work", ["snapshot", "rewrite", "purge"])
@simulated
async def test_background_work_that_is_cancelled_does_not_cancel_the_group_that_others_wait_for(
    world: World, work: str
):
    lane = await world.own()
    hold = held_put(world)
    append(lane)
    lane.add(PartitionRemoved(P1))
    durable = lane.barrier()
    assert durable is not None
    waits = {
        "snapshot": lane.snapshot_now,
        "rewrite": lambda: rewrite(lane, RewriteSettings()),
        "purge": lambda: purge_removed(lane),
    }[work]
    task = asyncio.ensure_future(waits())
    await hold.reached.wait()
    await asyncio.sleep(1)  # of virtual time: the task waits for the barrier by now
    task.cancel()
    await asyncio.wait({task})
    hold.go.set()
    await asyncio.wait({durable})
    assert not durable.cancelled()
    assert durable.exception() is None
    assert lane.failure is None
    assert lane.log_of(P0).high_watermark == 1


@simulated
async def test_a_barrier_asked_for_after_the_lane_was_fenced_fails_instead_of_looking_durable(
    world: World,
):
    old = await world.own(settings=GroupSettings(linger_ms=60_000))
    append(old)
    await world.own(broker=2)
    old.doubt()
    with pytest.raises(Fenced):
        await old.validate()
    barrier = old.barrier()
    assert barrier is not None
    with pytest.raises(Fenced):
        await barrier


@simulated
async def test_a_group_that_lingers_when_the_lane_is_fenced_is_refused_at_once(world: World):
    old = await world.own(settings=GroupSettings(linger_ms=60_000))
    append(old)
    durable = old.barrier()
    assert durable is not None
    await world.own(broker=2)
    old.doubt()
    with pytest.raises(Fenced):
        await old.validate()
    assert isinstance(durable.exception(), Fenced)
    await old.close(release=False)
    assert isinstance(old.failure, Fenced)


@simulated
async def test_close_puts_what_waits_and_the_release_ends_the_lane(world: World):
    lane = await world.own(settings=GroupSettings(linger_ms=60_000))
    append(lane)
    durable = lane.barrier()
    assert durable is not None
    await lane.close(release=True)
    assert durable.exception() is None
    assert world.loop.time() < 60
    claimed = await world.claim()
    assert claimed.state.log_of(P0).log_end_offset == 1
    assert claimed.released_by is not None and claimed.taken_from is None


@simulated
async def test_after_a_release_nothing_is_valid_and_nothing_can_be_added(world: World):
    lane = await world.own()
    await append_all(lane, 1)
    await lane.close(release=True)
    assert not lane.is_valid()
    with pytest.raises(Fenced):
        await lane.validate()
    with pytest.raises(HoldfastError):
        append(lane)


@simulated
async def test_from_the_moment_the_release_may_be_in_the_store_no_claim_is_valid(world: World):
    lane = await world.own()
    await append_all(lane, 1)
    hold = Hold("create", "lanes/0001/00000000000000000002")
    world.store.after.append(hold)
    closing = asyncio.ensure_future(lane.close(release=True))
    await hold.reached.wait()
    assert not lane.is_valid()
    hold.go.set()
    await closing


@simulated
async def test_closing_while_the_store_is_out_of_reach_ends_in_bounded_time_and_releases_nothing(
    world: World,
):
    lane = await world.own()

    async def outage(operation: str, key: str) -> None:
        raise StoreUnavailable(f"{operation} {key}")

    world.store.before.append(outage)
    append(lane)
    durable = lane.barrier()
    assert durable is not None
    await asyncio.wait_for(lane.close(release=True), timeout=120)
    assert isinstance(durable.exception(), HoldfastError)
    assert not lane.is_valid()
    world.store.before.clear()
    claimed = await world.claim()
    assert claimed.taken_from is not None


@simulated
async def test_closing_a_fenced_lane_does_not_wait_for_a_put_that_no_longer_matters(world: World):
    old = await world.own()
    hold = held_put(world)
    append(old)
    await hold.reached.wait()
    await world.own(store=world.memory, broker=2)
    old.doubt()
    with pytest.raises(Fenced):
        await old.validate()
    await asyncio.wait_for(old.close(release=False), timeout=10)


@simulated
async def test_a_waiter_sees_success_only_when_the_object_is_in_the_store(world: World):
    lane = await world.own()
    hold = held_put(world)
    append(lane)
    durable = lane.barrier()
    assert durable is not None
    await hold.reached.wait()
    assert not durable.done()
    assert lane.log_of(P0).high_watermark == 0
    assert lane.log_of(P0).log_end_offset == 1
    hold.go.set()
    await flush(lane)
    assert lane.log_of(P0).high_watermark == 1
    assert lane.barrier() is None
