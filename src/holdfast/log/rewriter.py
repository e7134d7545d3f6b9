"""Rewrite old lane objects into one-partition segments, and let the lane objects go.

Owns the order that keeps every record readable at every instant: write segments, make the fact
that names them durable, snapshot, floor, delete. A crash between any two steps leaves at most
objects that nothing names, and `sweep_segments` removes those.
"""

import asyncio
import dataclasses

from holdfast.environment import Environment
from holdfast.errors import InvariantViolation
from holdfast.identifiers import LaneNumber, PartitionId
from holdfast.log.data_lane import DataLane
from holdfast.log.facts import PartitionPurged, Rewritten, RewrittenPartition, SegmentRef
from holdfast.log.partition import PartitionLog, Run
from holdfast.log.segment import SegmentBuilder
from holdfast.log.state import partition_prefix, segment_key
from holdfast.store.patience import patiently
from holdfast.store.put_if_absent import Lost, put_if_absent, same_bytes

LOADS_AT_ONCE = 16
RESTS = 2
"""A rewrite rests this many times as long as it works, so that the disk, and the loop, stay free
for producers: at full speed it made a quiet producer wait for seconds."""


class Pace:
    """Lets background work rest between its steps."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._since = environment.monotonic()

    async def rest(self) -> None:
        await asyncio.sleep(RESTS * (self._environment.monotonic() - self._since))
        self._since = self._environment.monotonic()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RewriteSettings:
    """When lane objects are rewritten, and how large a segment may become."""

    entries_max: int = 10_000
    bytes_max: int = 1024 * 1024 * 1024
    runs_max: int = 50_000
    segment_bytes_max: int = 64 * 1024 * 1024
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
    parts: list[RewrittenPartition] = []
    written = 0
    pace = Pace(lane.environment)
    for log in list(lane.state.partitions.values()):
        part = await _rewrite_partition(lane, log, up_to, settings, pace)
        if part is not None:
            parts.append(part)
            written += sum(segment.size_bytes for segment in part.segments)
    if not lane.appender.is_open:
        return written
    lane.appender.add(Rewritten(up_to, parts))
    await lane.appender.flush()
    await asyncio.sleep(settings.delete_delay_s)
    await lane.drop_up_to(up_to, lane.state.claims)
    lane.tail.forget(lane.lane, up_to)
    await collect(lane)
    return written


async def _rewrite_partition(
    lane: DataLane, log: PartitionLog, up_to: int, settings: RewriteSettings, pace: Pace
) -> RewrittenPartition | None:
    runs = [run for i in range(len(log.runs)) if (run := log.runs.get(i)).number <= up_to]
    if not runs:
        return None
    replaced = _segments_to_merge(log, sum(run.size_bytes for run in runs), settings)
    new: list[SegmentRef] = []
    builder = SegmentBuilder(log.partition)
    for segment in replaced:
        builder.add([await lane.reader.load_segment(log, segment)])
    for i in range(0, len(runs), LOADS_AT_ONCE):
        some = runs[i : i + LOADS_AT_ONCE]
        stretches = await asyncio.gather(*(lane.reader.load_run(log, run) for run in some))
        for run, stretch in zip(some, stretches, strict=True):
            if (
                builder.size_bytes
                and builder.size_bytes + run.size_bytes > settings.segment_bytes_max
            ):
                new.append(await _write_segment(lane, builder))
                builder = SegmentBuilder(log.partition)
            builder.add(stretch)
        await pace.rest()
    new.append(await _write_segment(lane, builder))
    _check_tiles(log.partition, replaced, runs, new)
    return RewrittenPartition(log.partition, [segment.name for segment in replaced], new)


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
    partition: PartitionId, replaced: list[SegmentRef], runs: list[Run], new: list[SegmentRef]
) -> None:
    """The new segments must hold exactly the offsets of what they replace."""
    first = replaced[0].base_offset if replaced else runs[0].base_offset
    expected = first
    for segment in new:
        if segment.base_offset != expected:
            raise InvariantViolation(
                f"{partition}: a rewritten segment starts at {segment.base_offset}, not {expected}"
            )
        expected = segment.last_offset + 1
    if expected != runs[-1].last_offset + 1:
        raise InvariantViolation(
            f"{partition}: rewritten segments end at {expected}, not {runs[-1].last_offset + 1}"
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
