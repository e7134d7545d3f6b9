"""Claims: one winner per number, and nobody wins a number that was deleted."""

import asyncio

import pytest
from simulation.faults.faulty_store import Fault, FaultPlan, FaultyStore
from tests.support.async_tests import simulated
from tests.support.lanes import LANE, P0, World, append, append_all, flush
from tests.support.stores import Hold, HookedStore

from holdfast.errors import CorruptObject, Fenced
from holdfast.identifiers import LaneNumber
from holdfast.lane.keys import entry_key
from holdfast.lane.recovery import read_head, recover
from holdfast.log.rewriter import RewriteSettings, rewrite
from holdfast.log.state import LogStateKind

NOW = RewriteSettings(delete_delay_s=0)


@simulated
async def test_an_empty_lane_is_claimed_at_number_zero(world: World):
    claimed = await world.claim()
    assert (claimed.cursor.claim, claimed.cursor.leader_epoch) == (0, 0)
    assert claimed.taken_from is None and claimed.released_by is None and claimed.owed_ms == 0


@pytest.mark.parametrize("seed", range(30))
@simulated
async def test_of_three_who_claim_at_once_each_gets_a_number_of_its_own_and_only_the_last_can_write(
    world: World, seed: int
):
    lanes = await asyncio.gather(*(world.own(broker=i) for i in range(3)))
    assert sorted(lane.cursor.claim for lane in lanes) == [0, 1, 2]
    assert sorted(lane.leader_epoch for lane in lanes) == [0, 1, 2]
    last = max(lanes, key=lambda lane: lane.leader_epoch)
    for lane in lanes:
        append(lane, values=[b"by %d" % lane.leader_epoch])
        barrier = lane.barrier()
        assert barrier is not None
        await asyncio.wait({barrier})
        error = barrier.exception()
        assert (error is None) == (lane is last)
        assert error is None or isinstance(error, Fenced)
    found = await recover(world.store, world.environment(), LANE, LogStateKind())
    assert found.state.log_of(P0).log_end_offset == 1


@pytest.mark.parametrize("seed", range(20))
@simulated
async def test_a_race_of_three_through_a_store_that_fails_in_every_way_has_the_same_outcome(
    world: World, seed: int
):
    plan = FaultPlan.even(0.03, late_seconds=(0.1, 3.0), timeout_seconds=1.0)
    stores = [
        FaultyStore(world.memory, plan=plan, chance=world.environment().random()) for _ in range(3)
    ]
    lanes = await asyncio.gather(
        *(world.own(broker=i, store=store) for i, store in enumerate(stores))
    )
    acked: list[int] = []
    for _ in range(10):
        for lane in lanes:
            if lane.is_open:
                append(lane, values=[b"%d" % lane.leader_epoch])
                barrier = lane.barrier()
                assert barrier is not None
                await asyncio.wait({barrier})
                if barrier.exception() is None:
                    acked.append(lane.leader_epoch)
    for store in stores:
        store.heal()
        await store.settle()
    assert set(acked) == {2}
    found = await recover(world.memory, world.environment(), LANE, LogStateKind())
    assert found.state.log_of(P0).log_end_offset == len(acked) == 10


@simulated
async def test_a_claimer_that_stalled_until_its_number_was_deleted_wins_nothing(world: World):
    owner = await world.own(broker=1)
    await append_all(owner, 2)
    slow = HookedStore(world.memory)
    hold = Hold("create", "lanes/0001/")
    slow.before.append(hold)
    stalled = asyncio.ensure_future(world.own(broker=2, store=slow))
    await hold.reached.wait()
    await append_all(owner, 5)
    await rewrite(owner, NOW)
    assert await world.memory.size(entry_key(LANE, 3)) is None
    hold.go.set()
    late = await stalled
    assert late.cursor.claim > 5
    assert late.log_of(P0).high_watermark == 7
    append(late, values=[b"by the late one"])
    await flush(late)
    append(owner)
    barrier = owner.barrier()
    assert barrier is not None
    with pytest.raises(Fenced):
        await barrier


@simulated
async def test_an_owner_is_not_disturbed_by_a_claim_below_the_floor(world: World):
    owner = await world.own(broker=1)
    await append_all(owner, 2)
    slow = HookedStore(world.memory)
    put = Hold("create", "lanes/0001/")
    slow.before.append(put)
    stalled = asyncio.ensure_future(world.claim(slow, 2))
    await put.reached.wait()
    await append_all(owner, 5)
    await rewrite(owner, NOW)
    looks_at_the_floor = Hold("list", "floors/")
    slow.before.append(looks_at_the_floor)
    put.go.set()
    await looks_at_the_floor.reached.wait()
    assert await world.memory.size(entry_key(LANE, 3)) is not None
    await append_all(owner, 2)
    fresh = await recover(world.memory, world.environment(), LANE, LogStateKind())
    assert fresh.state.log_of(P0).log_end_offset == 9
    assert fresh.cursor.leader_epoch == 0
    stalled.cancel()


