"""After a crash: what was acknowledged from a disk comes back from that disk, or is waited for."""

import asyncio
import random
import re

import pytest
from simulation.faults.memory_disk import MemoryDisk
from tests.support.async_tests import simulated
from tests.support.lanes import P0, P1, World
from tests.support.stores import Hold
from tests.unit.log.spooled import (
    LANE_OBJECT,
    NEVER_FLUSHED,
    acked,
    add,
    in_the_store,
    owner,
    values,
)

from holdfast.identifiers import PartitionId
from holdfast.lane.entry import MAGIC
from holdfast.lane.spool.spool import part_name, spools_on
from holdfast.log.data_lane import DataLane
from holdfast.log.spool_replay import replay_spools


async def successor(world: World, disk: MemoryDisk | None) -> DataLane:
    lane = await world.own(broker=2, disk=disk, journal_settings=NEVER_FLUSHED)
    await asyncio.sleep(0.1)
    return lane


@simulated
async def test_what_was_acknowledged_from_a_disk_is_taken_in_from_that_disk(world: World):
    first, disk = await owner(world)
    for number in range(5):
        add(first, b"%d" % number)
        add(first, b"other %d" % number, P1)
    await acked(first)
    second = await successor(world, disk)
    assert set(second.awaited) == {P0, P1}
    replayed = await replay_spools(second, disk)
    assert replayed.record_batches == 10 and replayed.problems == []
    assert second.awaited == {}
    assert await values(second.reader, second.log_of(P0)) == [b"0", b"1", b"2", b"3", b"4"]
    assert await in_the_store(world, P1) == [b"other %d" % number for number in range(5)]
    assert {spool.claim for spool in await spools_on(disk)} == {second.claimed_lane.cursor.claim}


@simulated
async def test_records_keep_the_leader_epoch_under_which_they_were_acknowledged(world: World):
    first, disk = await owner(world)
    add(first, b"one", to_disk=False)
    add(first, b"two")
    await acked(first)
    add(first, b"three")
    await acked(first)
    before = first.leader_epoch
    second = await successor(world, disk)
    await replay_spools(second, disk)
    add(second, b"four", to_disk=False)
    await acked(second)
    log = second.log_of(P0)
    assert [tuple(epoch) for epoch in log.epochs] == [(before, 0), (before + 1, 3)]
    assert log.end_of_epoch(before).start_offset == 3
    assert await in_the_store(world) == [b"one", b"two", b"three", b"four"]


@simulated
async def test_an_owner_without_the_disk_waits_and_one_with_it_goes_on(world: World):
    first, disk = await owner(world)
    add(first, b"one")
    await acked(first)
    other_disk = MemoryDisk(environment=world.environment())
    second = await successor(world, other_disk)
    await replay_spools(second, other_disk)
    assert set(second.awaited) == {P0, P1}
    add(second, b"elsewhere", PartitionId(P0.topic_id, 2))
    await acked(second)
    await second.close(release=True)
    third = await successor(world, disk)
    await replay_spools(third, disk)
    assert third.awaited == {}
    assert await values(third.reader, third.log_of(P0)) == [b"one"]


@simulated
async def test_after_a_clean_release_nobody_waits_for_a_disk(world: World):
    first, _ = await owner(world)
    add(first, b"one")
    await acked(first)
    await first.close(release=True)
    second = await successor(world, None)
    assert second.awaited == {}
    assert await values(second.reader, second.log_of(P0)) == [b"one"]


@simulated
async def test_a_spool_that_is_empty_is_told_from_a_disk_that_is_another(world: World):
    first, disk = await owner(world)
    add(first, b"one")
    await acked(first)
    await first.flush_journal()
    await asyncio.sleep(1)
    second = await successor(world, disk)
    assert set(second.awaited) == {P0, P1}
    await replay_spools(second, disk)
    assert second.awaited == {}
    assert await values(second.reader, second.log_of(P0)) == [b"one"]


@simulated
async def test_the_first_batch_of_a_partition_goes_to_the_store_with_its_ceiling(world: World):
    disk = MemoryDisk(environment=world.environment())
    lane = await successor(world, disk)
    add(lane, b"one")
    await acked(lane)
    assert await in_the_store(world) == [b"one"]
    puts = [call for call in world.store.calls if call[0] == "create"]
    add(lane, b"two")
    await acked(lane)
    assert [call for call in world.store.calls if call[0] == "create"] == puts
    assert await in_the_store(world) == [b"one"]


