"""Rewrite old lane objects into one-partition segments, then delete the lane objects.

Works in steps. Owns the order that keeps every record readable at every moment: in each step write
the segments, then make the fact that names them durable; after the last step snapshot, floor,
delete. A crash between any two of these leaves at most objects that nothing names, which
`sweep_segments` removes, and undoes at most one step.
"""

import asyncio
import dataclasses

from holdfast.errors import InvariantViolation
from holdfast.identifiers import LaneNumber, PartitionId
from holdfast.lane.floor import read_floor
from holdfast.log.data_lane import DataLane
from holdfast.log.facts import PartitionPurged, Rewritten, RewrittenPartition, SegmentRef
from holdfast.log.lane_pass import Pace, PartitionStep, ReadAhead, RewriteStep, plan_step, slice_run
from holdfast.log.memory import Payload
from holdfast.log.partition import PartitionLog
from holdfast.log.segment import SegmentBuilder
from holdfast.log.state import partition_prefix, segment_key
from holdfast.store.patience import patiently
from holdfast.store.put_if_absent import Lost, put_if_absent, same_bytes

MERGE_MIN = 8
"""The fewest segments that are merged before the last step of a rewrite, unless they are large
together. Fewer would be read and written again after the next step."""
MERGED_AT_ONCE = 16
"""The segments merged for one fact: this many, or fewer if their bytes fill a segment."""
LARGE_PART = 4
"""A segment of 1/LARGE_PART of the largest size is large enough, and is not merged again."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RewriteSettings:
    """When lane objects are rewritten, and how large a segment may become."""

    entries_max: int = 10_000
    bytes_max: int = 1024 * 1024 * 1024
    runs_max: int = 50_000
    segment_bytes_max: int = 64 * 1024 * 1024
    step_bytes_max: int = 128 * 1024 * 1024
    """How many bytes of the lane one step reads into memory. A crash undoes no more than that."""
    step_entries_max: int = 1_000
    """How many objects one step reads, which bounds a step over small objects."""
    delete_delay_s: float = 60.0
    """How long readers with an older plan may still find the old objects."""


def is_due(lane: DataLane, settings: RewriteSettings) -> bool:
    """True if enough has gathered in the lane since the last rewrite."""
    entries = lane.cursor.next_number - 1 - lane.state.rewritten_up_to
    if entries >= settings.entries_max or lane.state.run_count >= settings.runs_max:
        return True
    queue = lane.queue
    stored = sum(sum(log.runs.size) for log in lane.state.partitions.values())
    stored -= queue.unflushed_bytes if queue is not None else 0
    return stored >= settings.bytes_max


async def rewrite(lane: DataLane, settings: RewriteSettings) -> int:
    """Move everything durable in the lane into segments; return the number of bytes written."""
    await lane.flush()
    up_to = LaneNumber(lane.cursor.next_number - 1)
    await _drop_what_others_left(lane, settings)
    written = 0
    pace = Pace(lane.environment)
    is_done = False
    while not is_done:
        step = plan_step(
            lane.state,
            up_to,
            bytes_max=settings.step_bytes_max,
            entries_max=settings.step_entries_max,
        )
        is_done = step.up_to == up_to
        written += await _settle(lane, step.up_to, await _rewrite_step(lane, step, settings, pace))
        written += await _merge(lane, settings, pace, is_last=is_done)
        if not lane.is_open:
            return written
    await asyncio.sleep(settings.delete_delay_s)
    await _drop(lane, up_to)
    lane.tail.forget(lane.lane, up_to)
    await collect(lane)
    return written


async def _settle(lane: DataLane, up_to: int, parts: list[RewrittenPartition]) -> int:
    """Make the fact that names new segments durable; return their size. A crash now keeps them."""
    if not lane.is_open:
        return 0
    lane.add(Rewritten(up_to, parts))
    await lane.flush()
    return sum(segment.size_bytes for part in parts for segment in part.segments)


async def _drop_what_others_left(lane: DataLane, settings: RewriteSettings) -> None:
    """Delete lane objects that earlier owners had rewritten but not deleted.

    The fact of that rewrite is older than our claim. Once the claim is older than the delete delay,
    so is every read plan that was made without the fact.
    """
    before = LaneNumber(lane.state.rewritten_before)
    age_s = lane.environment.monotonic() - lane.claimed_lane.claimed_at
    if before < 0 or age_s < settings.delete_delay_s:
        return
    if await read_floor(lane.store, lane.environment, lane.lane) <= before:
        await _drop(lane, before)
    lane.state.rewritten_before = -1


async def _drop(lane: DataLane, up_to: LaneNumber) -> None:
    """Delete lane objects, but never one that a log still names."""
    for log in lane.state.partitions.values():
        if len(log.runs) and log.runs.number[0] <= up_to:
            raise InvariantViolation(
                f"{log.partition}: refused to delete lane object {log.runs.number[0]}: it still"
                f" holds offset {log.runs.base[0]}"
            )
    await lane.drop_up_to(up_to, lane.state.claims)


async def _rewrite_step(
    lane: DataLane, step: RewriteStep, settings: RewriteSettings, pace: Pace
) -> list[RewrittenPartition]:
    """Write the segments of one step; stop early if the lane is no longer ours."""
    objects = ReadAhead(lane, list(step.objects), pace)
    try:
        for parts in step.objects.values():
            payload = await objects.next()
            with pace.working():
                await _hand_out(lane, payload, parts, settings)
            await pace.rest()
            if not lane.is_open:
                return []
    finally:
        objects.close()
    rewritten: list[RewrittenPartition] = []
    for part in step.partitions:
        partition = part.log.partition
        if partition not in lane.state.partitions:
            continue  # its topic was deleted meanwhile
        with pace.working():
            part.new.append(await _write_segment(lane, part.builder))
        part.builder = SegmentBuilder(partition)
        _check_tiles(partition, part.runs.base[0], part.runs.last[-1], part.new)
        rewritten.append(RewrittenPartition(partition, [], part.new))
        await pace.rest()
        if not lane.is_open:
            return []
    return rewritten


async def _hand_out(
    lane: DataLane, payload: Payload, parts: list[PartitionStep], settings: RewriteSettings
) -> None:
    """Give each partition its run of one object, and write the segments that are full."""
    runs = [part.next_run() for part in parts]
    live_bytes = sum(run.size_bytes for run in runs)
    for part, run in zip(parts, runs, strict=True):
        size = part.builder.size_bytes
        if size and size + run.size_bytes > settings.segment_bytes_max:
            part.new.append(await _write_segment(lane, part.builder))
            part.builder = SegmentBuilder(part.log.partition)
        part.builder.add(slice_run(payload, run, part.log, live_bytes=live_bytes))


async def _merge(lane: DataLane, settings: RewriteSettings, pace: Pace, *, is_last: bool) -> int:
    """Merge small segments at the ends of logs, a few for each fact; return the bytes written.

    Merges are not part of the steps. So a step stays short, and even a broker that runs for a short
    time completes one.
    """
    written = segments = size = 0
    parts: list[RewrittenPartition] = []
    for log in list(lane.state.partitions.values()):
        found = _segments_to_merge(log, settings)
        found_bytes = sum(segment.size_bytes for segment in found)
        is_worth_it = len(found) >= MERGE_MIN or found_bytes >= settings.segment_bytes_max // 2
        if not found or not (is_last or is_worth_it):
            continue
        with pace.working():
            parts.append(await _merge_partition(lane, log, found))
        await pace.rest()
        segments += len(found)
        size += found_bytes
        if segments >= MERGED_AT_ONCE or size >= settings.segment_bytes_max:
            written += await _settle(lane, lane.state.rewritten_up_to, parts)
            segments, size, parts = 0, 0, []
        if not lane.is_open:
            return written
    return written + (await _settle(lane, lane.state.rewritten_up_to, parts) if parts else 0)


async def _merge_partition(
    lane: DataLane, log: PartitionLog, found: list[SegmentRef]
) -> RewrittenPartition:
    builder = SegmentBuilder(log.partition)
    for segment in found:
        builder.add([await lane.reader.load_segment(log, segment)])
    new = [await _write_segment(lane, builder)]
    _check_tiles(log.partition, found[0].base_offset, found[-1].last_offset, new)
    return RewrittenPartition(log.partition, [segment.name for segment in found], new)


def _segments_to_merge(log: PartitionLog, settings: RewriteSettings) -> list[SegmentRef]:
    """Return the segments from the first that is no larger than all later ones together.

    Each segment before it is larger than all later ones together, or large enough, so the number
    of segments stays logarithmic.
    """
    first = len(log.segments)
    size = 0
    for i in range(len(log.segments) - 1, -1, -1):
        one = log.segments[i].size_bytes
        is_large = one * LARGE_PART >= settings.segment_bytes_max
        if is_large or size + one > settings.segment_bytes_max:
            break
        if one <= size:
            first = i
        size += one
    return log.segments[first:]


async def _write_segment(lane: DataLane, builder: SegmentBuilder) -> SegmentRef:
    attempt = f"{lane.cursor.claim:020d}-{lane.environment.new_writer_id().hex()[:8]}"
    built = builder.finish(attempt)
    outcome = await put_if_absent(
        lane.store,
        segment_key(builder.partition, built.ref.name),
        built.body,
        is_ours=same_bytes(built.body[:1]),
        identify_bytes=built.ref.data_start,
        environment=lane.environment,
    )
    if isinstance(outcome, Lost):
        raise InvariantViolation(
            f"{builder.partition}: a segment named {built.ref.name} already exists"
        )
    return built.ref


def _check_tiles(partition: PartitionId, first: int, last: int, new: list[SegmentRef]) -> None:
    """Raise unless the new segments hold exactly the offsets that they replace."""
    expected = first
    for segment in new:
        if segment.base_offset != expected:
            raise InvariantViolation(
                f"{partition}: a rewritten segment starts at offset {segment.base_offset};"
                f" {expected} is expected"
            )
        expected = segment.last_offset + 1
    if expected != last + 1:
        raise InvariantViolation(
            f"{partition}: rewritten segments end before offset {expected}; {last + 1} is expected"
        )


async def collect(lane: DataLane) -> int:
    """Delete the segments that nothing durable names any more; return their number."""
    keys = lane.state.collectable
    lane.state.collectable = []
    if keys:
        await patiently(lambda: lane.store.delete(keys), environment=lane.environment)
    return len(keys)


async def sweep_segments(lane: DataLane) -> int:
    """Delete this lane's segments that no fact names, left by a crash or by another owner.

    A fact that is decided but not durable may still be undone, so segments that it drops count as
    named. Only segments of earlier claims are deleted: those that such a claim did not name before
    it ended can never be named. Segments of a newer claim, even of one that we have not heard of,
    are never deleted.
    """
    swept = 0
    for log in list(lane.state.partitions.values()):
        entries = await _listed(lane, log.partition)
        named = {segment_key(log.partition, segment.name) for segment in log.segments}
        named.update(lane.state.keys_to_drop())
        gone = [
            key
            for key in entries
            if key not in named
            and (claim := claim_in(key.rsplit("/", 1)[-1])) is not None
            and claim < lane.cursor.claim
        ]
        if gone:
            await patiently(lambda gone=gone: lane.store.delete(gone), environment=lane.environment)
        swept += len(gone)
    return swept


async def purge_removed(lane: DataLane) -> int:
    """Delete all segments of partitions of deleted topics. Partition ids are never reused."""
    purged = 0
    removed = list(lane.state.removed)
    if removed:
        await lane.flush()
    for partition in removed:
        keys = await _listed(lane, partition)
        if keys:
            await patiently(lambda keys=keys: lane.store.delete(keys), environment=lane.environment)
        if lane.is_open:
            lane.add(PartitionPurged(partition))
            purged += 1
    return purged


async def _listed(lane: DataLane, partition: PartitionId) -> list[str]:
    prefix = partition_prefix(partition)
    entries = await patiently(lambda: lane.store.list(prefix), environment=lane.environment)
    return [entry.key for entry in entries]


def claim_in(name: str) -> int | None:
    """Return the claim under which a segment was written; None if the name is not one of ours."""
    parts = name.split("-")
    return int(parts[2]) if len(parts) == 4 and parts[2].isdigit() else None
