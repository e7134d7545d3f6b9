"""A rewriting in steps: each is durable by itself, reads an object once, and holds little."""

import asyncio
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from tests.support.async_tests import simulated
from tests.support.batches import batch
from tests.support.lanes import LANE, P0, P1, World, append, append_batch, claim_of, flush, simulate
from tests.support.stores import Hold
from tests.unit.log.rewriting import IN_STEPS, NOW, all_bytes, written

from holdfast.environment import SystemEnvironment
from holdfast.errors import CorruptObject, StoreUnavailable
from holdfast.identifiers import PartitionId
from holdfast.lane.claim import claim_lane
from holdfast.lane.keys import entry_key
from holdfast.lane.pending import GroupSettings
from holdfast.log.data_lane import DataLane
from holdfast.log.facts import LogStartMoved, PartitionRemoved
from holdfast.log.lane_pass import (
    REST_MAX_S,
    RESTS,
    RUN_COST_BYTES,
    WORK_MIN_S,
    Pace,
    open_payload,
    plan_step,
    slice_run,
)
from holdfast.log.memory import Payload, ReadCache, Tail
from holdfast.log.rewriter import LARGE_PART, RewriteSettings, rewrite, sweep_segments
from holdfast.log.state import LogStateKind
from holdfast.store.directory import DirectoryStore

OBJECTS = 9


async def both(lane: DataLane) -> list[bytes]:
    return [await all_bytes(lane, p) for p in (P0, P1)]


def numbers_read(world: World, since: int) -> list[int]:
    """The lane objects that were read, each as often as it was; which came first is left open."""
    keys = [key for operation, key in world.store.calls[since:] if operation == "read"]
    return sorted(int(key.rsplit("/", 1)[-1]) for key in keys if key.startswith("lanes/"))


@simulated
async def test_each_object_is_read_once_however_many_partitions_it_holds(world: World):
    lane = await written(world, OBJECTS)
    lane.tail.forget(lane.lane)
    before = len(world.store.calls)
    await rewrite(lane, IN_STEPS)
    assert numbers_read(world, before) == list(range(1, OBJECTS + 1))


@simulated
async def test_what_the_tail_holds_is_not_read(world: World):
    lane = await written(world, OBJECTS)
    before = len(world.store.calls)
    await rewrite(lane, IN_STEPS)
    assert numbers_read(world, before) == []


@pytest.mark.parametrize("facts", range(1, 5))
@simulated
async def test_a_crash_undoes_one_step_and_the_next_owner_goes_on_from_there(
    world: World, facts: int
):
    lane = await written(world, OBJECTS)
    expected = await both(lane)
    lane.tail.forget(lane.lane)
    # The fact of step n is the nth object after what was written.
    hold = Hold("create", entry_key(LANE, OBJECTS + 1 + facts))
    world.store.before.append(hold)
    dying = asyncio.ensure_future(rewrite(lane, IN_STEPS))
    await hold.reached.wait()
    world.store.before.clear()
    fresh = await world.own(tail_bytes=0)
    assert fresh.state.rewritten_up_to == 2 * facts
    assert await both(fresh) == expected
    since = len(world.store.calls)
    await rewrite(fresh, IN_STEPS)
    assert numbers_read(world, since) == list(range(2 * facts + 1, OBJECTS + 1))
    assert await both(fresh) == expected
    dying.cancel()


@simulated
async def test_owners_that_live_for_one_step_each_come_to_the_end_together(world: World):
    lane = await written(world, OBJECTS)
    expected = await both(lane)
    lives = 0
    dying: list[asyncio.Future[int]] = []
    while len(fresh_runs := lane.log_of(P0).runs):
        lives += 1
        assert lives <= OBJECTS, f"{len(fresh_runs)} runs are left"
        lane = await world.own(tail_bytes=0)
        end = entry_key(LANE, lane.cursor.next_number)
        hold = Hold("create", end)
        world.store.after.append(hold)
        dying.append(asyncio.ensure_future(rewrite(lane, IN_STEPS)))
        await hold.reached.wait()
        world.store.after.clear()
        lane = await world.own(tail_bytes=0)
        assert await both(lane) == expected
    assert lives == 5
    await sweep_segments(lane)
    await rewrite(lane, NOW)
    assert await both(lane) == expected
    left = {int(key.rsplit("/", 1)[-1]) for key in await world.keys("lanes/0001/")}
    assert min(left - set(lane.state.claims)) > lane.state.rewritten_up_to > OBJECTS
    named = {s.name for log in lane.state.partitions.values() for s in log.segments}
    assert {key.rsplit("/", 1)[-1] for key in await world.keys("topics/")} == named
    for task in dying:
        task.cancel()