async def with_a_put_that_never_lands(world: World) -> tuple[DataLane, MemoryDisk]:
    """Offset 0 is in the store, 1 in a put under way, 2 and 3 behind it on the disk; 4 too, in a
    frame of its own."""
    disk = MemoryDisk(environment=world.environment())
    lane = await successor(world, disk)
    first = Hold("create", LANE_OBJECT)
    world.store.before.append(first)
    add(lane, b"0")
    await first.reached.wait()
    add(lane, b"1")  # the ceiling is not durable yet
    second = Hold("create", f"{lane.claimed_lane.cursor.next_number + 1:020d}")
    world.store.before[:] = [second]
    first.go.set()
    await second.reached.wait()
    for value in (b"2", b"3", b"4"):
        add(lane, value)
        if value != b"2":
            await asyncio.sleep(1)
    assert lane.log_of(P0).high_watermark == 1
    world.store.before.clear()
    return lane, disk


@simulated
async def test_what_followed_a_put_that_never_landed_was_not_acknowledged_and_keeps_nothing_offline(
    world: World,
):
    _, disk = await with_a_put_that_never_lands(world)
    second = await successor(world, disk)
    assert set(second.awaited) == {P0}
    replayed = await replay_spools(second, disk)
    assert (replayed.problems, replayed.kept, replayed.partitions) == ([], [], 1)
    assert second.awaited == {}
    assert await values(second.reader, second.log_of(P0)) == [b"0"]
    add(second, b"again")
    await acked(second)
    assert await values(second.reader, second.log_of(P0)) == [b"0", b"again"]


@simulated
async def test_what_is_missing_before_a_frame_that_was_acknowledged_is_waited_for(world: World):
    first, disk = await owner(world)
    for number in range(3):
        add(first, b"%d" % number)
        await acked(first)
    (name,) = disk.files
    whole = bytes(disk.files[name])
    starts = [found.start() for found in re.finditer(re.escape(MAGIC), whole)]
    assert len(starts) == 4
    second = await successor(world, None)
    await second.close(release=False)
    # As if the file of the first frame had been lost, and the others had one of their own.
    spool = next(iter(await spools_on(disk)))
    disk.files = {part_name(spool, 1): bytearray(whole[starts[2] :])}
    third = await successor(world, disk)
    replayed = await replay_spools(third, disk)
    assert replayed.problems and replayed.kept
    assert P0 in third.awaited


@pytest.mark.parametrize("seed", range(60))
@simulated
async def test_what_was_acknowledged_survives_any_number_of_crashes(world: World, seed: int):
    chance = random.Random(seed)
    disk = MemoryDisk(environment=world.environment())
    told: dict[PartitionId, list[bytes]] = {P0: [], P1: []}
    for life in range(4):
        lane = await successor(world, disk)
        await replay_spools(lane, disk)
        assert lane.awaited == {}
        for partition, expected in told.items():
            found = await values(lane.reader, lane.log_of(partition))
            assert found[: len(expected)] == expected, (life, partition)
            # What was not acknowledged may have come through all the same, in its order.
            told[partition] = [value for value in found if value is not None]
        stuck = False
        for number in range(chance.randrange(1, 25)):
            partition = chance.choice((P0, P1))
            add(lane, b"%d.%d" % (life, number), partition, to_disk=chance.random() < 0.8)
            disk.bytes_max = 1 if chance.random() < 0.05 else None
            if chance.random() < 0.5:
                await asyncio.sleep(chance.random() * 0.01)
            if not stuck and chance.random() < 0.1:
                await lane.flush_journal()
            if not stuck and chance.random() < 0.1:
                await lane.snapshot_now()
            if chance.random() < 0.05:
                # What is put from here on never lands in this life.
                stuck = True
                world.store.before.append(Hold("create", LANE_OBJECT))
        for partition in told:
            told[partition] = await visible(lane, partition)
        disk.bytes_max = None
        world.store.before.clear()


async def visible(lane: DataLane, partition: PartitionId) -> list[bytes]:
    found = await values(lane.reader, lane.log_of(partition))
    return [value for value in found if value is not None]
