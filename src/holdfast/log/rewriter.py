"""Rewrite old lane objects into one-partition segments, and let the lane objects go.

Goes in steps. Owns the order that keeps every record readable at every instant: of each step write
the segments, then make the fact that names them durable; after the last one snapshot, floor,
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
from holdfast.log.lane_pass import Pace, PartitionStep, ReadAhead, Step, plan_step, slice_run
from holdfast.log.memory import Payload
from holdfast.log.partition import PartitionLog, RunColumns
from holdfast.log.segment import SegmentBuilder
from holdfast.log.state import partition_prefix, segment_key
from holdfast.store.patience import patiently
from holdfast.store.put_if_absent import Lost, put_if_absent, same_bytes

MERGE_MIN = 8
"""Steps but the last of a rewrite merge only so many segments: else each would be read and written
again by the next step."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RewriteSettings:
    """When lane objects are rewritten, and how large a segment may become."""

    entries_max: int = 10_000
    bytes_max: int = 1024 * 1024 * 1024
    runs_max: int = 50_000
    segment_bytes_max: int = 64 * 1024 * 1024
    step_bytes_max: int = 128 * 1024 * 1024
    """How much of the lane one step takes. It is held in memory, beside one segment that is merged
    with it; a crash undoes no more than this."""
    step_entries_max: int = 1_000
    """The same for many small objects: how many of them a step reads."""
    delete_delay_s: float = 60.0
    """How long a reader that planned before may still find the old objects."""


def is_due(lane: DataLane, settings: RewriteSettings) -> bool:
    """Whether enough has gathered in the lane since the last time."""
    entries = lane.appender.cursor.next_number - 1 - lane.state.rewritten_up_to
    if entries >= settings.entries_max or lane.state.run_count >= settings.runs_max:
        return True
    stored = sum(sum(log.runs.size) for log in lane.state.partitions.values())
    return stored >= settings.bytes_max


async def rewrite(lane: DataLane, settings: RewriteSettings) -> int:
    """Move all that the lane holds durably into segments; returns the bytes that were written."""
    await lane.appender.flush()
    up_to = LaneNumber(lane.appender.cursor.next_number - 1)
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
        parts = await _rewrite_step(
            lane, step, settings, pace, merge_min=1 if is_done else MERGE_MIN
        )
        if not lane.appender.is_open:
            return written
        lane.appender.add(Rewritten(step.up_to, parts))
        await lane.appender.flush()
        written += sum(segment.size_bytes for part in parts for segment in part.segments)
    await asyncio.sleep(settings.delete_delay_s)
    await lane.drop_up_to(up_to, lane.state.claims)
    lane.tail.forget(lane.lane, up_to)
    await collect(lane)
    return written


async def _drop_what_others_left(lane: DataLane, settings: RewriteSettings) -> None:
    """Delete what owners before this one had rewritten, and did not get to delete.

    Its fact is older than this claim: once the claim is as old as the delay, so is every plan
    that was made without the fact.
    """
    before = LaneNumber(lane.state.rewritten_before)
    age_s = lane.environment.monotonic() - lane.claimed_lane.claimed_at
    if before < 0 or age_s < settings.delete_delay_s:
        return
    if await read_floor(lane.store, lane.environment, lane.lane) <= before:
        await lane.drop_up_to(before, lane.state.claims)
    lane.state.rewritten_before = -1


async def _rewrite_step(
    lane: DataLane, step: Step, settings: RewriteSettings, pace: Pace, *, merge_min: int
) -> list[RewrittenPartition]:
    """Write the segments of one step; stops early where the lane is no longer ours."""
    objects = ReadAhead(lane, list(step.objects), pace)
    try:
        for parts in step.objects.values():
            payload = await objects.next()
            with pace.working():
                await _hand_out(lane, payload, parts, settings, merge_min)
            await pace.rest()
            if not lane.appender.is_open:
                return []
    finally:
        objects.close()
    rewritten: list[RewrittenPartition] = []
    for part in step.partitions:
        partition = part.log.partition
        if partition not in lane.state.partitions:
            continue  # its topic was deleted meanwhile
        with pace.working():
            await _write_out(lane, part, settings, merge_min)
        _check_tiles(partition, part.replaced, part.runs, part.new)
        replaced = [segment.name for segment in part.replaced]
        rewritten.append(RewrittenPartition(partition, replaced, part.new))
        await pace.rest()
        if not lane.appender.is_open:
            return []
    return rewritten


