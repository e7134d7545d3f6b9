"""Seed 003: an acknowledged record could not be read until a flush, and was lost on a restart.

Here acknowledged means readable at once, through the real fetch path, across every window between
buffer, lane object and segment, and by a new process that has only the store.
"""

import asyncio
from pathlib import Path

import pytest
from tests.support.async_tests import simulated
from tests.support.brokers import lane_of, log_of, pass_time, simulate, topic, values_in
from tests.support.dispatched import Cluster, latest, poll, send, value_at
from tests.support.stores import Hold

from holdfast.broker.broker import Broker
from holdfast.broker.maintenance import Maintenance
from holdfast.broker.settings import BrokerSettings
from holdfast.environment import SystemEnvironment
from holdfast.identifiers import BrokerId
from holdfast.lane.pending import GroupSettings
from holdfast.log.rewriter import RewriteSettings, rewrite
from holdfast.protocol.api import ErrorCode
from holdfast.store.directory import DirectoryStore

NEVER = RewriteSettings(entries_max=1 << 40, bytes_max=1 << 60, runs_max=1 << 40)


async def serving(world: Cluster, **settings: object) -> Broker:
    broker = await world.broker(**{"rewrite": NEVER, **settings})
    await topic(broker)
    return broker


async def acked(broker: Broker, count: int, start: int = 0) -> None:
    for i in range(start, start + count):
        done = await send(broker, [b"record %d" % i])
        assert (done.error_code, done.base_offset) == (0, i)


async def assert_all_readable(broker: Broker, count: int) -> None:
    for offset in range(count):
        assert await value_at(broker, offset) == b"record %d" % offset
    assert await latest(broker) == (count, 0)


@pytest.mark.parametrize("tail_bytes", [1 << 20, 0])
@simulated
async def test_ten_acknowledged_batches_are_readable_though_nothing_was_rewritten(
    world: Cluster, tail_bytes: int
):
    broker = await serving(world, tail_bytes=tail_bytes)
    for i in range(10):
        await acked(broker, 1, i)
        assert await value_at(broker, i) == b"record %d" % i
    await assert_all_readable(broker, 10)
    assert await world.keys("topics/") == []


@simulated
async def test_a_partition_that_goes_quiet_after_one_record_is_readable_at_once(world: Cluster):
    broker = await serving(world)
    await acked(broker, 1)
    before = world.loop.time()
    assert await value_at(broker, 0) == b"record 0"
    assert world.loop.time() == before


@simulated
async def test_a_waiting_consumer_gets_the_record_with_its_acknowledgement(world: Cluster):
    broker = await serving(world, group=GroupSettings(linger_ms=200))
    waiting = asyncio.ensure_future(poll(broker, 0, max_wait_ms=60_000))
    await acked(broker, 1)
    acked_at = world.loop.time()
    assert values_in(await waiting) == [b"record 0"]
    assert world.loop.time() == acked_at


@simulated
async def test_while_the_put_is_under_way_nothing_that_is_not_acknowledged_is_visible(
    world: Cluster,
):
    broker = await serving(world)
    await acked(broker, 3)
    hold = Hold("create", "lanes/0001/")
    world.store.before.append(hold)
    sending = asyncio.ensure_future(send(broker, [b"record 3"]))
    await hold.reached.wait()
    assert await latest(broker) == (3, 0)
    everything = await poll(broker, 0)
    assert everything.high_watermark == 3
    assert len(values_in(everything)) == 3
    at_the_end = await poll(broker, 3)
    assert (at_the_end.error_code, values_in(at_the_end)) == (0, [])
    beyond = await poll(broker, 4)
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    hold.go.set()
    assert (await sending).base_offset == 3
    await assert_all_readable(broker, 4)


@simulated
async def test_after_the_put_landed_but_before_its_answer_a_new_process_has_the_record(
    world: Cluster,
):
    mine = world.store_of_its_own()
    broker = await world.broker(1, store=mine, rewrite=NEVER)
    await topic(broker)
    await acked(broker, 2)
    hold = Hold("create", "lanes/0001/")
    mine.after.append(hold)
    sending = asyncio.ensure_future(send(broker, [b"record 2"]))
    await hold.reached.wait()
    assert await latest(broker) == (2, 0)
    sending.cancel()
    await assert_all_readable(await world.broker(2), 3)


@simulated
async def test_thirty_batches_stay_readable_over_rewritings_every_three(world: Cluster):
    broker = await serving(world)
    for i in range(30):
        await acked(broker, 1, i)
        if i % 3 == 2:
            await rewrite(lane_of(broker), RewriteSettings(delete_delay_s=0))
        await assert_all_readable(broker, i + 1)
    assert log_of(broker).segments
    await assert_all_readable(await world.broker(2), 30)


@pytest.mark.parametrize("seed", range(4))
def test_readers_that_never_stop_see_every_record_while_rewritings_go_on_beneath_them(seed: int):
    async def test(world: Cluster) -> None:
        settings = RewriteSettings(entries_max=4, delete_delay_s=0, segment_bytes_max=600)
        broker = await serving(
            world, rewrite=settings, maintenance_interval_s=0.05, tail_bytes=300, cache_bytes=500
        )
        maintenance = Maintenance(broker)
        maintenance.start()
        written = 0

        async def write() -> None:
            nonlocal written
            for i in range(40):
                await acked(broker, 1, i)
                written = i + 1
                await pass_time(0.02)

        async def read(start: int) -> None:
            while written < 40:
                known = written
                for offset in range(start % max(known, 1), known):
                    assert await value_at(broker, offset) == b"record %d" % offset
                await pass_time(0.03)

        await asyncio.gather(write(), read(0), read(7), read(19))
        await maintenance.stop()
        assert log_of(broker).segments
        await assert_all_readable(broker, 40)

    simulate(test, seed)


