"""A follower's view of a store, held against the broker that writes it, in virtual time."""

import asyncio
from uuid import UUID

import pytest
from tests.support.async_tests import simulated
from tests.support.brokers import (
    Cluster,
    lane_of,
    list_offset,
    log_of,
    produce,
    read_log,
    topic,
)
from tests.unit.follow.followers import AT_ONCE, follower_of

from holdfast.broker.broker import Broker
from holdfast.cluster.facts import TopicDeleted
from holdfast.errors import ConfigurationError, CorruptObject, RetryError
from holdfast.follow.follower import StoreFollower
from holdfast.follow.lane import FOLLOWED_AT_ONCE_MAX
from holdfast.identifiers import PartitionId
from holdfast.lane.entry import HEADER_BYTES, parse_header
from holdfast.lane.keys import entry_key
from holdfast.log.facts import LogStartMoved, PartitionRemoved
from holdfast.log.rewriter import RewriteSettings, collect, purge_removed, rewrite
from holdfast.log.stored_batches import Stretch
from holdfast.records.record import Record, decode


async def fill(broker: Broker, count: int, *, name: str = "t", partition: int = 0) -> None:
    """`count` lane objects of a few records each."""
    for i in range(count):
        values = [b"%s-%d-%d" % (name.encode(), i, j) * 5 for j in range(1 + i % 4)]
        answer = await produce(
            broker, values, name=name, partition=partition, timestamp=1_000 + 10 * i
        )
        assert answer.error_code == 0


async def bytes_of(world: Cluster, stretch: Stretch) -> bytes:
    body = await world.body(stretch.key)
    start = stretch.position
    if stretch.is_in_payload:
        start += parse_header(body[:HEADER_BYTES], key=stretch.key).payload_start
    return body[start : start + stretch.size_bytes]


async def followed(
    world: Cluster, follower: StoreFollower, partition: PartitionId, start: int, end: int
) -> list[Record]:
    """The records that are where the follower says."""
    placed = await follower.place(partition, start, end)
    assert placed is not None
    records: list[Record] = []
    for stretch in placed.stretches:
        found = list(decode(await bytes_of(world, stretch)))
        assert (found[0].offset, found[-1].offset) == (stretch.base_offset, stretch.last_offset)
        records.extend(found)
    return [record for record in records if start <= record.offset < end]


@simulated
async def test_offsets_and_records_are_those_of_the_broker_in_lane_objects_and_in_segments(
    world: Cluster,
):
    broker = await world.broker(lanes=2)
    topic_id = await topic(broker, partitions=3)
    follower = await follower_of(world)
    for round_ in range(3):
        for partition in range(3):
            await fill(broker, 7, partition=partition)
        if round_ == 1:
            await rewrite(lane_of(broker), AT_ONCE)
        await follower.refresh()
        for partition in range(3):
            id_ = PartitionId(topic_id, partition)
            bounds = follower.bounds(id_)
            latest = (await list_offset(broker, partition=partition)).offset
            assert bounds == (0, latest)
            expected = await read_log(broker, partition=partition)
            assert await followed(world, follower, id_, 0, latest) == expected
            inner = [r for r in expected if 5 <= r.offset < latest - 3]
            assert await followed(world, follower, id_, 5, latest - 3) == inner


@simulated
async def test_a_refresh_reads_only_objects_that_are_new(world: Cluster):
    broker = await world.broker()
    await topic(broker)
    await fill(broker, 30)
    store = world.store_of_its_own()
    follower = await follower_of(world, store)
    next_number = lane_of(broker).cursor.next_number
    store.calls.clear()
    await fill(broker, 3)
    await follower.refresh()
    read = sorted({key for operation, key in store.calls if operation == "read"})
    lane = lane_of(broker).lane
    expected = [entry_key(lane, next_number + i) for i in range(7)]
    control = [key for key in read if key.startswith("lanes/0000/")]
    assert [key for key in read if key not in control] == expected
    assert len(control) == 1
    assert follower.recoveries == 2
    store.calls.clear()
    await follower.refresh()
    assert len([key for operation, key in store.calls if operation == "read"]) == 2


@simulated
async def test_a_follower_that_is_far_behind_takes_the_newest_snapshot(world: Cluster):
    broker = await world.broker(snapshot_every=100)
    topic_id = await topic(broker)
    store = world.store_of_its_own()
    follower = await follower_of(world, store)
    await fill(broker, 3 * FOLLOWED_AT_ONCE_MAX)
    store.calls.clear()
    await follower.refresh()
    read = [key for operation, key in store.calls if operation == "read"]
    assert len(read) < FOLLOWED_AT_ONCE_MAX + 300
    assert follower.bounds(PartitionId(topic_id, 0)) == (0, log_of(broker).high_watermark)