@pytest.mark.parametrize(("age_s", "left"), [(59.0, OBJECTS), (61.0, 0)])
@simulated
async def test_what_an_owner_before_had_rewritten_goes_when_this_claim_is_as_old_as_the_delay(
    world: World, age_s: float, left: int
):
    delayed = RewriteSettings(delete_delay_s=60)
    first = await written(world, OBJECTS)
    expected = await both(first)
    dying = asyncio.ensure_future(rewrite(first, delayed))
    await asyncio.sleep(1)
    assert not len(first.log_of(P0).runs)
    second = await world.own(broker=2)
    dying.cancel()
    await asyncio.sleep(age_s)
    append(second, P0, [b"more"])
    await flush(second)
    hold = Hold("create", "topics/")
    world.store.before.append(hold)
    rewriting = asyncio.ensure_future(rewrite(second, delayed))
    await hold.reached.wait()
    keys = set(await world.keys("lanes/0001/"))
    assert len(keys & {entry_key(LANE, n) for n in range(1, OBJECTS + 1)}) == left
    hold.go.set()
    await rewriting
    third = await world.own()
    assert (await all_bytes(third)).startswith(expected[0])
    assert entry_key(LANE, 1) not in await world.keys("lanes/0001/")


@pytest.mark.parametrize("seed", range(6))
def test_readers_that_never_stop_see_the_same_bytes_while_steps_go_on_beneath_them(seed: int):
    async def test(world: World) -> None:
        lane = await world.own(tail_bytes=0, cache_bytes=0)
        for i in range(OBJECTS):
            append(lane, P0, [b"a%d" % i])
            append(lane, P1, [b"b%d" % i])
            await flush(lane)
        expected = await both(lane)
        chance = world.environment().random()

        async def slowly(operation: str, key: str) -> None:
            await asyncio.sleep(chance.random() / 10)

        world.store.before.append(slowly)
        rounds = 0

        async def read() -> None:
            nonlocal rounds
            while not rewriting.done():
                assert await both(lane) == expected
                rounds += 1

        rewriting = asyncio.ensure_future(rewrite(lane, IN_STEPS))
        await asyncio.gather(read(), read(), read())
        await rewriting
        assert rounds > 3
        assert await both(lane) == expected
        assert not len(lane.log_of(P0).runs)

    simulate(test, seed)


@pytest.mark.parametrize("fact", [PartitionRemoved(P0), LogStartMoved(P0, 9)])
@simulated
async def test_what_happens_to_a_partition_between_two_steps_holds_afterwards(
    world: World, fact: PartitionRemoved | LogStartMoved
):
    lane = await written(world, OBJECTS)
    expected = await all_bytes(lane, P1)
    hold = Hold("create", entry_key(LANE, OBJECTS + 2))
    world.store.after.append(hold)
    rewriting = asyncio.ensure_future(rewrite(lane, IN_STEPS))
    await hold.reached.wait()
    lane.add(fact)
    hold.go.set()
    await rewriting
    for owner in (lane, await world.own()):
        assert await all_bytes(owner, P1) == expected
        if isinstance(fact, LogStartMoved):
            assert owner.log_of(P0).log_start_offset == 9
            assert await all_bytes(owner)
        else:
            assert P0 not in owner.state.partitions


@pytest.mark.parametrize("harm", ["payload", "another number", "cut short"])
@simulated
async def test_a_harmed_object_ends_the_rewriting_before_anything_is_deleted(
    world: World, harm: str
):
    lane = await written(world, OBJECTS)
    lane.tail.forget(lane.lane)
    key = entry_key(LANE, 5)
    body = await world.body(key)
    await world.replace(
        key,
        {
            "payload": body[:-1] + bytes([body[-1] ^ 1]),
            "another number": await world.body(entry_key(LANE, 4)),
            "cut short": body[:-1],
        }[harm],
    )
    with pytest.raises(CorruptObject, match=key):
        await rewrite(lane, IN_STEPS)
    assert lane.state.rewritten_up_to == 4
    keys = await world.keys("lanes/0001/")
    assert all(entry_key(LANE, n) in keys for n in range(OBJECTS + 1))
    assert len(lane.log_of(P0).runs) == OBJECTS - 4


