"""Fetch: what is durable and nothing else, at once, whole batches, also while the store is away."""

import asyncio

import pytest
from tests.support.async_tests import simulated
from tests.support.brokers import (
    VALID_MS,
    Ask,
    Cluster,
    fetch,
    fetch_all,
    lane_of,
    list_offset,
    log_of,
    pass_time,
    produce,
    read_log,
    records_in,
    topic,
    values_in,
)
from tests.support.stores import Hold, out_of_reach

from holdfast.broker.broker import Broker
from holdfast.lane.pending import GroupSettings
from holdfast.log.facts import LogStartMoved
from holdfast.log.rewriter import RewriteSettings, rewrite
from holdfast.protocol.api import ErrorCode

VALID_S = VALID_MS / 1000


async def serving(world: Cluster, records: int = 3, **settings: object) -> Broker:
    broker = await world.broker(**settings)
    await topic(broker)
    for i in range(records):
        await produce(broker, [b"value %d" % i])
    return broker


@simulated
async def test_records_come_with_the_high_watermark_and_their_leader_epoch(world: Cluster):
    broker = await serving(world)
    part = await fetch(broker)
    assert values_in(part) == [b"value 0", b"value 1", b"value 2"]
    assert (part.high_watermark, part.last_stable_offset, part.log_start_offset) == (3, 3, 0)


