"""Replay of spools: records that an earlier owner acknowledged from this disk go into the lane.

Owns which frames count: those of the claim that a partition's ceiling names, by the writer of that
claim, from the end of the stored log on, in order. A frame that follows a lane object which never
reached the store was not acknowledged, and neither was any later frame, so a gap before such frames
is no loss. Must never replay offsets that the lane has gone past, nor call a spool complete that is
not on this disk. Must never delete a spool of another lane, or one with records that were given up.
"""

import dataclasses
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import msgspec

from holdfast.identifiers import LaneNumber, PartitionId
from holdfast.lane.recovery import read_head
from holdfast.lane.spool.disk import Disk
from holdfast.lane.spool.frames import Frame, SpoolId
from holdfast.lane.spool.spool import Spooled, read_spool, spools_on
from holdfast.log.data_lane import DataLane
from holdfast.log.facts import Appended, CeilingReserved, RecordsMissing, decode_facts
from holdfast.records.batch import parse_header
from holdfast.records.record import encode_empty_batch


@dataclasses.dataclass(slots=True, kw_only=True)
class Replayed:
    """The result of replaying the spools of a disk."""

    partitions: int = 0
    record_batches: int = 0
    bytes: int = 0
    torn_bytes: int = 0
    problems: list[str] = dataclasses.field(default_factory=list[str])
    kept: list[str] = dataclasses.field(default_factory=list[str])
    """Files left on the disk, because their records may be nowhere else."""


async def replay_spools(lane: DataLane, disk: Disk) -> Replayed:
    """Add the records that this disk has of the lane, make them durable, delete the spools."""
    replayed = Replayed()
    for spool, parts in sorted((await spools_on(disk)).items()):
        if not await _is_of(lane, spool):
            continue
        wanted = {partition for partition, claim in lane.awaited.items() if claim == spool.claim}
        is_given_up = any(
            missing.claim == spool.claim
            for log in lane.state.partitions.values()
            for missing in log.missing
        )
        is_done = True
        if wanted:
            found = await read_spool(disk, spool, parts)
            is_done = await _take_in(lane, spool, found, wanted, replayed)
        if is_done and not is_given_up:
            await disk.delete(parts)
        else:
            replayed.kept += parts
    return replayed


async def _is_of(lane: DataLane, spool: SpoolId) -> bool:
    """True if an earlier owner of this very lane wrote the spool.

    Its writer is compared with the claim's, because another store has the same numbers.
    """
    if spool.lane != lane.lane or spool.claim not in lane.state.claims:
        return False
    if spool.claim >= lane.claimed_lane.cursor.claim:
        return False
    head = await read_head(lane.store, lane.environment, lane.lane, LaneNumber(spool.claim))
    return head is not None and head.header.writer == spool.writer


async def _take_in(
    lane: DataLane, spool: SpoolId, found: Spooled, wanted: set[PartitionId], replayed: Replayed
) -> bool:
    """Add the batches that continue the logs; True if no acknowledged batch is missing."""
    if not lane.is_open:
        return False
    wanted = wanted & lane.awaited.keys()  # without topics that were deleted meanwhile
    replayed.torn_bytes += found.torn_bytes
    replayed.problems += found.problems
    leader_epoch = bisect_left(lane.state.claims, spool.claim)
    next_claim = lane.state.claims[bisect_right(lane.state.claims, spool.claim)]
    is_acknowledged = True
    ended: set[PartitionId] = set()
    gaps: set[PartitionId] = set()
    for frame in found.frames:
        # Frames are published in order: after one that was not acknowledged, none was.
        is_acknowledged &= frame.after is None or frame.after < next_claim
        for fact, record_batch in batches_in(frame):
            if fact.partition not in wanted or fact.partition in ended:
                continue
            end_offset = lane.log_of(fact.partition).log_end_offset
            if fact.base_offset > end_offset:
                ended.add(fact.partition)
                if is_acknowledged:
                    gaps.add(fact.partition)
                    replayed.problems.append(
                        f"{fact.partition}: the spool continues at offset {fact.base_offset}, but"
                        f" the log end offset is {end_offset}"
                    )
            elif fact.base_offset == end_offset:
                kept = msgspec.structs.replace(fact, leader_epoch=leader_epoch)
                lane.add(kept, record_batch)
                replayed.record_batches += 1
                replayed.bytes += fact.size_bytes
    done = sorted(wanted - gaps) if found.is_complete else []
    for partition in done:
        end_offset = lane.log_of(partition).log_end_offset
        lane.add(CeilingReserved(partition, end_offset, lane.claimed_lane.cursor.claim))
    await lane.flush()
    replayed.partitions += len(done)
    for partition in done:
        lane.awaited.pop(partition, None)
    return len(done) == len(wanted)


async def continue_without(lane: DataLane, partition: PartitionId) -> RecordsMissing | None:
    """Continue a log after everything that a missing disk may hold; return the missing offsets.

    An empty record batch takes their place, as in Kafka after compaction by key.
    """
    log = lane.log_of(partition)
    claim = lane.awaited.get(partition)
    first, end = log.log_end_offset, log.durable_ceiling.offset
    if claim is None or first >= end or not lane.is_open:
        return None
    now_ms = lane.environment.now_ms()
    missing = RecordsMissing(partition, first, end - 1, claim, now_ms)
    record_batch = encode_empty_batch(first, end - 1, leader_epoch=lane.leader_epoch)
    header = parse_header(record_batch)
    fact = Appended(
        partition,
        first,
        end - 1,
        header.size_bytes,
        header.max_timestamp,
        header.crc,
        appended_ms=now_ms,
    )
    lane.add(missing)
    lane.add(fact, record_batch)
    lane.add(CeilingReserved(partition, end, lane.claimed_lane.cursor.claim))
    await lane.flush()
    lane.awaited.pop(partition, None)
    return missing


def batches_in(frame: Frame) -> Iterator[tuple[Appended, memoryview]]:
    """Yield the batches of a frame with their bytes, which are laid out as in a lane object."""
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
