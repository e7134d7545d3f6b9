"""What the simulation found, played step by step on one lane: the schedule is part of the test."""

import asyncio

import pytest
from tests.support.async_tests import simulated
from tests.support.lanes import LANE, P0, World, append, flush
from tests.support.stores import Hold, HookedStore

from holdfast.errors import Fenced, StoreUnavailable
from holdfast.lane.keys import entry_key
from holdfast.log.facts import LogStartMoved
from holdfast.log.read_plan import batches_of
from holdfast.log.rewriter import RewriteSettings, rewrite
from holdfast.records.batch import parse_header

AT_ONCE = RewriteSettings(delete_delay_s=0)
UNANSWERED = entry_key(LANE, 1)


async def take_over_and_delete(world: World) -> None:
    """A successor claims, takes over what landed, rewrites it, and deletes the lane objects."""
    successor = await world.own(store=HookedStore(world.memory), broker=2)
    await rewrite(successor, AT_ONCE)
    assert UNANSWERED not in await world.keys()
    assert successor.log_of(P0).high_watermark == 1


@simulated
async def test_an_absent_number_proves_nothing_where_our_own_put_may_have_been_deleted(
    world: World,
):
    """Seed 216."""
    owner = await world.own()
    hold = Hold("create", UNANSWERED)
    world.store.after.append(hold)
    append(owner)
    await hold.reached.wait()
    await take_over_and_delete(world)
    owner.doubt()
    with pytest.raises(Fenced):
        await owner.validate()
    assert not owner.is_valid()
    hold.go.set()


@simulated
async def test_a_put_that_creates_its_own_deleted_number_again_is_not_published(world: World):
    owner = await world.own()
    landed, may_fail = asyncio.Event(), asyncio.Event()

    async def lose_the_first_answer(operation: str, key: str) -> None:
        if operation == "create" and key == UNANSWERED and not landed.is_set():
            landed.set()
            await may_fail.wait()
            raise StoreUnavailable("the answer was lost")

    world.store.after.append(lose_the_first_answer)
    append(owner)
    await landed.wait()
    await take_over_and_delete(world)
    may_fail.set()
    with pytest.raises(Fenced):
        await flush(owner)
    assert owner.log_of(P0).high_watermark == 0


@simulated
async def test_records_below_a_log_start_stay_readable_until_it_is_durable(world: World):
    """Seeds 14 and 38."""
    lane = await world.own()
    for _ in range(3):
        append(lane)
        await flush(lane)
    hold = Hold("create", entry_key(LANE, 4))
    world.store.before.append(hold)
    lane.add(LogStartMoved(P0, 2))
    await hold.reached.wait()
    log = lane.log_of(P0)
    assert log.log_start_offset == 0
    cut = await lane.reader.read(log, 0, 1 << 20)
    assert [parse_header(b).base_offset for b in batches_of(cut.buffers)] == [0, 1, 2]
    hold.go.set()
    await flush(lane)
    assert log.log_start_offset == 2


@simulated
async def test_a_read_that_is_planned_anew_ends_where_it_was_told_to(world: World):
    """Seeds 1642, 1997 and 2787."""
    lane = await world.own(tail_bytes=0)
    append(lane)
    await flush(lane)
    reached, go = asyncio.Event(), asyncio.Event()

    async def hold_the_first_read(operation: str, key: str) -> None:
        if (operation, key) == ("read", UNANSWERED) and not reached.is_set():
            reached.set()
            await go.wait()

    world.store.before.append(hold_the_first_read)
    log = lane.log_of(P0)
    reading = asyncio.ensure_future(lane.reader.read(log, 0, 1 << 20, log.high_watermark))
    await reached.wait()
    append(lane)
    await flush(lane)
    await rewrite(lane, AT_ONCE)
    assert log.high_watermark == 2
    go.set()
    cut = await reading
    assert cut.next_offset == 1
