"""Batches that are acknowledged from a local disk: readable at once, in the store in order, and
never visible past what is durable."""

import asyncio
import random

import pytest
from simulation.faults.memory_disk import MemoryDisk
from tests.support.async_tests import simulated
from tests.support.batches import batch
from tests.support.lanes import P0, P1, World, end
from tests.support.stores import Hold
from tests.unit.log.spooled import LANE_OBJECT, acked, add, in_the_store, owner, values

from holdfast.errors import Fenced
from holdfast.identifiers import PartitionId
from holdfast.lane.entry import HEADER_BYTES
from holdfast.lane.journal_queue import JournalSettings
from holdfast.lane.spool.spool import spools_on
from holdfast.log.data_lane import DataLane
from holdfast.log.facts import LogStartMoved


async def acked_from_disk(lane: DataLane) -> None:
    barrier = lane.barrier(by_journal=True)
    if barrier is not None:
        await asyncio.wait({barrier})
        barrier.result()


@simulated
async def test_an_ack_from_disk_needs_no_put_and_the_record_can_be_read_at_once(world: World):
    lane, _ = await owner(world)
    puts = len(world.store.calls)
    assert add(lane, b"one") == 0
    await acked(lane)
    assert add(lane, b"two") == 1
    await acked(lane)
    assert not [call for call in world.store.calls[puts:] if call[0] == "create"]
    assert lane.log_of(P0).high_watermark == 2
    assert await values(lane.reader, lane.log_of(P0)) == [b"one", b"two"]
    assert await in_the_store(world) == []


@simulated
async def test_what_is_on_disk_can_be_read_while_it_is_flushed_and_after(world: World):
    lane, disk = await owner(world)
    add(lane, b"one")
    await acked(lane)
    hold = Hold("create", LANE_OBJECT)
    world.store.before.append(hold)
    flushing = asyncio.ensure_future(lane.flush_journal())
    await hold.reached.wait()
    assert await values(lane.reader, lane.log_of(P0)) == [b"one"]
    add(lane, b"two")
    await acked_from_disk(lane)
    assert await values(lane.reader, lane.log_of(P0)) == [b"one", b"two"]
    hold.go.set()
    await flushing
    assert await values(lane.reader, lane.log_of(P0)) == [b"one", b"two"]
    assert await in_the_store(world) == [b"one"]
    await lane.flush_journal()
    assert await in_the_store(world) == [b"one", b"two"]
    await asyncio.sleep(1)
    (left,) = (await spools_on(disk)).values()
    assert len(left) == 1 and len(disk.files[left[0]]) == HEADER_BYTES


@pytest.mark.parametrize(
    "settings", [JournalSettings(flush_bytes=300), JournalSettings(flush_ms=2_000)]
)
@simulated
async def test_what_is_on_disk_goes_to_the_store_by_size_or_by_age(
    world: World, settings: JournalSettings
):
    lane, _ = await owner(world, settings)
    written = [b"value %d" % number for number in range(10)]
    for value in written:
        add(lane, value)
        await acked(lane)
    await asyncio.sleep(3)
    stored = await in_the_store(world)
    assert stored == written[: len(stored)]
    assert len(stored) >= (10 if settings.flush_ms == 2_000 else 7)


@pytest.mark.parametrize("fact", ["batch", "marker", "log start"])
@simulated
async def test_what_goes_to_the_store_takes_along_what_its_partition_has_on_disk(
    world: World, fact: str
):
    lane, _ = await owner(world)
    add(lane, b"one")
    add(lane, b"other", P1)
    await acked(lane)
    add(lane, b"two")
    match fact:
        case "batch":
            add(lane, b"three", to_disk=False)
        case "marker":
            end(lane, 5, 0, committed=True)
        case _:
            lane.add(LogStartMoved(P0, 1))
    await acked(lane)
    expected = {"batch": [b"one", b"two", b"three"], "marker": [b"one", b"two"]}
    assert await in_the_store(world) == expected.get(fact, [b"two"])
    assert await in_the_store(world, P1) == [b"other"]
    add(lane, b"four")
    await acked(lane)
    assert (await values(lane.reader, lane.log_of(P0)))[-1] == b"four"