@simulated
async def test_an_offset_inside_a_batch_gives_the_whole_batch(world: Cluster):
    broker = await serving(world, 0)
    await produce(broker, [b"a", b"b", b"c"])
    assert values_in(await fetch(broker, 2)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("offset", [-1, 4, 1 << 62])
@simulated
async def test_an_offset_outside_the_log_is_out_of_range(world: Cluster, offset: int):
    broker = await serving(world)
    part = await fetch(broker, offset, max_wait_ms=60_000)
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert world.loop.time() < 1


@pytest.mark.parametrize("max_bytes", [0, -1, 1])
@pytest.mark.parametrize("offset", [0, 1, 2])
@pytest.mark.parametrize("size", [10, 6_000])
@simulated
async def test_a_bound_of_nothing_still_gives_one_batch(
    world: Cluster, max_bytes: int, offset: int, size: int
):
    broker = await serving(world, 0)
    await asyncio.gather(*(produce(broker, [b"%d" % i * size]) for i in range(3)))
    part = await fetch(broker, offset, max_bytes=max_bytes)
    assert [record.offset for record in records_in(part)] == [offset]


@simulated
async def test_a_response_bound_is_shared_by_the_partitions_and_only_the_first_may_exceed_it(
    world: Cluster,
):
    broker = await world.broker()
    await topic(broker, partitions=3)
    for i in range(3):
        await produce(broker, [b"x" * 1_000], partition=i)
    asks = [Ask(partition=i) for i in range(3)]
    for bound, served in [(0, 1), (1_500, 1), (2_500, 2), (10_000, 3)]:
        response = await fetch_all(broker, asks, max_bytes=bound)
        parts = response.responses[0].partitions if len(response.responses) == 1 else []
        assert sum(1 for part in parts if part.records) == served


@simulated
async def test_a_fetch_at_the_end_waits_and_is_woken_by_the_first_record(world: Cluster):
    broker = await serving(world)
    waiting = asyncio.ensure_future(fetch(broker, 3, max_wait_ms=30_000))
    await pass_time(10)
    assert not waiting.done()
    await produce(broker, [b"awaited"])
    assert values_in(await waiting) == [b"awaited"]
    assert world.loop.time() < 11
    assert not lane_of(broker)._watchers  # pyright: ignore[reportPrivateUsage]


@simulated
async def test_a_fetch_waits_for_as_many_bytes_as_it_asked_for_and_no_longer_than_it_said(
    world: Cluster,
):
    broker = await serving(world, 0)
    waiting = asyncio.ensure_future(fetch(broker, max_wait_ms=30_000, min_bytes=250))
    for _ in range(3):
        await pass_time(1)
        assert not waiting.done()
        await produce(broker, [b"x" * 20])
    assert len(records_in(await waiting)) == 3
    empty = await fetch(broker, 3, max_wait_ms=7_000, min_bytes=1)
    assert empty.records == [] and empty.error_code == 0
    assert 9 < world.loop.time() < 11


@simulated
async def test_a_fetch_that_is_cancelled_leaves_no_watch_behind(world: Cluster):
    broker = await serving(world)
    waiting = asyncio.ensure_future(fetch(broker, 3, max_wait_ms=30_000))
    await pass_time(1)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert not lane_of(broker)._watchers  # pyright: ignore[reportPrivateUsage]


@simulated
async def test_a_waiting_fetch_hears_at_once_that_the_lane_was_lost(world: Cluster):
    old = await serving(world)
    waiting = asyncio.ensure_future(fetch(old, 3, max_wait_ms=600_000))
    await pass_time(1)
    await world.broker(2)
    await produce(old)
    part = await waiting
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert part.high_watermark == -1


@simulated
async def test_what_is_not_durable_yet_is_not_served(world: Cluster):
    broker = await serving(world)
    hold = Hold("create", "lanes/0001/")
    world.store.before.append(hold)
    producing = asyncio.ensure_future(produce(broker, [b"under way"]))
    await hold.reached.wait()
    part = await fetch(broker)
    assert (part.high_watermark, len(records_in(part))) == (3, 3)
    assert (await fetch(broker, 4)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    hold.go.set()
    assert (await producing).base_offset == 3
    assert values_in(await fetch(broker, 3)) == [b"under way"]


@simulated
async def test_while_the_store_is_away_known_records_are_served_without_a_high_watermark(
    world: Cluster,
):
    broker = await serving(world)
    await pass_time(VALID_S + 1)
    world.store.before.append(out_of_reach)
    part = await fetch(broker, 1)
    assert values_in(part) == [b"value 1", b"value 2"]
    assert (part.high_watermark, part.last_stable_offset) == (-1, -1)
    assert part.log_start_offset == -1
    at_the_end = await fetch(broker, 3)
    assert at_the_end.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    beyond = await fetch(broker, 4)
    assert beyond.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert beyond.log_start_offset == -1
    world.store.before.clear()
    await pass_time(1)
    assert (await fetch(broker, 3)).high_watermark == 3


@simulated
async def test_an_outage_costs_a_request_one_wait_and_not_one_for_each_partition(world: Cluster):
    broker = await world.broker()
    await topic(broker, partitions=50)
    for i in range(50):
        await produce(broker, partition=i)
    await pass_time(VALID_S + 1)
    world.store.before.append(out_of_reach)
    started = world.loop.time()
    response = await fetch_all(broker, [Ask(partition=i) for i in range(50)])
    assert sum(len(t.partitions) for t in response.responses) == 50
    assert all(len(records_in(p)) == 1 for t in response.responses for p in t.partitions)
    assert world.loop.time() - started < 10
    assert (await list_offset(broker)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


@simulated
async def test_an_outage_costs_a_request_for_records_that_are_not_in_memory_one_wait_too(
    world: Cluster,
):
    broker = await world.broker(
        tail_bytes=0, cache_bytes=0, group=GroupSettings(claim_valid_ms=600_000)
    )
    await topic(broker, partitions=20)
    for i in range(20):
        await produce(broker, partition=i)
    world.store.before.append(out_of_reach)
    started = world.loop.time()
    response = await fetch_all(broker, [Ask(partition=i) for i in range(20)])
    errors = {p.error_code for t in response.responses for p in t.partitions}
    assert errors == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert world.loop.time() - started < 40


@simulated
async def test_what_was_read_once_stays_readable_while_the_store_is_away(world: Cluster):
    broker = await serving(world, tail_bytes=0)
    await rewrite(lane_of(broker), RewriteSettings(delete_delay_s=0))
    assert len(await read_log(broker)) == 3
    await pass_time(VALID_S + 1)
    world.store.before.append(out_of_reach)
    part = await fetch(broker)
    assert (part.error_code, part.high_watermark, len(records_in(part))) == (0, -1, 3)


@simulated
async def test_after_an_outage_the_first_answer_is_whole_again(world: Cluster):
    broker = await serving(world)
    await pass_time(VALID_S + 1)
    world.store.before.append(out_of_reach)
    assert (await fetch(broker)).high_watermark == -1
    world.store.before.clear()
    await pass_time(1)
    assert (await fetch(broker)).high_watermark == 3


@simulated
async def test_an_object_that_vanished_is_a_storage_error_and_never_an_invitation_to_skip(
    world: Cluster,
):
    broker = await serving(world, tail_bytes=0)
    await world.memory.delete([f"lanes/0001/{1:020d}"])
    assert (await fetch(broker)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert values_in(await fetch(broker, 1)) == [b"value 1", b"value 2"]


@simulated
async def test_records_that_were_deleted_while_they_were_read_are_out_of_range(world: Cluster):
    broker = await serving(world, tail_bytes=0)
    hold = Hold("read", f"lanes/0001/{1:020d}")
    world.store.before.append(hold)
    reading = asyncio.ensure_future(fetch(broker))
    await hold.reached.wait()
    lane = lane_of(broker)
    lane.add(LogStartMoved(log_of(broker).partition, 2))
    await lane.flush()
    await world.memory.delete([f"lanes/0001/{1:020d}"])
    hold.go.set()
    part = await reading
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert part.log_start_offset == 2


@pytest.mark.parametrize("part_of_key", ["lanes/0001/", "topics/"])
@simulated
async def test_harmed_bytes_are_a_storage_error_and_are_served_as_soon_as_they_are_whole(
    world: Cluster, part_of_key: str
):
    broker = await serving(world, tail_bytes=0)
    if part_of_key == "topics/":
        await rewrite(lane_of(broker), RewriteSettings(delete_delay_s=0))
    keys = await world.keys(part_of_key)
    key = next(key for key in keys if not key.endswith(f"{0:020d}"))
    whole = await world.body(key)
    harmed = bytearray(whole)
    harmed[-1] ^= 1
    await world.replace(key, bytes(harmed))
    part = await fetch(broker, max_bytes=1)
    assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not part.records
    await world.replace(key, whole)
    assert [r.offset for r in await read_log(broker)] == [0, 1, 2]


@simulated
async def test_leader_epochs_that_differ_are_refused_by_name(world: Cluster):
    await serving(world)
    broker = await world.broker(2)
    assert (await fetch(broker, epoch=1)).error_code == 0
    assert (await fetch(broker, epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (await fetch(broker, epoch=2)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@simulated
async def test_a_client_that_knows_a_newer_leader_epoch_makes_a_stale_broker_look_at_once(
    world: Cluster,
):
    old = await serving(world)
    starting = asyncio.ensure_future(world.broker(2))
    await pass_time(0.5)
    assert (await fetch(old, epoch=0)).error_code == 0
    part = await fetch(old, epoch=1)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await starting


@simulated
async def test_unknown_topics_and_partitions_are_refused(world: Cluster):
    broker = await serving(world)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await fetch(broker, name="nope")).error_code == unknown
    assert (await fetch(broker, partition=1)).error_code == unknown
    assert (await fetch(broker, partition=-1)).error_code == unknown
    by_id = await fetch(broker, version=13)
    assert by_id.error_code == ErrorCode.UNKNOWN_TOPIC_ID
