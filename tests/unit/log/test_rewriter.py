"""Rewriting: the same bytes at the same offsets, whatever it is interrupted by."""

import asyncio

import pytest
from tests.support.async_tests import simulated
from tests.support.lanes import P0, P1, World, append, append_all, flush, simulate
from tests.support.stores import Hold
from tests.unit.log.rewriting import IN_STEPS, NOW, all_bytes, written

from holdfast.errors import Fenced, ObjectNotFound
from holdfast.lane.recovery import recover
from holdfast.log.data_lane import DataLane
from holdfast.log.facts import LogStartMoved, PartitionRemoved
from holdfast.log.rewriter import (
    RewriteSettings,
    claim_in,
    collect,
    is_due,
    purge_removed,
    rewrite,
    sweep_segments,
)
from holdfast.log.state import LogStateKind

BOTH = pytest.mark.parametrize("settings", [NOW, IN_STEPS], ids=["at once", "in steps"])


@simulated
async def test_after_rewriting_the_bytes_are_the_same_and_the_lane_objects_are_gone(world: World):
    lane = await written(world)
    before = [await all_bytes(lane, p) for p in (P0, P1)]
    await rewrite(lane, NOW)
    assert [await all_bytes(lane, p) for p in (P0, P1)] == before
    fresh = await world.own()
    assert [await all_bytes(fresh, p) for p in (P0, P1)] == before
    assert await world.keys("lanes/0001/") == [f"lanes/0001/{number:020d}" for number in (0, 7, 8)]


def count_of_calls(settings: RewriteSettings) -> int:
    """How many calls of the store one rewriting makes."""

    async def test(world: World) -> int:
        lane = await merged_before(world)
        before = len(world.store.calls)
        await rewrite(lane, settings)
        return len(world.store.calls) - before

    return simulate(test)


async def merged_before(world: World) -> DataLane:
    """A lane with a segment already, so that the next rewriting merges and collects."""
    lane = await written(world, 2)
    await rewrite(lane, NOW)
    for i in range(4):
        append(lane, P0, [b"later %d" % i])
        append(lane, P1, [b"later too"])
        await flush(lane)
    lane.tail.forget(lane.lane)
    return lane


@BOTH
def test_a_crash_before_or_after_any_call_of_the_store_loses_nothing_and_moves_nothing(
    settings: RewriteSettings,
):
    calls = count_of_calls(settings)
    assert calls > 15
    for k in range(calls):
        for moment in ("before", "after"):

            async def test(world: World, k: int = k, moment: str = moment) -> None:
                lane = await merged_before(world)
                before = [await all_bytes(lane, p) for p in (P0, P1)]
                left = k

                async def crash(operation: str, key: str) -> None:
                    nonlocal left
                    left -= 1
                    if left < 0:
                        await asyncio.Event().wait()

                (world.store.before if moment == "before" else world.store.after).append(crash)
                dying = asyncio.ensure_future(rewrite(lane, settings))
                await asyncio.wait({dying}, timeout=10)
                world.store.before.clear()
                world.store.after.clear()
                for _ in range(2):
                    fresh = await world.own()
                    assert [await all_bytes(fresh, p) for p in (P0, P1)] == before
                    await sweep_segments(fresh)
                    await fresh.sweep(fresh.state.claims, up_to=fresh.cursor.claim - 1)
                    assert [await all_bytes(fresh, p) for p in (P0, P1)] == before
                    await rewrite(fresh, settings)
                    assert [await all_bytes(fresh, p) for p in (P0, P1)] == before
                named = {s.name for log in fresh.state.partitions.values() for s in log.segments}
                stored = {key.rsplit("/", 1)[-1] for key in await world.keys("topics/")}
                assert stored == named
                dying.cancel()

            simulate(test)


@BOTH
@simulated
async def test_a_reader_that_planned_before_the_objects_went_finds_the_same_bytes(
    world: World, settings: RewriteSettings
):
    lane = await written(world)
    before = await all_bytes(lane)
    lane.tail.forget(lane.lane)
    hold = Hold("read", "lanes/0001/00000000000000000001")
    world.store.before.append(hold)
    reading = asyncio.ensure_future(all_bytes(lane))
    await hold.reached.wait()
    world.store.before.clear()
    await rewrite(lane, settings)
    hold.go.set()
    assert await reading == before


