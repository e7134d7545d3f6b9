"""Reading: from the tail, the cache or the store, the same bytes, and never a harmed one."""

import asyncio

import pytest
from tests.support.async_tests import simulated
from tests.support.lanes import P0, P1, World, append, flush, simulate
from tests.support.stores import Hold

from holdfast.errors import CorruptObject, StoreUnavailable
from holdfast.log.data_lane import DataLane
from holdfast.log.rewriter import RewriteSettings, rewrite

NOW = RewriteSettings(delete_delay_s=0)


async def filled(world: World, where: str, count: int = 4) -> DataLane:
    """A lane of `count` objects, each with batches of two partitions."""
    lane = await world.own(tail_bytes=1 << 20 if where == "tail" else 0)
    for i in range(count):
        append(lane, P1, [b"other"])
        append(lane, P0, [b"a%d" % i, b"b%d" % i])
        append(lane, P0, [b"c%d" % i])
        await flush(lane)
    if where == "segments":
        await rewrite(lane, NOW)
    return lane


async def read_all(lane: DataLane, bytes_max: int = 1 << 20, start: int = 0) -> bytes:
    log = lane.log_of(P0)
    found: list[bytes] = []
    offset = start
    while offset < log.high_watermark:
        cut = await lane.reader.read(log, offset, bytes_max)
        assert cut.buffers
        found.extend(bytes(b) for b in cut.buffers)
        offset = cut.next_offset
    return b"".join(found)


@pytest.mark.parametrize("bytes_max", [-1, 0, 1, 100, 200, 333, 1 << 20])
def test_the_tail_lane_objects_and_segments_give_the_same_bytes(bytes_max: int):
    async def one(world: World, where: str) -> bytes:
        return await read_all(await filled(world, where), bytes_max)

    found = [
        simulate(lambda world, where=where: one(world, where))
        for where in ("tail", "objects", "segments")
    ]
    assert found[0] == found[1] == found[2]
    assert found[0].count(b"other") == 0
    assert all(b"a%d" % i in found[0] and b"c%d" % i in found[0] for i in range(4))


@simulated
async def test_at_the_end_there_is_nothing_and_that_is_no_error(world: World):
    lane = await filled(world, "objects")
    cut = await lane.reader.read(lane.log_of(P0), 12, 1 << 20)
    assert cut.buffers == [] and cut.next_offset == 12


@pytest.mark.parametrize("where", ["objects", "segments"])
@simulated
async def test_what_was_read_once_comes_from_the_cache(world: World, where: str):
    lane = await filled(world, where)
    first = await read_all(lane)
    before = len(world.store.calls)
    assert await read_all(lane) == first
    assert len(world.store.calls) == before


@simulated
async def test_readers_of_the_same_stretch_share_one_load(world: World):
    lane = await filled(world, "segments")
    hold = Hold("read", "topics/")
    world.store.before.append(hold)
    readers = [asyncio.ensure_future(read_all(lane)) for _ in range(10)]
    await hold.reached.wait()
    await asyncio.sleep(1)
    hold.go.set()
    found = await asyncio.gather(*readers)
    assert len(set(found)) == 1
    data_reads = [c for c in world.store.calls if c[0] == "read" and c[1].startswith("topics/")]
    assert len(data_reads) <= 2 + 10


@simulated
async def test_one_reader_that_gives_up_does_not_end_the_load_for_another(world: World):
    lane = await filled(world, "objects")
    hold = Hold("read", "lanes/0001/")
    world.store.before.append(hold)
    impatient = asyncio.ensure_future(read_all(lane))
    patient = asyncio.ensure_future(read_all(lane))
    await hold.reached.wait()
    await asyncio.sleep(1)
    impatient.cancel()
    await asyncio.wait({impatient})
    hold.go.set()
    assert (await patient).count(b"a0") == 1


@pytest.mark.parametrize("where", ["objects", "segments"])
@simulated
async def test_no_flipped_byte_of_a_stored_object_is_ever_served(world: World, where: str):
    """Read from a copy of the store in which one byte is another: it is refused, or unneeded."""
    lane = await filled(world, where, 2)
    whole = await read_all(lane)
    prefix = "topics/" if where == "segments" else "lanes/0001/"
    keys = [k for k in await world.keys(prefix) if f"/{0:020d}" != k[-21:]]
    key = next(k for k in keys if where != "segments" or "/000000/" in k)
    body = await world.body(key)
    refused = 0
    for position in range(len(body)):
        harmed = bytearray(body)
        harmed[position] ^= 1 << (position % 8)
        await world.replace(key, bytes(harmed))
        reader = type(lane.reader)(
            store=world.memory,
            environment=world.environment(),
            lane=lane.lane,
            tail=lane.tail,
            cache=type(lane.reader._cache)(0),  # pyright: ignore[reportPrivateUsage]
        )
        try:
            cut = await reader.read(lane.log_of(P0), 0, 1)
        except CorruptObject:
            refused += 1
        else:
            assert whole.startswith(b"".join(bytes(b) for b in cut.buffers))
    assert refused > len(body) // 3


@simulated
async def test_a_mangled_answer_is_read_again(world: World):
    lane = await filled(world, "objects")
    whole = await world.body(f"lanes/0001/{1:020d}")
    await world.replace(f"lanes/0001/{1:020d}", whole[:-3])
    reading = asyncio.ensure_future(read_all(lane, 1))
    await asyncio.sleep(0.01)
    await world.replace(f"lanes/0001/{1:020d}", whole)
    assert (await reading).count(b"a0") == 1


@simulated
async def test_a_reader_gives_up_on_a_store_that_is_away(world: World):
    lane = await filled(world, "objects")

    async def away(operation: str, key: str) -> None:
        raise StoreUnavailable(key)

    world.store.before.append(away)
    with pytest.raises(StoreUnavailable):
        await read_all(lane)
    assert world.loop.time() < 40
    world.store.before.clear()
    assert await read_all(lane)


@simulated
async def test_a_cold_reader_does_not_evict_the_tail(world: World):
    lane = await filled(world, "tail", 50)
    await rewrite(lane, NOW)
    append(lane, P0, [b"hot"])
    await flush(lane)
    held = lane.tail.bytes
    await read_all(lane)
    assert lane.tail.bytes == held > 0


@simulated
async def test_a_reader_of_old_data_is_read_ahead_of(world: World):
    lane = await world.own(tail_bytes=0)
    for _ in range(12):
        append(lane, P0, [b"x" * 600_000])
        await flush(lane)
    await rewrite(lane, NOW)
    log = lane.log_of(P0)
    await lane.reader.read(log, 0, 1)
    await asyncio.sleep(1)

    async def away(operation: str, key: str) -> None:
        raise StoreUnavailable(key)

    world.store.before.append(away)
    for offset in range(2, 10):
        cut = await lane.reader.read(log, offset, 1)
        assert cut.next_offset == offset + 1


@simulated
async def test_one_batch_of_a_large_run_loads_that_run_alone_and_does_not_keep_it(world: World):
    lane = await world.own(tail_bytes=0)
    for _ in range(3):
        for _ in range(10):
            append(lane, P0, [b"x" * 10_000])
        await flush(lane)
    log = lane.log_of(P0)
    seen = len(world.store.calls)
    cut = await lane.reader.read(log, 0, 0)
    assert cut.next_offset == 1
    assert len({key for _, key in world.store.calls[seen:]}) == 1
    assert [type(buffer) for buffer in cut.buffers] == [bytes]
    most = await lane.reader.read(log, 0, 90_000)  # all but a little: it is not copied
    assert [type(buffer) for buffer in most.buffers] == [memoryview]