@pytest.mark.parametrize("step", ["segment", "fact", "snapshot", "floor", "delete"])
@simulated
async def test_in_the_window_before_each_step_of_a_rewriting_every_record_is_readable(
    world: Cluster, step: str
):
    broker = await serving(world, tail_bytes=0, cache_bytes=0)
    await acked(broker, 6)
    operation, key = {
        "segment": ("create", "topics/"),
        "fact": ("create", "lanes/0001/"),
        "snapshot": ("create", "snapshots/0001/"),
        "floor": ("create", "floors/0001/"),
        "delete": ("delete", "lanes/0001/"),
    }[step]
    for count, hooks in ((7, world.store.before), (8, world.store.after)):
        await acked(broker, 1, count - 1)
        hold = Hold(operation, key)
        hooks.append(hold)
        rewriting = asyncio.ensure_future(
            rewrite(lane_of(broker), RewriteSettings(delete_delay_s=0))
        )
        await hold.reached.wait()
        for offset in range(count):
            assert await value_at(broker, offset) == b"record %d" % offset
        hooks.remove(hold)
        hold.go.set()
        await rewriting
        await assert_all_readable(broker, count)


@pytest.mark.parametrize("max_bytes", [0, -1, -(1 << 31), 1])
@pytest.mark.parametrize("where", ["tail", "objects", "segments"])
@simulated
async def test_a_bound_of_zero_gives_the_first_matching_batch_and_only_that(
    world: Cluster, max_bytes: int, where: str
):
    broker = await serving(world, tail_bytes=1 << 20 if where == "tail" else 0)
    size = 5_000
    hold = Hold("create", "lanes/0001/")
    world.store.before.append(hold)
    sends = [asyncio.ensure_future(send(broker, [b"%d" % i * size])) for i in range(5)]
    await hold.reached.wait()
    await pass_time(1)
    hold.go.set()
    await asyncio.gather(*sends)
    if where == "segments":
        await rewrite(lane_of(broker), RewriteSettings(delete_delay_s=0))
    for offset in range(5):
        part = await poll(broker, offset, max_bytes=max_bytes)
        (value,) = values_in(part)
        assert value is not None and len(value) == size
        assert part.high_watermark == 5


@pytest.mark.parametrize("moment", ["tail only", "after snapshots", "after rewriting"])
@simulated
async def test_after_a_kill_a_new_process_with_only_the_store_reads_every_acknowledged_record(
    world: Cluster, moment: str
):
    broker = await serving(world, snapshot_every=3 if moment == "after snapshots" else 1_000)
    await acked(broker, 12)
    if moment == "after rewriting":
        await rewrite(lane_of(broker), RewriteSettings(delete_delay_s=0))
        await acked(broker, 4, 12)
    count = log_of(broker).high_watermark
    for generation in range(2, 5):
        broker = await world.broker(generation, rewrite=NEVER)
        await assert_all_readable(broker, count)
        await acked(broker, 1, count)
        count += 1


def test_on_a_real_directory_a_new_process_reads_what_the_killed_one_acknowledged(tmp_path: Path):
    def broker_on(path: Path, number: int) -> Broker:
        settings = BrokerSettings(
            broker_id=BrokerId(number),
            host="broker",
            port=9092,
            lanes=1,
            rewrite=NEVER,
            group=GroupSettings(claim_valid_ms=20),
        )
        store = DirectoryStore(str(path))
        return Broker(store=store, environment=SystemEnvironment(), settings=settings)

    async def killed() -> None:
        broker = broker_on(tmp_path, 1)
        await broker.start()
        await topic(broker)
        await acked(broker, 20)
        await assert_all_readable(broker, 20)
        await broker.store.close()

    async def restarted() -> None:
        broker = broker_on(tmp_path, 1)
        await broker.start()
        await assert_all_readable(broker, 20)
        await acked(broker, 1, 20)
        await broker.stop(release=True)
        await broker.store.close()

    asyncio.run(asyncio.wait_for(killed(), 30))
    asyncio.run(asyncio.wait_for(restarted(), 30))


def test_every_record_acknowledged_before_a_kill_at_any_call_of_the_store_is_read_after_it():
    for k in range(4, 60, 3):

        async def test(world: Cluster, k: int = k) -> None:
            mine = world.store_of_its_own()
            left = k

            async def die(operation: str, key: str) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    await asyncio.Event().wait()

            broker = await world.broker(1, store=mine, rewrite=NEVER, snapshot_every=4)
            await topic(broker)
            mine.after.append(die)
            told: list[int] = []

            async def write() -> None:
                for i in range(40):
                    done = await send(broker, [b"record %d" % i])
                    if done.error_code == 0:
                        told.append(done.base_offset)

            writing = asyncio.ensure_future(write())
            await asyncio.wait({writing}, timeout=20)
            writing.cancel()
            again = await world.broker(2)
            for offset in told:
                assert await value_at(again, offset) == b"record %d" % offset
            assert (await latest(again))[0] >= len(told)

        simulate(test)
