"""A follower of committed records: the broker's last stable offset, and its aborted index."""

from tests.support.async_tests import simulated
from tests.support.brokers import Cluster, lane_of, list_offset, log_of, produce
from tests.support.transactional import READ_COMMITTED
from tests.unit.broker.transactional_writes import end, served, write
from tests.unit.follow.followers import AT_ONCE, follower_of

from holdfast.follow.follower import KnownOffsets
from holdfast.log.rewriter import rewrite


@simulated
async def test_bounds_end_at_the_last_stable_offset_and_the_aborted_transactions_are_named(
    world: Cluster,
):
    broker = await served(world)
    follower = await follower_of(world)
    partition = log_of(broker).partition
    for round_ in range(3):
        await write(broker, 1)
        await produce(broker)
        await end(broker, 1, committed=False)
        await write(broker, 2)
        await produce(broker)
        if round_ == 1:
            await rewrite(lane_of(broker), AT_ONCE)
        await follower.refresh()
        log = log_of(broker)
        told = await list_offset(broker, isolation_level=READ_COMMITTED)
        bounds = follower.bounds(partition, read_committed=True)
        assert bounds == KnownOffsets(0, told.offset)
        assert bounds.latest < log.high_watermark
        assert follower.bounds(partition) == KnownOffsets(0, log.high_watermark)
        placed = await follower.place(partition, 0, 1 << 40, read_committed=True)
        assert placed is not None
        assert placed.bounds == bounds
        assert placed.aborted == log.transactions.aborted
        assert placed.stretches[-1].last_offset >= bounds.latest - 1
        plain = await follower.place(partition, 0, 1 << 40)
        assert plain is not None
        assert plain.aborted == ()
        await end(broker, 2, committed=True)


@simulated
async def test_times_past_the_last_stable_offset_are_not_found(world: Cluster):
    broker = await served(world)
    now = broker.environment.now_ms()
    await produce(broker, timestamp=now - 20)
    await write(broker, 1, timestamp=now - 10)
    follower = await follower_of(world)
    partition = log_of(broker).partition
    for committed, newest in ((False, 1), (True, 0)):
        found = await follower.offset_of_max_timestamp(partition, read_committed=committed)
        assert found is not None
        assert found.offset == newest
        later = await follower.offset_for_time(partition, now - 15, read_committed=committed)
        assert (later is None) == committed


@simulated
async def test_an_end_that_was_served_never_goes_back_for_either_reader(world: Cluster):
    broker = await served(world)
    await write(broker, 1)
    follower = await follower_of(world)
    partition = log_of(broker).partition
    assert follower.bounds(partition, read_committed=True) == KnownOffsets(0, 0)
    assert follower.bounds(partition) == KnownOffsets(0, 1)
    await end(broker, 1, committed=True)
    await follower.refresh()
    assert follower.bounds(partition, read_committed=True) == KnownOffsets(0, 2)
    await write(broker, 1)
    await follower.refresh()
    assert follower.bounds(partition, read_committed=True) == KnownOffsets(0, 2)
