"""The header of a record batch (magic 2): its fields, and the walk from one batch to the next.

Pure. Owns the 61-byte layout. Must never look inside the records or check the CRC.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.errors import CorruptObject
from holdfast.records.compression import Buffer, Codec

HEADER_BYTES = 61
MAGIC = 2
LENGTH_PREFIX_BYTES = 12
"""Size of base_offset and the length, which does not count these bytes itself."""
CRC_START = 21
"""The CRC covers everything from the attributes on: not offset, length, leader epoch and magic."""
SEQUENCES = 1 << 31

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20

PREFIX = struct.Struct(">qiibI")
"""Base offset, length, leader epoch, magic and CRC: the fields that the CRC does not cover."""
COVERED = struct.Struct(">hiqqqhii")
_unpack_from = struct.Struct(">qiibIhiqqqhii").unpack_from


class BatchHeader(NamedTuple):
    """The header of one batch. A NamedTuple for speed: one is made for each produced batch."""

    base_offset: int
    size_bytes: int
    """Size of the whole batch, from base_offset to the end of its records."""
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequences wrap from 2**31 - 1 to 0. -1 for a batch without a sequence."""
        if self.base_sequence == -1:
            return -1
        return (self.base_sequence + self.last_offset_delta) % SEQUENCES

    @property
    def codec_id(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def codec(self) -> Codec:
        codec_id = self.attributes & CODEC_MASK
        if codec_id > Codec.ZSTD:
            raise CorruptObject(
                f"the batch at offset {self.base_offset} has the unknown codec {codec_id}"
            )
        return Codec(codec_id)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def has_producer(self) -> bool:
        return self.producer_id > -1


_make = BatchHeader._make


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at a position, unchecked. Raise CorruptObject only for too few bytes."""
    try:
        (
            base_offset,
            length,
            leader_epoch,
            magic,
            crc,
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        ) = _unpack_from(buffer, position)
    except struct.error:
        raise CorruptObject(
            f"{len(buffer) - position} bytes at {position} are too few "
            f"for a batch header of {HEADER_BYTES}"
        ) from None
    return _make(
        (
            base_offset,
            length + LENGTH_PREFIX_BYTES,
            leader_epoch,
            magic,
            crc,
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        ),
    )


def walk(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position in bytes and the header of each batch in a buffer of whole batches."""
    position = 0
    end = len(buffer)
    while position < end:
        header = parse_header(buffer, position)
        if header.magic != MAGIC:
            raise CorruptObject(f"the batch at byte {position} has magic {header.magic}, not 2")
        if not HEADER_BYTES <= header.size_bytes <= end - position:
            raise CorruptObject(
                f"the batch at byte {position} says {header.size_bytes} bytes; "
                f"{end - position} are left and a header alone has {HEADER_BYTES}"
            )
        yield position, header
        position += header.size_bytes