@simulated
async def test_a_refresh_that_failed_in_one_lane_can_be_made_again(world: Cluster):
    broker = await world.broker(lanes=2)
    topic_id = await topic(broker, partitions=2)
    store = world.store_of_its_own()
    follower = await follower_of(world, store)

    async def fail(operation: str, key: str) -> None:
        if operation == "read" and key.startswith("lanes/0001/"):
            raise RetryError("not now")

    for partition in (0, 1):
        await fill(broker, 40, partition=partition)
    store.before.append(fail)
    with pytest.raises(RetryError):
        await follower.refresh()
    store.before.clear()
    await follower.refresh()
    for partition in (0, 1):
        bounds = follower.bounds(PartitionId(topic_id, partition))
        assert bounds == (0, log_of(broker, partition=partition).high_watermark)


@simulated
async def test_what_was_rewritten_and_deleted_since_the_last_look_is_recovered(world: Cluster):
    broker = await world.broker()
    topic_id = await topic(broker)
    await fill(broker, 5)
    follower = await follower_of(world)
    recovered = follower.recoveries
    await fill(broker, 20)
    await rewrite(lane_of(broker), AT_ONCE)
    await fill(broker, 4)
    await follower.refresh()
    assert follower.recoveries == recovered + 1
    id_ = PartitionId(topic_id, 0)
    latest = log_of(broker).high_watermark
    assert follower.bounds(id_) == (0, latest)
    assert await followed(world, follower, id_, 0, latest) == await read_log(broker)


@simulated
async def test_a_plan_over_objects_that_are_gone_is_made_anew(world: Cluster):
    broker = await world.broker()
    topic_id = await topic(broker)
    await fill(broker, 25)
    await rewrite(lane_of(broker), RewriteSettings(delete_delay_s=0, segment_bytes_max=1_200))
    await fill(broker, 2)
    follower = await follower_of(world)
    await fill(broker, 40)
    await rewrite(lane_of(broker), RewriteSettings(delete_delay_s=0))
    # The small segments that the follower knows were merged into another, and deleted; only
    # their indexes say where an offset in the middle of one is.
    id_ = PartitionId(topic_id, 0)
    latest = (follower.bounds(id_) or (0, 0))[1]
    recovered = follower.recoveries
    expected = [r for r in await read_log(broker) if 1 <= r.offset < latest]
    assert await followed(world, follower, id_, 1, latest) == expected
    assert follower.recoveries > recovered


@simulated
async def test_a_number_that_a_stalled_claimer_created_below_the_floor_is_not_believed(
    world: Cluster,
):
    broker = await world.broker()
    topic_id = await topic(broker)
    await fill(broker, 5)
    follower = await follower_of(world)
    lane = lane_of(broker)
    stalled_at = lane.cursor.next_number
    stalled = await world.body(entry_key(lane.lane, 0))
    await fill(broker, 10)
    await rewrite(lane, AT_ONCE)
    await world.memory.create(entry_key(lane.lane, stalled_at), [stalled])
    await follower.refresh()
    assert follower.bounds(PartitionId(topic_id, 0)) == (0, log_of(broker).high_watermark)


@pytest.mark.parametrize("is_rewritten", [False, True])
@simulated
async def test_times_are_found_as_the_broker_finds_them(world: Cluster, is_rewritten: bool):
    broker = await world.broker()
    topic_id = await topic(broker)
    for i, timestamp in enumerate([500, 300, 900, 700, 1_500, 1_200]):
        await produce(broker, [b"%d" % i], timestamp=timestamp)
    if is_rewritten:
        await rewrite(lane_of(broker), AT_ONCE)
    follower = await follower_of(world)
    id_ = PartitionId(topic_id, 0)
    for timestamp in (0, 300, 500, 501, 901, 1_500, 1_501):
        theirs = await list_offset(broker, timestamp)
        ours = await follower.offset_for_time(id_, timestamp)
        assert (ours or (-1, -1)) == (theirs.offset, theirs.timestamp)
    newest = await list_offset(broker, -3)
    assert await follower.offset_of_max_timestamp(id_) == (newest.offset, newest.timestamp)
    placed = await follower.place(id_, 0, 6, since_ms=1_000)
    assert placed is not None
    kept = {o for s in placed.stretches for o in range(s.base_offset, s.last_offset + 1)}
    assert kept == ({4, 5} if not is_rewritten else {0, 1, 2, 3, 4, 5})


