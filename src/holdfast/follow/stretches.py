"""Stretches: whole record batches of one partition as a range of bytes of one object.

Owns how the index of a log becomes stretches, and the proof that they hold every offset.
"""

from collections.abc import Mapping, Sequence

from holdfast.errors import InvariantViolation
from holdfast.identifiers import LaneId, PartitionId
from holdfast.lane.keys import entry_key
from holdfast.log.facts import SegmentRef
from holdfast.log.partition import PartitionLog
from holdfast.log.reader import LogReader
from holdfast.log.segment import INDEX_INTERVAL_BYTES
from holdfast.log.state import segment_key
from holdfast.log.stored_batches import Stretch, stretch_of_block, stretch_of_segment


def stretches_of_runs(
    log: PartitionLog, lane: LaneId, payload_starts: Mapping[int, int], start: int, end: int
) -> list[Stretch]:
    """Return the stretches inside lane objects that have something of [start, end)."""
    found: list[Stretch] = []
    runs = log.runs
    for i in range(runs.find(start), len(runs)):
        if runs.base[i] >= end:
            break
        number = runs.number[i]
        payload_start = payload_starts.get(number)
        found.append(
            Stretch(
                entry_key(lane, number),
                runs.position[i] + (payload_start or 0),
                runs.size[i],
                runs.base[i],
                runs.last[i],
                runs.max_timestamp[i],
                payload_start is None,
            )
        )
    return found


async def stretches_of_segment(
    reader: LogReader, partition: PartitionId, segment: SegmentRef, start: int, end: int
) -> list[Stretch]:
    """Return the blocks of a segment that have something of [start, end)."""
    key = segment_key(partition, segment.name)
    is_whole = start <= segment.base_offset and segment.last_offset < end
    if is_whole and segment.size_bytes <= INDEX_INTERVAL_BYTES:
        # About one block: its index would say nothing that the lane does not say.
        return [stretch_of_segment(key, segment)]
    index = await reader.segment_index(partition, segment)
    found: list[Stretch] = []
    for i in range(index.find(start), len(index)):
        block = index.block(i)
        if block.base_offset >= end:
            break
        found.append(stretch_of_block(key, block))
    return found


def check_tiles(partition: PartitionId, stretches: Sequence[Stretch], start: int, end: int) -> None:
    """Raise InvariantViolation if an offset of [start, end) is in no stretch, or in two."""
    expected = start
    for i, stretch in enumerate(stretches):
        starts_right = (
            stretch.base_offset <= expected if i == 0 else stretch.base_offset == expected
        )
        if not starts_right or stretch.last_offset < expected:
            raise InvariantViolation(
                f"{partition}: {stretch.key} holds offsets {stretch.base_offset} to"
                f" {stretch.last_offset} where {expected} is next"
            )
        expected = stretch.last_offset + 1
    if expected < end:
        raise InvariantViolation(
            f"{partition}: the index ends at offset {expected - 1}, but {end - 1} was acknowledged"
        )
