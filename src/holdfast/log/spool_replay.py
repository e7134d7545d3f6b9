"""What an earlier owner had acknowledged from this machine's disk, taken into the lane.

Owns which frames count: those of the claim that a partition's ceiling names, from the end of the
log in the store on, in order. Must never take in what the lane has gone past, nor call a spool
complete that is not on this disk.
"""

import dataclasses
from bisect import bisect_left
from collections.abc import Iterator

import msgspec

from holdfast.identifiers import PartitionId
from holdfast.lane.spool.disk import Disk
from holdfast.lane.spool.frames import Frame, SpoolId
from holdfast.lane.spool.spool import read_spool, spools_on
from holdfast.log.data_lane import DataLane
from holdfast.log.facts import Appended, CeilingReserved, decode_facts


@dataclasses.dataclass(slots=True, kw_only=True)
class Replayed:
    """What came of a disk."""

    partitions: int = 0
    record_batches: int = 0
    bytes: int = 0
    torn_bytes: int = 0
    problems: list[str] = dataclasses.field(default_factory=list[str])


async def replay_spools(lane: DataLane, disk: Disk) -> Replayed:
    """Take in all that this disk has of the lane, make it durable there, then delete the spools."""
    replayed = Replayed()
    spools = {
        spool: parts for spool, parts in (await spools_on(disk)).items() if _is_of(lane, spool)
    }
    for spool in sorted(spools):
        wanted = {partition for partition, claim in lane.awaited.items() if claim == spool.claim}
        if not wanted:
            continue
        found = await read_spool(disk, spool, spools[spool])
        replayed.torn_bytes += found.torn_bytes
        replayed.problems += found.problems
        leader_epoch = bisect_left(lane.state.claims, spool.claim)
        for frame in found.frames:
            for fact, record_batch in _batches(frame):
                log = lane.log_of(fact.partition)
                if fact.partition in wanted and fact.base_offset == log.log_end_offset:
                    kept = msgspec.structs.replace(fact, leader_epoch=leader_epoch)
                    lane.appender.add(kept, record_batch)
                    replayed.record_batches += 1
                    replayed.bytes += fact.size_bytes
        for partition in sorted(wanted):
            end = lane.log_of(partition).log_end_offset
            lane.appender.add(CeilingReserved(partition, end, lane.claimed_lane.cursor.claim))
        await lane.appender.flush()
        replayed.partitions += len(wanted)
        for partition in wanted:
            del lane.awaited[partition]
    await disk.delete([part for parts in spools.values() for part in parts])
    return replayed


def _is_of(lane: DataLane, spool: SpoolId) -> bool:
    return spool.lane == lane.lane and spool.claim < lane.claimed_lane.cursor.claim


def _batches(frame: Frame) -> Iterator[tuple[Appended, memoryview]]:
    """The batches of a frame with their bytes, which are laid out as in a lane object."""
    if not frame.facts:
        return
    grouped: dict[PartitionId, list[Appended]] = {}
    for fact in decode_facts(frame.facts):
        if isinstance(fact, Appended):
            grouped.setdefault(fact.partition, []).append(fact)
    position = 0
    for facts in grouped.values():
        for fact in facts:
            yield fact, frame.payload[position : position + fact.size_bytes]
            position += fact.size_bytes