def test_an_object_that_cannot_be_read_for_a_while_is_read_again():
    async def test(world: World) -> None:
        lane = await written(world, OBJECTS)
        expected = await both(lane)
        lane.tail.forget(lane.lane)
        failures = 5

        async def fails(operation: str, key: str) -> None:
            nonlocal failures
            if operation == "read" and failures:
                failures -= 1
                raise StoreUnavailable("not now")

        world.store.before.append(fails)
        await rewrite(lane, IN_STEPS)
        assert failures == 0
        assert await both(lane) == expected

    simulate(test)


def peak_of_a_rewrite(folder: Path, step_bytes: int) -> int:
    """The most bytes that Python held at a time while 24 MiB of lane objects were rewritten."""
    partitions, object_bytes, objects = 8, 512 * 1024, 48

    async def test() -> int:
        environment = SystemEnvironment()
        store = DirectoryStore(str(folder), sync=False)
        claimed = await claim_lane(store, environment, LANE, LogStateKind(), claim_of())
        lane = DataLane(
            store=store,
            environment=environment,
            claimed=claimed,
            settings=GroupSettings(),
            tail=Tail(0),
            cache=ReadCache(0),
            on_lost=lambda _: None,
        )
        for _ in range(objects):
            for p in range(partitions):
                value = b"x" * (object_bytes // partitions)
                append_batch(lane, batch([value]), PartitionId(P0.topic_id, p))
            await flush(lane)
        settings = RewriteSettings(
            delete_delay_s=0, step_bytes_max=step_bytes, segment_bytes_max=2 * 1024 * 1024
        )
        tracemalloc.start()
        written_bytes = await rewrite(lane, settings)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert written_bytes >= objects * object_bytes
        assert all(not len(log.runs) for log in lane.state.partitions.values())
        await lane.close(release=False)
        await store.close()
        return peak

    return asyncio.run(test())


def test_a_step_holds_no_more_than_its_bound_in_memory(tmp_path: Path):
    """In a process of its own: what other tests have running in this one would count, too."""
    step_bytes = 4 * 1024 * 1024
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as own:
        peak = own.submit(peak_of_a_rewrite, tmp_path, step_bytes).result(timeout=120)
    assert peak < step_bytes + 2 * 1024 * 1024


@simulated
async def test_a_step_takes_the_oldest_objects_within_its_bounds_and_at_least_one(world: World):
    lane = await written(world, OBJECTS)
    size = sum(log.runs.size[0] for log in lane.state.partitions.values())
    cost = size + 2 * RUN_COST_BYTES

    def planned(bytes_max: int, entries_max: int, up_to: int = OBJECTS) -> tuple[int, list]:
        step = plan_step(lane.state, up_to, bytes_max=bytes_max, entries_max=entries_max)
        return step.up_to, list(step.objects)

    assert planned(1 << 30, 100) == (OBJECTS, list(range(1, OBJECTS + 1)))
    assert planned(1 << 30, 4) == (4, [1, 2, 3, 4])
    assert planned(3 * cost, 100) == (3, [1, 2, 3])
    assert planned(3 * cost - 1, 100) == (2, [1, 2])
    assert planned(1, 1) == (1, [1])
    assert planned(1 << 30, 100, up_to=5) == (5, [1, 2, 3, 4, 5])
    assert planned(1 << 30, OBJECTS) == (OBJECTS, list(range(1, OBJECTS + 1)))
    assert planned(1 << 30, 4, up_to=0) == (0, [])


@simulated
async def test_a_step_counts_objects_over_all_partitions_not_of_each(world: World):
    lane = await world.own()
    for i in range(8):
        append(lane, P0 if i % 2 else P1)
        await flush(lane)
    step = plan_step(lane.state, 8, bytes_max=1 << 30, entries_max=3)
    assert (step.up_to, list(step.objects)) == (3, [1, 2, 3])
    assert sorted(len(part.runs) for part in step.partitions) == [1, 2]


@simulated
async def test_a_run_of_an_object_that_is_mostly_dead_is_copied_out_of_it(world: World):
    lane = await written(world, 1)
    log = lane.log_of(P0)
    run = log.runs.get(0)
    data = await world.body(entry_key(LANE, 1))
    payload = open_payload(data, LANE, 1, key="k")
    views = slice_run(payload, run, log, live_bytes=payload.size_bytes)
    copies = slice_run(payload, run, log, live_bytes=payload.size_bytes // 2 - 1)
    assert b"".join(views) == b"".join(copies)
    assert isinstance(views[0], memoryview) and isinstance(copies[0], bytes)


@simulated
async def test_a_run_that_is_not_what_the_log_says_is_refused(world: World):
    lane = await written(world, 2)
    log = lane.log_of(P0)
    run = log.runs.get(0)
    payload = lane.tail.get(LANE, 1)
    other = lane.tail.get(LANE, 2)
    assert payload is not None and other is not None
    with pytest.raises(CorruptObject, match="starts at offset 3"):
        slice_run(other, run, log, live_bytes=1 << 20)
    with pytest.raises(CorruptObject, match="bytes"):
        slice_run(
            Payload([payload.buffers[0]]),
            log.runs.get(0)._replace(size_bytes=1 << 20),
            log,
            live_bytes=1 << 20,
        )
    log.epochs[0] = log.epochs[0]._replace(leader_epoch=7)
    with pytest.raises(CorruptObject, match="leader epoch is 0; 7 is expected"):
        slice_run(payload, run, log, live_bytes=1 << 20)


@simulated
async def test_background_work_rests_by_the_time_that_any_of_it_was_under_way(world: World):
    environment = world.environment()
    pace = Pace(environment)

    async def work(seconds: float) -> None:
        with pace.working():
            await asyncio.sleep(seconds)

    async def rested() -> float:
        started = environment.monotonic()
        await pace.rest()
        return environment.monotonic() - started

    await asyncio.gather(work(1), work(1), work(1.5))
    await asyncio.sleep(100)
    assert await rested() == pytest.approx(RESTS * 1.5, rel=0.01)
    assert await rested() == 0
    await work(WORK_MIN_S / 2)
    assert await rested() == 0
    await work(WORK_MIN_S)
    assert await rested() == pytest.approx(RESTS * WORK_MIN_S * 1.5, rel=0.01)
    await work(1_000)
    assert await rested() == pytest.approx(REST_MAX_S, rel=0.01)


def test_a_rewriting_rests_twice_as_long_as_the_store_works_and_not_for_its_outages():
    async def test(world: World) -> None:
        lane = await written(world, OBJECTS)
        lane.tail.forget(lane.lane)
        worked_s = 0.0
        outage_ends = world.loop.time() + 20

        async def work(operation: str, key: str) -> None:
            nonlocal worked_s
            if world.loop.time() < outage_ends:
                raise StoreUnavailable("not now")
            if key.startswith("topics/") or operation == "read":
                worked_s += 0.1
                await asyncio.sleep(0.1)

        world.store.before.append(work)
        await rewrite(lane, RewriteSettings(delete_delay_s=0, step_entries_max=1))
        spent_s = world.loop.time() - outage_ends
        # Reads go ahead while what was read before is written: only that may overlap.
        assert 2 * worked_s < spent_s < (1 + RESTS) * worked_s + 6

    simulate(test)


@simulated
async def test_the_pieces_of_many_steps_are_merged_and_large_ones_are_left_alone(world: World):
    lane = await world.own(tail_bytes=0)
    settings = RewriteSettings(delete_delay_s=0, step_entries_max=1, segment_bytes_max=4_000)
    for round_ in range(6):
        for i in range(20):
            append(lane, P0, [b"%d of %d" % (i, round_)])
            await flush(lane)
        expected = await all_bytes(lane)
        await rewrite(lane, settings)
        assert await all_bytes(lane) == expected
        sizes = [segment.size_bytes for segment in lane.log_of(P0).segments]
        assert max(sizes) <= 4_000
        small = [size for size in sizes if size * LARGE_PART < 4_000]
        assert len(small) <= 5, sizes
        assert len(await world.keys("topics/")) == len(sizes)
    assert await all_bytes(await world.own()) == expected
