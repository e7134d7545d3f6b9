"""Plan which stretches of which objects a read needs, and cut them to the size of the read.

Pure. Must never plan past the high watermark: records after it are not durable, even if they are
indexed. Cuts only between record batches, and always returns the first one whole.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.errors import CorruptObject
from holdfast.log.facts import SegmentRef
from holdfast.log.partition import PartitionLog, PartitionRun
from holdfast.records.batch import walk

Buffer = bytes | bytearray | memoryview


NO_END = 1 << 62
RUNS_MAX = 1_000
"""The most runs in one read: many tiny ones would block the event loop for long."""


class ReadPlan(NamedTuple):
    """The places of the records from an offset on, in order."""

    segments: list[SegmentRef]
    runs: list[PartitionRun]


def plan_read(log: PartitionLog, offset: int, bytes_max: int, end_offset: int = NO_END) -> ReadPlan:
    """Plan about `bytes_max` of records from the offset, and nothing from `end_offset` on.

    `end_offset` is the high watermark that the response reports; the log's may have moved since.
    """
    wanted = max(1, bytes_max)
    segments: list[SegmentRef] = []
    runs: list[PartitionRun] = []
    planned = 0
    end = min(end_offset, log.high_watermark)
    if offset >= end:
        return ReadPlan(segments, runs)
    for segment in log.segments[_first_segment(log.segments, offset) :]:
        if planned >= wanted or segment.base_offset >= end:
            return ReadPlan(segments, runs)
        segments.append(segment)
        # How much of the first segment precedes the offset is unknown here, so do not count it.
        planned += segment.size_bytes if len(segments) > 1 else 0
    for i in range(log.runs.find(offset), len(log.runs)):
        enough = planned >= wanted or len(runs) >= RUNS_MAX
        if enough or log.runs.base[i] >= end:
            break
        run = log.runs.get(i)
        runs.append(run)
        planned += run.size_bytes if len(runs) > 1 else 0
    return ReadPlan(segments, runs)


def _first_segment(segments: Sequence[SegmentRef], offset: int) -> int:
    low, high = 0, len(segments)
    while low < high:
        middle = (low + high) // 2
        if segments[middle].last_offset < offset:
            low = middle + 1
        else:
            high = middle
    return low


class BatchCut:
    """Collects whole batches from an offset on, up to a number of bytes or an end offset."""

    def __init__(self, offset: int, bytes_max: int, end_offset: int = NO_END) -> None:
        self.next_offset = offset
        self.bytes = 0
        self.buffers: list[Buffer] = []
        self.is_full = False
        self.bytes_max = bytes_max
        self._end_offset = end_offset

    def add_stretch(self, buffers: Sequence[Buffer], last_offset: int, size_bytes: int) -> None:
        """Add a stretch of known size and last offset: the whole of it, if it fits."""
        if self.is_full or last_offset < self.next_offset:
            return
        fits = self.bytes + size_bytes <= self.bytes_max and last_offset < self._end_offset
        if self.buffers and fits:
            self.buffers.extend(buffers)
            self.bytes += size_bytes
            self.next_offset = last_offset + 1
            return
        for buffer in buffers:
            if not self._add_buffer(buffer):
                return

    def _add_buffer(self, buffer: Buffer) -> bool:
        start: int | None = None
        end = 0
        for position, header in walk(buffer):
            if header.last_offset < self.next_offset:
                continue
            if header.base_offset > self.next_offset and (self.buffers or start is not None):
                raise CorruptObject(
                    f"a record batch starts at offset {header.base_offset};"
                    f" {self.next_offset} is expected"
                )
            is_first = not self.buffers and start is None
            too_much = not is_first and self.bytes + header.size_bytes > self.bytes_max
            if too_much or header.base_offset >= self._end_offset:
                self.is_full = True
                break
            start = position if start is None else start
            end = position + header.size_bytes
            self.bytes += header.size_bytes
            self.next_offset = header.last_offset + 1
        if start is not None:
            whole = start == 0 and end == len(buffer)
            self.buffers.append(buffer if whole else memoryview(buffer)[start:end])
        if self.buffers and self.bytes >= self.bytes_max:
            self.is_full = True
        return not self.is_full


def batches_of(buffers: Sequence[Buffer]) -> Iterator[memoryview]:
    """Yield each record batch separately."""
    for buffer in buffers:
        view = memoryview(buffer)
        for position, header in walk(buffer):
            yield view[position : position + header.size_bytes]
