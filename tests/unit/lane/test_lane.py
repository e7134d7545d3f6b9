"""Group commit and the proof of a claim."""

import asyncio

import pytest
from tests.support.async_tests import simulated
from tests.support.lanes import LANE, P0, World, append, append_all, flush, simulate
from tests.support.stores import Hold, HookedStore

from holdfast.errors import Fenced, InvariantViolation, StopError, StoreUnavailable
from holdfast.lane.keys import entry_key
from holdfast.lane.pending import GroupSettings
from holdfast.lane.recovery import read_head
from holdfast.log.data_lane import DataLane
from holdfast.log.facts import Appended, decode_facts
from holdfast.log.rewriter import RewriteSettings, rewrite


async def batches_of_each_object(world: World) -> list[int]:
    counts: list[int] = []
    for key in await world.keys("lanes/0001/"):
        head = await read_head(world.memory, world.environment(), LANE, int(key[-20:]))
        assert head is not None
        if head.header.payload_bytes:
            counts.append(sum(isinstance(f, Appended) for f in decode_facts(head.facts)))
    return counts


@simulated
async def test_what_is_added_while_a_put_is_under_way_shares_the_next_object(world: World):
    lane = await world.own()
    hold = Hold("create", entry_key(LANE, 1))
    world.store.before.append(hold)
    append(lane)
    await hold.reached.wait()
    for _ in range(5):
        append(lane)
    hold.go.set()
    await flush(lane)
    assert await batches_of_each_object(world) == [1, 5]


@simulated
async def test_a_group_is_split_where_it_would_grow_past_its_bound(world: World):
    lane = await world.own(settings=GroupSettings(group_bytes_max=3_500))
    for _ in range(8):
        append(lane, values=[b"x" * 1_000])
    append(lane, values=[b"x" * 10_000])
    append(lane, values=[b"x"])
    await flush(lane)
    assert await batches_of_each_object(world) == [3, 3, 2, 1, 1]
    assert lane.log_of(P0).high_watermark == 10


@simulated
async def test_a_group_lingers_for_company_and_no_longer(world: World):
    lane = await world.own(settings=GroupSettings(linger_ms=10_000))
    append(lane)
    durable = lane.barrier()
    assert durable is not None
    await asyncio.sleep(9)
    append(lane)
    assert not durable.done()
    await asyncio.sleep(2)
    assert durable.done()
    assert await batches_of_each_object(world) == [2]


@simulated
async def test_a_full_group_does_not_linger(world: World):
    lane = await world.own(settings=GroupSettings(linger_ms=10_000, group_bytes_max=2_000))
    append(lane)
    await asyncio.sleep(1)
    append(lane, values=[b"x" * 2_500])
    await flush(lane)
    assert world.loop.time() < 2
    assert await batches_of_each_object(world) == [1, 1]


@simulated
async def test_a_barrier_is_for_all_that_was_added_and_none_where_nothing_waits(world: World):
    lane = await world.own(settings=GroupSettings(group_bytes_max=500))
    assert lane.barrier() is None
    for _ in range(4):
        append(lane, values=[b"x" * 400])
    barrier = lane.barrier()
    assert barrier is not None
    await barrier
    assert lane.log_of(P0).high_watermark == 4
    assert lane.barrier() is None
    assert lane.pending_bytes == 0


def test_numbers_are_used_one_after_the_other_and_never_two_at_once():
    async def test(world: World) -> None:
        lane = await world.own(settings=GroupSettings(group_bytes_max=100))
        under_way = 0

        async def enter(operation: str, key: str) -> None:
            nonlocal under_way
            if operation == "create" and key.startswith("lanes/"):
                under_way += 1
                assert under_way == 1
                await asyncio.sleep(0.1)

        async def leave(operation: str, key: str) -> None:
            nonlocal under_way
            if operation == "create" and key.startswith("lanes/"):
                under_way -= 1

        world.store.before.append(enter)
        world.store.after.append(leave)
        for _ in range(10):
            append(lane)
        await flush(lane)
        keys = await world.keys("lanes/0001/")
        assert keys == [entry_key(LANE, number) for number in range(11)]

    simulate(test)


@simulated
async def test_a_lane_fenced_in_mid_flight_fails_everything_that_waits_and_publishes_nothing(
    world: World,
):
    mine = HookedStore(world.memory)
    old = await world.own(store=mine, settings=GroupSettings(group_bytes_max=100))
    hold = Hold("create", "lanes/0001/")
    mine.before.append(hold)
    barriers = []
    for _ in range(3):
        append(old)
        barriers.append(old.barrier())
    await hold.reached.wait()
    await world.own(broker=2)
    hold.go.set()
    await asyncio.wait(barriers)
    assert all(isinstance(b.exception(), Fenced) for b in barriers)
    assert old.log_of(P0).high_watermark == 0
    assert len(world.lost) == 1
    with pytest.raises(InvariantViolation):
        append(old)


@simulated
async def test_the_claim_is_proved_by_each_put_and_for_no_longer_than_its_validity(world: World):
    lane = await world.own(settings=GroupSettings(claim_valid_ms=1_000))
    assert lane.is_valid()
    await asyncio.sleep(0.9)
    await append_all(lane, 1)
    await asyncio.sleep(0.9)
    assert lane.is_valid()
    await asyncio.sleep(0.2)
    assert not lane.is_valid()
    await lane.validate()
    assert lane.is_valid()


