"""The format of a segment: an object with an index, and a stretch of one partition's log.

Pure. Owns the format: header, index, then the record batches, byte for byte as they were. The
index names the batch that starts each block of about INDEX_INTERVAL_BYTES, so that any offset or
time is found with one read of the index and one of a block.
"""

import struct
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from fastcrc import crc32

from holdfast.errors import CorruptObject, InvariantViolation
from holdfast.identifiers import PartitionId
from holdfast.log.columns import column_bytes, fill_column
from holdfast.log.facts import SegmentRef
from holdfast.log.memory import SMALL_BUFFER_BYTES
from holdfast.records.batch import (
    COVERED,
    CRC_START,
    LENGTH_PREFIX_BYTES,
    PREFIX,
)
from holdfast.records.batch import HEADER_BYTES as BATCH_HEADER_BYTES
from holdfast.records.batch import MAGIC as BATCH_MAGIC

Buffer = bytes | bytearray | memoryview

MAGIC = b"HFG1"
_FIELDS = struct.Struct(">4s16siqqQqII")
_CRC = struct.Struct(">I")
HEADER_BYTES = _FIELDS.size + _CRC.size
INDEX_INTERVAL_BYTES = 1024 * 1024


class Block(NamedTuple):
    """A stretch of a segment that is read at once."""

    base_offset: int
    last_offset: int
    position: int
    """The block's position in the object."""
    size_bytes: int
    max_timestamp: int


class SegmentIndex:
    """The index of a segment: the beginning of each block."""

    __slots__ = ("base", "max_timestamp", "position", "segment")

    def __init__(self, segment: SegmentRef) -> None:
        self.segment = segment
        self.base = array("q")
        self.position = array("q")
        self.max_timestamp = array("q")

    def __len__(self) -> int:
        return len(self.base)

    def block(self, i: int) -> Block:
        is_last = i + 1 == len(self.base)
        end = self.segment.size_bytes if is_last else self.position[i + 1]
        last_offset = self.segment.last_offset if is_last else self.base[i + 1] - 1
        return Block(
            self.base[i],
            last_offset,
            self.segment.data_start + self.position[i],
            end - self.position[i],
            self.max_timestamp[i],
        )

    def find(self, offset: int) -> int:
        """Return the number of the block that holds the offset."""
        return max(0, bisect_right(self.base, offset) - 1)


class BuiltSegment(NamedTuple):
    """A segment that is ready to be put."""

    ref: SegmentRef
    body: list[Buffer]


class SegmentBuilder:
    """Collects whole record batches in offset order, and indexes them as they are added."""

    def __init__(self, partition: PartitionId) -> None:
        self.partition = partition
        self._batches: list[Buffer] = []
        self._joined: bytearray | None = None
        self._bases, self._positions, self._times = array("q"), array("q"), array("q")
        self._block_bytes = 0
        self._last_offset = -1
        self.size_bytes = 0

    def add(self, batches: Sequence[Buffer]) -> None:
        """Add batches. Their buffers are kept, not copied, unless they are small."""
        for buffer in batches:
            self._index(buffer)
            self._keep(buffer)

    def _index(self, buffer: Buffer) -> None:
        """Index the batches of a buffer, in plain code that takes half the time of `walk`.

        A rewrite does this for each batch.
        """
        position, end = 0, len(buffer)
        size_bytes, last_offset, block_bytes = self.size_bytes, self._last_offset, self._block_bytes
        while position < end:
            if end - position < BATCH_HEADER_BYTES:
                raise CorruptObject(
                    f"{self.partition}: the last {end - position} bytes are not a record batch"
                )
            base_offset, length, _, magic, _ = PREFIX.unpack_from(buffer, position)
            covered = COVERED.unpack_from(buffer, position + CRC_START)
            batch_bytes = length + LENGTH_PREFIX_BYTES
            if magic != BATCH_MAGIC or not BATCH_HEADER_BYTES <= batch_bytes <= end - position:
                raise CorruptObject(
                    f"{self.partition}: the bytes after offset {last_offset} are not a record batch"
                )
            if size_bytes and base_offset != last_offset + 1:
                raise InvariantViolation(
                    f"{self.partition}: refused to write a segment in which offset {base_offset}"
                    f" follows offset {last_offset}"
                )
            if not self._bases or block_bytes >= INDEX_INTERVAL_BYTES:
                self._bases.append(base_offset)
                self._positions.append(size_bytes)
                self._times.append(-1)
                block_bytes = 0
            if covered[3] > self._times[-1]:
                self._times[-1] = covered[3]
            last_offset = base_offset + covered[1]
            size_bytes += batch_bytes
            block_bytes += batch_bytes
            position += batch_bytes
        self.size_bytes, self._last_offset, self._block_bytes = size_bytes, last_offset, block_bytes

    def _keep(self, buffer: Buffer) -> None:
        if len(buffer) >= SMALL_BUFFER_BYTES:
            self._batches.append(buffer)
            self._joined = None
        elif self._joined is None:
            self._joined = bytearray(buffer)
            self._batches.append(self._joined)
        else:
            self._joined += buffer

    def finish(self, attempt: str) -> BuiltSegment:
        """Return the finished segment; `attempt` makes its name unique."""
        first, max_timestamp = self._bases[0], max(self._times)
        index = b"".join(column_bytes(c) for c in (self._bases, self._positions, self._times))
        fields = _FIELDS.pack(
            MAGIC,
            self.partition.topic_id.bytes,
            self.partition.partition,
            first,
            self._last_offset,
            self.size_bytes,
            max_timestamp,
            len(self._bases),
            crc32.iscsi(index),
        )
        head = fields + _CRC.pack(crc32.iscsi(fields)) + index
        name = f"{first:020d}-{self._last_offset:020d}-{attempt}"
        ref = SegmentRef(first, self._last_offset, self.size_bytes, max_timestamp, name, len(head))
        return BuiltSegment(ref, [head, *self._batches])


def parse_index(
    partition: PartitionId, segment: SegmentRef, data: bytes, *, key: str
) -> SegmentIndex:
    """Check and parse the first `segment.data_start` bytes of a segment."""
    if len(data) < max(HEADER_BYTES, segment.data_start) or data[:4] != MAGIC:
        raise CorruptObject(f"{key}: it is not a segment, or is cut short ({len(data)} bytes)")
    if _CRC.unpack_from(data, _FIELDS.size)[0] != crc32.iscsi(data[: _FIELDS.size]):
        raise CorruptObject(f"{key}: the header's checksum is wrong")
    _, topic_id, number, first, last, size, _, count, crc = _FIELDS.unpack_from(data)
    if (topic_id, number) != (partition.topic_id.bytes, partition.partition) or (
        first,
        last,
        size,
    ) != (segment.base_offset, segment.last_offset, segment.size_bytes):
        raise CorruptObject(
            f"{key}: its header says offsets {first}..{last} ({size} bytes) of"
            f" {PartitionId(UUID(bytes=topic_id), number)}; its lane says"
            f" {segment.base_offset}..{segment.last_offset} ({segment.size_bytes} bytes) of"
            f" {partition}"
        )
    index_bytes = data[HEADER_BYTES : segment.data_start]
    if crc32.iscsi(index_bytes) != crc or len(index_bytes) != count * 24:
        raise CorruptObject(f"{key}: the index's length or checksum is wrong")
    index = SegmentIndex(segment)
    for i, column in enumerate((index.base, index.position, index.max_timestamp)):
        fill_column(column, index_bytes[i * count * 8 : (i + 1) * count * 8])
    return index