@BOTH
@simulated
async def test_records_that_arrive_while_the_lane_is_rewritten_stay_where_they_are(
    world: World, settings: RewriteSettings
):
    lane = await written(world)
    hold = Hold("create", "topics/")
    world.store.before.append(hold)
    rewriting = asyncio.ensure_future(rewrite(lane, settings))
    await hold.reached.wait()
    append(lane, P0, [b"meanwhile"])
    await flush(lane)
    before = await all_bytes(lane)
    hold.go.set()
    await rewriting
    assert await all_bytes(lane) == before
    assert len(lane.log_of(P0).runs) == 1
    assert await all_bytes(await world.own()) == before


@BOTH
@simulated
async def test_a_log_start_that_moves_while_the_lane_is_rewritten_holds_afterwards(
    world: World, settings: RewriteSettings
):
    lane = await written(world)
    hold = Hold("create", "topics/")
    world.store.before.append(hold)
    rewriting = asyncio.ensure_future(rewrite(lane, settings))
    await hold.reached.wait()
    lane.add(LogStartMoved(P0, 18))
    lane.add(LogStartMoved(P1, 3))
    await flush(lane)
    hold.go.set()
    await rewriting
    for owner in (lane, await world.own()):
        assert owner.log_of(P0).log_start_offset == owner.log_of(P0).high_watermark == 18
        assert owner.log_of(P0).segments == []
        assert owner.log_of(P1).log_start_offset == 3
        assert await all_bytes(owner, P1)
    await collect(lane)
    assert not await world.keys(f"topics/{P0.topic_id}/{P0.partition:06d}/")


@BOTH
@simulated
async def test_a_topic_that_is_deleted_while_it_is_rewritten_leaves_nothing_behind(
    world: World, settings: RewriteSettings
):
    lane = await written(world)
    hold = Hold("create", "topics/")
    world.store.before.append(hold)
    rewriting = asyncio.ensure_future(rewrite(lane, settings))
    await hold.reached.wait()
    lane.add(PartitionRemoved(P0))
    hold.go.set()
    await rewriting
    await purge_removed(lane)
    await flush(lane)
    assert P0 not in lane.state.partitions and P0 not in lane.state.removed
    assert {key.split("/")[2] for key in await world.keys("topics/")} == {"000001"}


@simulated
async def test_a_segment_whose_removal_is_decided_but_not_durable_is_not_swept(world: World):
    first = await written(world)
    await rewrite(first, RewriteSettings(delete_delay_s=0, segment_bytes_max=400))
    segments = len(first.log_of(P0).segments)
    assert segments > 1
    second = await world.own()
    before = await all_bytes(second)
    hold = Hold("create", "lanes/0001/")
    world.store.before.append(hold)
    second.add(LogStartMoved(P0, second.log_of(P0).segments[0].last_offset + 1))
    await hold.reached.wait()
    await sweep_segments(second)
    third = await world.own(store=world.memory)
    assert await all_bytes(third) == before


@simulated
async def test_a_sweep_removes_what_an_earlier_claim_left_and_nothing_of_a_newer_one(world: World):
    first = await written(world)
    await rewrite(first, NOW)
    name = first.log_of(P0).segments[0].name
    prefix = f"topics/{P0.topic_id}/{P0.partition:06d}/"
    orphan = f"{prefix}{name[:-8]}00000000"
    await world.memory.create(orphan, [b"left by a crash"])
    stale = await world.own(broker=2)
    newest = await world.own(broker=3)
    append(newest, P0, [b"new"])
    await flush(newest)
    await rewrite(newest, RewriteSettings(delete_delay_s=0, segment_bytes_max=1))
    before = await all_bytes(newest)
    await world.memory.create(f"{prefix}a-stranger", [b"not ours to judge"])
    assert await sweep_segments(stale) == 1
    assert orphan not in await world.keys(prefix)
    assert f"{prefix}a-stranger" in await world.keys(prefix)
    assert await all_bytes(newest) == before