@simulated
async def test_a_claimer_that_follows_into_a_deletion_starts_over_instead_of_crying_corruption(
    world: World,
):
    """Two claimers stall at one number; it is deleted; the first of them creates it again."""
    owner = await world.own(broker=1)
    await append_all(owner, 2)
    stores = [HookedStore(world.memory) for _ in range(2)]
    holds = [Hold("create", "lanes/0001/") for _ in range(2)]
    claims = []
    for i in range(2):
        stores[i].before.append(holds[i])
        claims.append(asyncio.ensure_future(world.own(broker=2 + i, store=stores[i])))
        await holds[i].reached.wait()
    await append_all(owner, 5)
    deleting = Hold("delete", entry_key(LANE, 3))

    async def delete_only_the_first(operation: str, key: str) -> None:
        if operation == "delete" and entry_key(LANE, 3) in key:
            await world.memory.delete([entry_key(LANE, 3)])
            await deleting(operation, key)

    world.store.before.append(delete_only_the_first)
    rewriting = asyncio.ensure_future(rewrite(owner, NOW))
    await deleting.reached.wait()
    # Number 3 is gone, 4 and later are still there. The first claimer takes 3, and stops.
    looks = Hold("list", "floors/")
    stores[0].before.append(looks)
    holds[0].go.set()
    await looks.reached.wait()
    holds[1].go.set()
    second = await claims[1]
    assert second.log_of(P0).high_watermark == 7
    deleting.go.set()
    looks.go.set()
    first = await claims[0]
    assert first.log_of(P0).high_watermark == 7
    await asyncio.wait({rewriting})


@simulated
async def test_a_claimer_that_loses_every_race_says_so(world: World):
    slow = HookedStore(world.memory)

    async def somebody_is_faster(operation: str, key: str) -> None:
        if operation == "create" and key.startswith("lanes/"):
            await world.claim(world.memory, 9)

    slow.before.append(somebody_is_faster)
    with pytest.raises(Fenced, match="another broker keeps"):
        await world.claim(slow, 1)


@simulated
async def test_a_lane_whose_claim_object_is_missing_is_corrupt(world: World):
    lane = await world.own()
    await append_all(lane, 2)
    await lane.snapshot_now()
    await world.memory.delete([entry_key(LANE, 0)])
    with pytest.raises(CorruptObject, match=entry_key(LANE, 0)):
        await world.claim()


@simulated
async def test_claims_stay_when_all_around_them_is_deleted_also_by_an_owner_long_fenced(
    world: World,
):
    owners = []
    for broker in range(4):
        lane = await world.own(broker=broker)
        await append_all(lane, 3)
        owners.append(lane)
    await rewrite(owners[-1], NOW)
    claims = list(owners[-1].state.claims)
    for stale in owners[:-1]:
        claim = stale.cursor.claim
        await stale.sweep(stale.state.claims, up_to=LaneNumber(claim - 1))
        await stale.drop_up_to(LaneNumber(stale.cursor.next_number - 1), stale.state.claims)
    for claim in claims:
        head = await read_head(world.memory, world.environment(), LANE, claim)
        assert head is not None and head.header.claim == claim
    fresh = await world.own()
    assert fresh.log_of(P0).high_watermark == 12
    assert list(fresh.state.claims)[:-1] == claims


@simulated
async def test_a_sweep_deletes_what_an_earlier_owner_did_not_get_to(world: World):
    first = await world.own()
    await append_all(first, 4)
    cut = Hold("delete", "lanes/0001/")
    world.store.before.append(cut)
    dying = asyncio.ensure_future(rewrite(first, NOW))
    await cut.reached.wait()
    world.store.before.clear()
    second = await world.own()
    claim = second.cursor.claim
    assert await second.sweep(second.state.claims, up_to=LaneNumber(claim - 1)) == 4
    assert await world.memory.size(entry_key(LANE, 0)) is not None
    dying.cancel()


@simulated
async def test_a_put_whose_answers_are_lost_is_won_once(world: World):
    plan = FaultPlan(chances={Fault.LOST_AFTER: 0.5, Fault.CONFLICT: 0.2})
    store = FaultyStore(world.memory, plan=plan, chance=world.environment().random())
    lane = await world.own(store=store)
    for _ in range(30):
        append(lane)
        await flush(lane)
    assert store.faults_by_kind()[Fault.LOST_AFTER] > 5
    store.heal()
    found = await recover(store, world.environment(), LANE, LogStateKind())
    assert found.state.log_of(P0).log_end_offset == 30
    assert found.cursor == lane.cursor