@simulated
async def test_a_batch_behind_one_that_waits_for_the_store_waits_too(world: World):
    lane, _ = await owner(world)
    hold = Hold("create", LANE_OBJECT)
    world.store.before.append(hold)
    add(lane, b"one", to_disk=False)
    add(lane, b"two")
    await asyncio.sleep(5)
    assert lane.log_of(P0).high_watermark == 0
    hold.go.set()
    await acked(lane)
    assert lane.log_of(P0).high_watermark == 2
    assert await in_the_store(world) == [b"one", b"two"]


@simulated
async def test_a_disk_that_is_full_costs_time_and_nothing_else(world: World):
    lane, disk = await owner(world)
    add(lane, b"one")
    await acked(lane)
    disk.bytes_max = 1
    for value in (b"two", b"three"):
        add(lane, value)
        await acked(lane)
    assert await in_the_store(world) == [b"one", b"two", b"three"]
    disk.bytes_max = None
    await asyncio.sleep(2)
    puts = len(world.store.calls)
    add(lane, b"four")
    await acked(lane)
    assert not [call for call in world.store.calls[puts:] if call[0] == "create"]
    assert (await values(lane.reader, lane.log_of(P0)))[-1] == b"four"


@simulated
async def test_an_owner_that_was_replaced_acknowledges_nothing_from_its_disk(world: World):
    lane, _ = await owner(world)
    add(lane, b"one")
    await acked(lane)
    await world.claim(broker=2)
    await asyncio.sleep(10)
    add(lane, b"two")
    with pytest.raises(Fenced):
        await acked(lane)
    assert lane.log_of(P0).high_watermark == 1


@simulated
async def test_a_lane_that_closes_leaves_everything_in_the_store(world: World):
    lane, _ = await owner(world)
    for number in range(5):
        add(lane, b"%d" % number)
    await acked(lane)
    await lane.close(release=True)
    assert await in_the_store(world) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("seed", range(40))
@simulated
async def test_any_mix_of_ways_keeps_each_partition_in_order_and_durable_before_visible(
    world: World, seed: int
):
    chance = random.Random(seed)
    settings = JournalSettings(
        flush_bytes=chance.choice((200, 2_000, 1 << 40)),
        flush_ms=chance.choice((50, 1_000, 86_400_000)),
        frame_bytes_max=chance.choice((1, 1 << 20)),
    )
    lane, disk = await owner(world, settings)
    written: dict[PartitionId, list[bytes]] = {P0: [], P1: []}
    for number in range(60):
        partition = chance.choice((P0, P1))
        value = b"%d" % number
        add(lane, value, partition, to_disk=chance.random() < 0.7)
        written[partition].append(value)
        disk.bytes_max = 1 if chance.random() < 0.05 else None
        if chance.random() < 0.1:
            await lane.snapshot_now()
        if chance.random() < 0.4:
            await asyncio.sleep(chance.random() * 0.02)
        await _nothing_is_visible_that_could_be_lost(world, disk, lane, written)
    await acked(lane)
    for partition, expected in written.items():
        assert await values(lane.reader, lane.log_of(partition)) == expected
    await lane.close(release=True)
    for partition, expected in written.items():
        assert await in_the_store(world, partition) == expected


async def _nothing_is_visible_that_could_be_lost(
    world: World, disk: MemoryDisk, lane: DataLane, written: dict[PartitionId, list[bytes]]
) -> None:
    """Each visible record is in the store, or in the bytes of a file on the disk."""
    visible = {partition: lane.log_of(partition).high_watermark for partition in written}
    on_disk = b"".join(disk.files.values())
    for partition, expected in written.items():
        stored = await in_the_store(world, partition)
        assert stored == expected[: len(stored)]
        for value in expected[len(stored) : visible[partition]]:
            assert batch_bytes(value) in on_disk, value


def batch_bytes(value: bytes) -> bytes:
    """The end of a batch of one record: what no stamp changes."""
    return bytes(batch([value]))[-(len(value) + 4) :]
