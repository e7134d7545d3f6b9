"""Find records by their time: the first at or after a timestamp, and the newest of all.

Reads only what it must: the index says which stretch, the stretch's headers which batch, and only
that batch is decoded.
"""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from holdfast.log.partition import PartitionLog
from holdfast.log.read_plan import Buffer, batches_of
from holdfast.log.reader import LogReader
from holdfast.records.batch import parse_header
from holdfast.records.record import first_at_or_after, max_timestamp_record


class TimedOffset(NamedTuple):
    """An offset and the timestamp of its record."""

    offset: int
    timestamp: int


class _Candidate(NamedTuple):
    max_timestamp: int
    base_offset: int
    last_offset: int


async def offset_for_time(
    reader: LogReader, log: PartitionLog, timestamp: int
) -> TimedOffset | None:
    """The first record whose timestamp is not older than the one given."""
    async for candidate in _stretches(reader, log):
        if candidate.max_timestamp < timestamp or candidate.last_offset < log.log_start_offset:
            continue
        for batch in await _batches(reader, log, candidate):
            found = first_at_or_after(batch, timestamp, from_offset=log.log_start_offset)
            if found is not None and found[0] < log.high_watermark:
                return TimedOffset(*found)
    return None


async def offset_of_max_timestamp(reader: LogReader, log: PartitionLog) -> TimedOffset | None:
    """The record with the greatest timestamp of the partition."""
    best: _Candidate | None = None
    async for candidate in _stretches(reader, log):
        if candidate.last_offset < log.log_start_offset:
            continue
        if best is None or candidate.max_timestamp > best.max_timestamp:
            best = candidate
    if best is None or best.max_timestamp < 0:
        return None
    for batch in await _batches(reader, log, best):
        if parse_header(batch).max_timestamp == best.max_timestamp:
            return TimedOffset(*max_timestamp_record(batch))
    return None


async def _stretches(reader: LogReader, log: PartitionLog) -> AsyncIterator[_Candidate]:
    for segment in list(log.segments):
        index = await reader.segment_index(log.partition, segment)
        for i in range(len(index)):
            block = index.block(i)
            yield _Candidate(block.max_timestamp, block.base_offset, block.last_offset)
    for i in range(len(log.runs)):
        run = log.runs.get(i)
        if run.base_offset < log.high_watermark:
            yield _Candidate(run.max_timestamp, run.base_offset, run.last_offset)


async def _batches(
    reader: LogReader, log: PartitionLog, candidate: _Candidate
) -> Sequence[memoryview]:
    found: list[memoryview] = []
    offset = max(candidate.base_offset, log.log_start_offset)
    while offset <= candidate.last_offset:
        cut = await reader.read(log, offset, 4 * 1024 * 1024)
        buffers: list[Buffer] = cut.buffers
        if not buffers:
            break
        found.extend(batches_of(buffers))
        offset = cut.next_offset
    return [batch for batch in found if parse_header(batch).base_offset <= candidate.last_offset]
