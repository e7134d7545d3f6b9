"""An owner whose batches are acknowledged from its disk, and what others can read of them."""

import asyncio

from simulation.faults.memory_disk import MemoryDisk
from tests.support.batches import batch
from tests.support.lanes import LANE, P0, P1, World, append_batch

from holdfast.identifiers import PartitionId
from holdfast.lane.journal_queue import JournalSettings
from holdfast.lane.recovery import recover
from holdfast.log.data_lane import RESERVED_OFFSETS, DataLane
from holdfast.log.facts import CeilingReserved
from holdfast.log.memory import ReadCache, Tail
from holdfast.log.partition import PartitionLog
from holdfast.log.reader import LogReader
from holdfast.log.state import LogStateKind
from holdfast.records.batch import walk
from holdfast.records.record import decode

LANE_OBJECT = "lanes/"
NEVER_FLUSHED = JournalSettings(flush_bytes=1 << 40, flush_ms=86_400_000)


def add(lane: DataLane, value: bytes, partition: PartitionId = P0, *, to_disk: bool = True) -> int:
    return append_batch(lane, batch([value]), partition, to_disk=to_disk)


async def acked(lane: DataLane) -> None:
    """Wait for all that was added, whichever way it went."""
    waited = [f for f in (lane.barrier(), lane.barrier(by_journal=True)) if f is not None]
    if waited:
        await asyncio.wait(waited)
        for future in waited:
            future.result()


async def values(reader: LogReader, log: PartitionLog) -> list[bytes | None]:
    """All that a reader sees from the beginning, control batches left out."""
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        cut = await reader.read(log, offset, 1 << 20)
        assert cut.next_offset > offset
        for buffer in cut.buffers:
            for position, header in walk(buffer):
                if not header.is_control:
                    whole = memoryview(buffer)[position : position + header.size_bytes]
                    found += [record.value for record in decode(whole)]
        offset = cut.next_offset
    return found


async def in_the_store(world: World, partition: PartitionId = P0) -> list[bytes | None]:
    """What a process that has the store alone can read."""
    environment = world.environment()
    recovered = await recover(world.memory, environment, LANE, LogStateKind())
    reader = LogReader(
        store=world.memory,
        environment=environment,
        lane=LANE,
        tail=Tail(0),
        cache=ReadCache(1 << 20),
    )
    return await values(reader, recovered.state.log_of(partition))


async def owner(
    world: World, spool: JournalSettings = NEVER_FLUSHED, disk: MemoryDisk | None = None
) -> tuple[DataLane, MemoryDisk]:
    """An owner whose disk is ready, and whose ceilings are reserved."""
    disk = disk or MemoryDisk(environment=world.environment())
    lane = await world.own(disk=disk, journal_settings=spool)
    await asyncio.sleep(0.1)
    assert lane.takes_to_journal
    for partition in (P0, P1):
        claim = lane.claimed_lane.cursor.claim
        lane.add(CeilingReserved(partition, RESERVED_OFFSETS, claim))
    await lane.flush()
    return lane, disk