@BOTH
@simulated
async def test_a_fenced_owner_stops_rewriting_before_it_deletes_anything(
    world: World, settings: RewriteSettings
):
    stale = await written(world)
    before = await all_bytes(stale)
    newest = await world.own(broker=2)
    with pytest.raises(Fenced):
        await rewrite(stale, settings)
    newest.tail.forget(newest.lane)
    assert await all_bytes(newest) == before
    assert len(await world.keys("lanes/0001/")) == 8


@simulated
async def test_a_purge_by_a_fenced_owner_deletes_nothing(world: World):
    stale = await written(world)
    await rewrite(stale, NOW)
    newest = await world.own(broker=2)
    before = await all_bytes(newest)
    stale.add(PartitionRemoved(P0))
    with pytest.raises(Fenced):
        await purge_removed(stale)
    assert await all_bytes(newest) == before


@simulated
async def test_small_segments_are_merged_and_their_number_stays_small(world: World):
    lane = await world.own()
    counts: list[int] = []
    for _ in range(20):
        await append_all(lane, 3)
        await rewrite(lane, NOW)
        counts.append(len(lane.log_of(P0).segments))
    assert max(counts) <= 6
    assert len(await world.keys("topics/")) == counts[-1]
    cut = await all_bytes(lane)
    assert cut == await all_bytes(await world.own())


@simulated
async def test_a_segment_is_never_larger_than_its_bound_where_batches_allow(world: World):
    lane = await written(world)
    await rewrite(lane, RewriteSettings(delete_delay_s=0, segment_bytes_max=500))
    assert all(s.size_bytes <= 500 for s in lane.log_of(P0).segments)


@simulated
async def test_rewriting_is_due_by_objects_by_runs_or_by_bytes(world: World):
    lane = await written(world, 3)
    assert not is_due(lane, RewriteSettings())
    assert is_due(lane, RewriteSettings(entries_max=4))
    assert not is_due(lane, RewriteSettings(entries_max=5))
    assert is_due(lane, RewriteSettings(runs_max=6))
    assert is_due(lane, RewriteSettings(bytes_max=100))
    await rewrite(lane, NOW)
    assert not is_due(lane, RewriteSettings(entries_max=4, runs_max=1, bytes_max=1))


@simulated
async def test_a_recovery_that_runs_while_the_lane_is_rewritten_sees_one_of_both_layouts(
    world: World,
):
    lane = await written(world)
    before = await all_bytes(lane)
    hold = Hold("read", "lanes/0001/00000000000000000001")
    other = type(world.store)(world.memory)
    other.before.append(hold)
    recovering = asyncio.ensure_future(world.own(store=other, broker=2))
    await hold.reached.wait()
    await rewrite(lane, NOW)
    hold.go.set()
    assert await all_bytes(await recovering) == before


@simulated
async def test_a_reading_of_a_vanished_object_says_so_in_the_end(world: World):
    lane = await written(world)
    lane.tail.forget(lane.lane)
    await world.memory.delete(["lanes/0001/00000000000000000001"])
    with pytest.raises(ObjectNotFound):
        await all_bytes(lane)


def test_the_claim_of_a_segment_is_read_from_its_name():
    assert claim_in(f"{5:020d}-{9:020d}-{3:020d}-0011aabb") == 3
    for strange in ("", "a-b-c-d", "5-9", "5-9-3-x-y", "index"):
        assert claim_in(strange) is None


@simulated
async def test_what_was_rewritten_is_recovered_from_the_snapshot_alone(world: World):
    lane = await written(world)
    await rewrite(lane, NOW)
    recovered = await recover(world.store, world.environment(), lane.lane, LogStateKind())
    assert recovered.entries_read == 0
    assert recovered.state.encode() == lane.state.encode()


@simulated
async def test_what_an_object_holds_from_before_a_removal_is_in_no_log_and_in_no_segment(
    world: World,
):
    lane = await world.own()
    append(lane, P1, [b"before it"])
    append(lane, P0, [b"gone"])
    lane.add(PartitionRemoved(P0))
    append(lane, P0, [b"new"])
    await flush(lane)
    expected = [await all_bytes(lane, p) for p in (P0, P1)]
    assert b"new" in expected[0] and b"gone" not in expected[0]
    await rewrite(lane, NOW)
    for owner in (lane, await world.own()):
        assert [await all_bytes(owner, p) for p in (P0, P1)] == expected