async def _hand_out(
    lane: DataLane,
    payload: Payload,
    parts: list[PartitionStep],
    settings: RewriteSettings,
    merge_min: int,
) -> None:
    """Give each partition its run of one object; segments that are full are written."""
    runs = [part.next_run() for part in parts]
    live_bytes = sum(run.size_bytes for run in runs)
    for part, run in zip(parts, runs, strict=True):
        size = part.builder.size_bytes
        if size and size + run.size_bytes > settings.segment_bytes_max:
            await _write_out(lane, part, settings, merge_min)
        part.builder.add(slice_run(payload, run, part.log, live_bytes=live_bytes))


async def _write_out(
    lane: DataLane, part: PartitionStep, settings: RewriteSettings, merge_min: int
) -> None:
    """Make a segment of what has gathered, and of small ones before it where it is the first."""
    builder = part.builder
    part.builder = SegmentBuilder(part.log.partition)
    found = _segments_to_merge(part.log, builder.size_bytes, settings) if not part.new else []
    if len(found) >= merge_min:
        part.replaced = found
        merged = SegmentBuilder(part.log.partition)
        for segment in found:
            merged.add([await lane.reader.load_segment(part.log, segment)])
        merged.extend(builder)
        builder = merged
    part.new.append(await _write_segment(lane, builder))


def _segments_to_merge(
    log: PartitionLog, added_bytes: int, settings: RewriteSettings
) -> list[SegmentRef]:
    """The small segments at the end: merging them keeps their number logarithmic."""
    merged: list[SegmentRef] = []
    size = added_bytes
    for segment in reversed(log.segments):
        if segment.size_bytes > size or size + segment.size_bytes > settings.segment_bytes_max:
            break
        merged.append(segment)
        size += segment.size_bytes
    return merged[::-1]


async def _write_segment(lane: DataLane, builder: SegmentBuilder) -> SegmentRef:
    attempt = f"{lane.appender.cursor.claim:020d}-{lane.environment.new_writer_id().hex()[:8]}"
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
            f"{builder.partition}: another segment has the name {built.ref.name}"
        )
    return built.ref


def _check_tiles(
    partition: PartitionId, replaced: list[SegmentRef], runs: RunColumns, new: list[SegmentRef]
) -> None:
    """The new segments must hold exactly the offsets of what they replace."""
    first = replaced[0].base_offset if replaced else runs.base[0]
    expected = first
    for segment in new:
        if segment.base_offset != expected:
            raise InvariantViolation(
                f"{partition}: a rewritten segment starts at {segment.base_offset}, not {expected}"
            )
        expected = segment.last_offset + 1
    if expected != runs.last[-1] + 1:
        raise InvariantViolation(
            f"{partition}: rewritten segments end at {expected}, not {runs.last[-1] + 1}"
        )


async def collect(lane: DataLane) -> int:
    """Delete the segments that nothing durable names any more."""
    keys = lane.state.collectable
    lane.state.collectable = []
    if keys:
        await patiently(lambda: lane.store.delete(keys), environment=lane.environment)
    return len(keys)


async def sweep_segments(lane: DataLane) -> int:
    """Delete segments of this lane's partitions that no fact names: left by a crash or a rival.

    A fact that is decided and not durable may still be undone: what it drops counts as named.
    Only segments of claims before this one: what such a claim did not name by its end can never be
    named. What a newer claim wrote is not ours to judge, even if we have not heard of it yet.
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
            and claim < lane.appender.cursor.claim
        ]
        if gone:
            await patiently(lambda gone=gone: lane.store.delete(gone), environment=lane.environment)
        swept += len(gone)
    return swept


async def purge_removed(lane: DataLane) -> int:
    """Delete all segments of partitions whose topics are gone; partition ids are never reused."""
    purged = 0
    removed = list(lane.state.removed)
    if removed:
        await lane.appender.flush()
    for partition in removed:
        keys = await _listed(lane, partition)
        if keys:
            await patiently(lambda keys=keys: lane.store.delete(keys), environment=lane.environment)
        if lane.appender.is_open:
            lane.appender.add(PartitionPurged(partition))
            purged += 1
    return purged


async def _listed(lane: DataLane, partition: PartitionId) -> list[str]:
    prefix = partition_prefix(partition)
    entries = await patiently(lambda: lane.store.list(prefix), environment=lane.environment)
    return [entry.key for entry in entries]


def claim_in(name: str) -> int | None:
    """The claim under which a segment was written; None where the name is not one of ours."""
    parts = name.split("-")
    return int(parts[2]) if len(parts) == 4 and parts[2].isdigit() else None
