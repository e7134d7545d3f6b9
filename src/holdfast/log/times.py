"""Find records by their time: the first at or after a timestamp, and the newest of all.

Reads as little as possible: the index says which stretch, the stretch's headers say which batch,
and only that batch is decoded. Must never find a record at or past the end offset, which is the
last stable offset for `read_committed`, otherwise the high watermark.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

from holdfast.errors import CorruptObject, ObjectNotFound
from holdfast.log.partition import PartitionLog
from holdfast.log.read_plan import NO_END, Buffer, batches_of
from holdfast.log.reader import LogReader
from holdfast.records.batch import parse_header
from holdfast.records.record import first_at_or_after, max_timestamp_record

LOOKS_MAX = 5
UNCOMPRESSED_BYTES_MAX = 16 * 1024 * 1024
"""The largest uncompressed batch that is decoded. For a larger one the answer is its start."""


class TimedOffset(NamedTuple):
    """An offset and the timestamp of its record."""

    offset: int
    timestamp: int


class _Candidate(NamedTuple):
    max_timestamp: int
    base_offset: int
    last_offset: int


async def offset_for_time(
    reader: LogReader, log: PartitionLog, timestamp: int, end_offset: int = NO_END
) -> TimedOffset | None:
    """Return the first record with this timestamp or a later one; None if there is none."""
    return await _planned_anew(lambda: _first_since(reader, log, timestamp, end_offset))


async def offset_of_max_timestamp(
    reader: LogReader, log: PartitionLog, end_offset: int = NO_END
) -> TimedOffset | None:
    """Return the first record with the greatest timestamp of the partition."""
    return await _planned_anew(lambda: _newest(reader, log, end_offset))


async def _planned_anew(
    look: Callable[[], Awaitable[TimedOffset | None]],
) -> TimedOffset | None:
    """Repeat `look` while segments are merged, because the index of a merged one is gone."""
    for _ in range(LOOKS_MAX - 1):
        try:
            return await look()
        except ObjectNotFound:
            continue
    return await look()


async def _first_since(
    reader: LogReader, log: PartitionLog, timestamp: int, end_offset: int
) -> TimedOffset | None:
    end_offset = min(end_offset, log.high_watermark)
    async for candidate in _stretches(reader, log, end_offset):
        if candidate.max_timestamp < timestamp or candidate.last_offset < log.log_start_offset:
            continue
        for batch in await _batches(reader, log, candidate, end_offset):
            found = _first_in(batch, timestamp, log.log_start_offset)
            if found is not None and found.offset < end_offset:
                return found
    return None


def _first_in(batch: memoryview, timestamp: int, log_start_offset: int) -> TimedOffset | None:
    """Return the record, or the start of its batch if the batch cannot be decoded.

    The CRC of such a batch is right, so a producer sent garbage, or a decompression bomb. A reader
    that starts a little early misses nothing, and one bad batch must not break every later lookup.
    """
    try:
        found = first_at_or_after(
            batch,
            timestamp,
            from_offset=log_start_offset,
            uncompressed_bytes_max=UNCOMPRESSED_BYTES_MAX,
        )
    except CorruptObject:
        return _start_of(batch, log_start_offset)
    return TimedOffset(*found) if found is not None else None


def _start_of(batch: memoryview, log_start_offset: int) -> TimedOffset:
    header = parse_header(batch)
    return TimedOffset(max(header.base_offset, log_start_offset), header.max_timestamp)


def _newest_in(batch: memoryview, log_start_offset: int) -> TimedOffset:
    try:
        return TimedOffset(
            *max_timestamp_record(batch, uncompressed_bytes_max=UNCOMPRESSED_BYTES_MAX)
        )
    except CorruptObject:
        return _start_of(batch, log_start_offset)


async def _newest(reader: LogReader, log: PartitionLog, end_offset: int) -> TimedOffset | None:
    end_offset = min(end_offset, log.high_watermark)
    candidates = [c async for c in _stretches(reader, log, end_offset) if c.max_timestamp >= 0]
    best: TimedOffset | None = None
    for candidate in sorted(candidates, key=lambda c: (-c.max_timestamp, c.base_offset)):
        if best is not None and candidate.max_timestamp <= best.timestamp:
            break
        if candidate.last_offset < log.log_start_offset:
            continue
        batches = await _batches(reader, log, candidate, end_offset)
        newest = max(batches, key=lambda b: parse_header(b).max_timestamp, default=None)
        # The stretch's newest record may be below the log start, so another may be newer.
        if newest is not None:
            found = _newest_in(newest, log.log_start_offset)
            if found.timestamp >= 0 and (best is None or found.timestamp > best.timestamp):
                best = found
    return best


async def _stretches(
    reader: LogReader, log: PartitionLog, end_offset: int
) -> AsyncIterator[_Candidate]:
    """Yield the stretches as of one moment: a rewrite may move runs into segments meanwhile."""
    segments = list(log.segments)
    runs = zip(log.runs.max_timestamp[:], log.runs.base[:], log.runs.last[:], strict=True)
    for segment in segments:
        if segment.base_offset >= end_offset:
            return
        index = await reader.segment_index(log.partition, segment)
        for i in range(len(index)):
            block = index.block(i)
            if block.base_offset >= end_offset:
                return
            yield _Candidate(block.max_timestamp, block.base_offset, block.last_offset)
    for run in runs:
        candidate = _Candidate(*run)
        if candidate.base_offset < end_offset:
            yield candidate


async def _batches(
    reader: LogReader, log: PartitionLog, candidate: _Candidate, end_offset: int
) -> Sequence[memoryview]:
    found: list[memoryview] = []
    offset = max(candidate.base_offset, log.log_start_offset)
    while offset <= candidate.last_offset:
        cut = await reader.read(log, offset, 4 * 1024 * 1024, end_offset)
        buffers: list[Buffer] = cut.buffers
        if not buffers:
            break
        found.extend(batches_of(buffers))
        offset = cut.next_offset
    return [batch for batch in found if parse_header(batch).base_offset <= candidate.last_offset]