@simulated
async def test_records_below_a_moved_log_start_are_not_placed(world: Cluster):
    broker = await world.broker()
    topic_id = await topic(broker)
    await fill(broker, 20)
    follower = await follower_of(world)
    lane, log = lane_of(broker), log_of(broker)
    lane.add(LogStartMoved(log.partition, 17))
    await lane.flush()
    await rewrite(lane, AT_ONCE)
    await collect(lane)
    await follower.refresh()
    id_ = PartitionId(topic_id, 0)
    assert follower.bounds(id_) == (17, log.high_watermark)
    placed = await follower.place(id_, 0, 1 << 40)
    assert placed is not None
    assert placed.bounds == (17, log.high_watermark)
    expected = await read_log(broker, 17)
    assert await followed(world, follower, id_, 17, log.high_watermark) == expected


async def delete(broker: Broker, topic_id: UUID) -> None:
    """The topic, and then its partitions, as maintenance does it."""
    lane, partition = lane_of(broker), log_of(broker).partition
    broker.control.add(TopicDeleted(topic_id))
    await broker.flush_control()
    lane.add(PartitionRemoved(partition))
    await lane.flush()
    await purge_removed(lane)
    await lane.flush()


@simulated
async def test_a_topic_that_was_deleted_and_created_again_is_another_one(world: Cluster):
    broker = await world.broker()
    first = await topic(broker)
    await fill(broker, 10)
    follower = await follower_of(world)
    before = follower.bounds(PartitionId(first, 0))
    assert before is not None and before.latest > 2
    await delete(broker, first)
    second = await topic(broker)
    await fill(broker, 2)
    await follower.refresh()
    assert follower.topics()["t"].topic_id == second != first
    assert follower.bounds(PartitionId(first, 0)) is None
    assert await follower.place(PartitionId(first, 0), 0, 5) is None
    assert await follower.offset_for_time(PartitionId(first, 0), 0) is None
    assert follower.bounds(PartitionId(second, 0)) == (0, log_of(broker).high_watermark)


@simulated
async def test_a_latest_offset_does_not_fall_while_a_deletion_is_half_seen(world: Cluster):
    broker = await world.broker()
    topic_id = await topic(broker)
    await fill(broker, 10)
    store = world.store_of_its_own()
    follower = await follower_of(world, store)
    id_ = PartitionId(topic_id, 0)
    before = follower.bounds(id_)
    await delete(broker, topic_id)
    seen: list[object] = []

    async def look(operation: str, key: str) -> None:
        seen.append(follower.bounds(id_))

    store.after.append(look)
    await follower.refresh()
    assert len(seen) > 3
    assert set(seen) <= {before, None}
    assert follower.bounds(id_) is None


@simulated
async def test_a_store_that_was_put_back_to_an_older_state_is_refused(world: Cluster):
    broker = await world.broker()
    topic_id = await topic(broker)
    await fill(broker, 10)
    follower = await follower_of(world)
    served = follower.bounds(PartitionId(topic_id, 0))
    lane = lane_of(broker)
    end = lane.cursor.next_number
    await world.memory.delete([entry_key(lane.lane, end - i) for i in (1, 2, 3)])
    await world.memory.create(f"floors/{lane.lane:04d}/{end + 1:020d}", [b"floor"])
    with pytest.raises(CorruptObject):
        async with asyncio.timeout(3_600):
            await follower.refresh()
    assert follower.bounds(PartitionId(topic_id, 0)) == served


@simulated
async def test_a_store_without_a_cluster_is_refused(world: Cluster):
    with pytest.raises(ConfigurationError, match="no lane 0"):
        await follower_of(world)


@simulated
async def test_following_writes_nothing(world: Cluster):
    broker = await world.broker()
    topic_id = await topic(broker)
    await fill(broker, 12)
    await rewrite(lane_of(broker), AT_ONCE)
    store = world.store_of_its_own()
    follower = await follower_of(world, store)
    await follower.place(PartitionId(topic_id, 0), 3, 20)
    await follower.offset_for_time(PartitionId(topic_id, 0), 1_050)
    assert {operation for operation, _ in store.calls} == {"read", "list"}


@simulated
async def test_a_partition_that_was_never_made_is_not_there(world: Cluster):
    broker = await world.broker()
    topic_id = await topic(broker, partitions=2)
    follower = await follower_of(world)
    assert follower.topics()["t"].partitions == 2
    assert follower.bounds(PartitionId(topic_id, 1)) == (0, 0)
    assert follower.bounds(PartitionId(topic_id, 2)) is None
    placed = await follower.place(PartitionId(topic_id, 1), 0, 10)
    assert placed is not None and placed.stretches == []