@simulated
async def test_the_proof_counts_from_before_the_put_and_not_from_its_answer(world: World):
    lane = await world.own(settings=GroupSettings(claim_valid_ms=1_000))
    hold = Hold("create", "lanes/0001/")
    world.store.after.append(hold)
    append(lane)
    await hold.reached.wait()
    await asyncio.sleep(2)
    hold.go.set()
    await flush(lane)
    assert not lane.is_valid()


@simulated
async def test_the_proof_of_a_slow_probe_counts_from_its_beginning(world: World):
    lane = await world.own(settings=GroupSettings(claim_valid_ms=5_000))
    lane.doubt()
    hold = Hold("read", "lanes/0001/")
    world.store.after.append(hold)
    probing = asyncio.ensure_future(lane.validate())
    await asyncio.sleep(4)
    world.store.after.clear()
    hold.go.set()
    await probing
    assert lane.is_valid()
    await asyncio.sleep(1.5)
    assert not lane.is_valid()


@simulated
async def test_a_probe_that_finds_our_own_put_under_way_looks_behind_it(world: World):
    mine = HookedStore(world.memory)
    lane = await world.own(store=mine)
    hold = Hold("create", "lanes/0001/")
    mine.after.append(hold)
    append(lane)
    await hold.reached.wait()
    lane.doubt()
    await lane.validate()
    assert lane.failure is None
    await world.own(broker=2)
    lane.doubt()
    with pytest.raises(Fenced):
        await lane.validate()
    hold.go.set()
    barrier = lane.barrier()
    assert barrier is not None
    await asyncio.wait({barrier})
    assert isinstance(barrier.exception(), Fenced)
    assert lane.log_of(P0).high_watermark == 0


@simulated
async def test_those_who_ask_for_a_proof_at_the_same_time_share_one_probe(world: World):
    lane = await world.own()
    lane.doubt()
    before = len(world.store.calls)
    await asyncio.gather(*(lane.validate() for _ in range(20)))
    assert len(world.store.calls) - before == 1


@simulated
async def test_one_who_gives_up_on_a_proof_does_not_end_it_for_the_others(world: World):
    lane = await world.own()
    lane.doubt()
    hold = Hold("read", "lanes/0001/")
    world.store.before.append(hold)
    impatient = asyncio.ensure_future(lane.validate())
    patient = asyncio.ensure_future(lane.validate())
    await hold.reached.wait()
    impatient.cancel()
    await asyncio.wait({impatient})
    hold.go.set()
    await patient
    assert lane.is_valid()


@simulated
async def test_a_probe_gives_up_on_a_store_that_is_away_and_the_lane_lives_on(world: World):
    lane = await world.own()

    async def away(operation: str, key: str) -> None:
        raise StoreUnavailable(key)

    world.store.before.append(away)
    lane.doubt()
    with pytest.raises(StoreUnavailable):
        await lane.validate()
    assert world.loop.time() < 10
    world.store.before.clear()
    await append_all(lane, 1)
    assert lane.is_valid()


@simulated
async def test_a_probe_gives_up_also_where_the_store_goes_away_in_the_middle_of_it(world: World):
    mine = HookedStore(world.memory)
    lane = await world.own(store=mine)
    hold = Hold("create", "lanes/0001/")
    mine.before.append(hold)
    append(lane)
    await hold.reached.wait()

    async def lists_fail(operation: str, key: str) -> None:
        if operation == "list":
            raise StoreUnavailable(key)

    mine.before.append(lists_fail)
    lane.doubt()
    with pytest.raises(StoreUnavailable):
        await lane.validate()
    assert world.loop.time() < 10


@simulated
async def test_a_number_that_landed_unheard_of_and_was_deleted_is_no_proof(world: World):
    mine = HookedStore(world.memory)
    old = await world.own(store=mine)
    await append_all(old, 1)
    hold = Hold("create", "lanes/0001/")
    mine.after.append(hold)
    append(old)
    await hold.reached.wait()
    new = await world.own(broker=2)
    await append_all(new, 2)
    await rewrite(new, RewriteSettings(delete_delay_s=0))
    assert await world.memory.size(entry_key(LANE, 2)) is None
    old.doubt()
    with pytest.raises(Fenced):
        await old.validate()
    hold.go.set()


@simulated
async def test_an_index_that_does_not_fit_stops_the_lane_before_anything_is_published(world: World):
    lane = await world.own()
    await append_all(lane, 1)
    lane.log_of(P0).runs.last[-1] = 99
    append(lane)
    barrier = lane.barrier()
    assert barrier is not None
    await asyncio.wait({barrier})
    error = barrier.exception()
    assert isinstance(error, InvariantViolation) and isinstance(error, StopError)
    assert await world.keys("lanes/0001/") == [entry_key(LANE, n) for n in range(2)]


@pytest.mark.parametrize("seed", range(20))
@simulated
async def test_a_paused_owner_that_wakes_up_never_acknowledges_after_a_newer_claim(
    world: World, seed: int
):
    old = await world.own()
    await append_all(old, 2)
    acked: list[DataLane] = []

    async def write(lane: DataLane) -> None:
        while lane.is_open:
            append(lane)
            barrier = lane.barrier()
            assert barrier is not None
            await asyncio.wait({barrier})
            if barrier.exception() is None:
                acked.append(lane)
            if len(acked) > 60:
                return

    writing = asyncio.ensure_future(write(old))
    new = await world.own(broker=2)
    position = len(acked)
    await asyncio.gather(writing, write(new))
    # At most the one object that landed just before the claim may be told after it.
    assert acked[position + 1 :].count(old) == 0
    fresh = await world.own(broker=3)
    assert fresh.log_of(P0).high_watermark >= 2 + len(acked)
