"""Writes to the header of a finished batch: the leader's offset, epoch and time, or a producer.

Pure, in place. Owns these writes. Must never touch the records themselves.
"""

import struct

from fastcrc.crc32 import iscsi

from holdfast.errors import CallError
from holdfast.records.batch import (
    CRC_START,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    parse_header,
)

_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")
_PRODUCER = struct.Struct(">qhi")

LEADER_EPOCH_START = 12
CRC_FIELD_START = 17
MAX_TIMESTAMP_START = 35
PRODUCER_START = 43


def stamp(buffer: memoryview | bytearray, *, base_offset: int, leader_epoch: int) -> None:
    """Set both fields in the batch at position 0. The CRC covers neither."""
    _OFFSET.pack_into(buffer, 0, base_offset)
    _LEADER_EPOCH.pack_into(buffer, LEADER_EPOCH_START, leader_epoch)


def stamp_log_append_time(buffer: memoryview | bytearray, *, now_ms: int) -> None:
    """Give every record of the batch at position 0 this time, and correct the CRC.

    If the bit is set, readers use max_timestamp for each record, so no record is rewritten.
    """
    header = parse_header(buffer)
    if header.size_bytes > len(buffer):
        raise CallError(f"a batch of {header.size_bytes} bytes in a buffer of {len(buffer)}")
    _ATTRIBUTES.pack_into(buffer, CRC_START, header.attributes | LOG_APPEND_TIME_BIT)
    _TIMESTAMP.pack_into(buffer, MAX_TIMESTAMP_START, now_ms)
    _seal(buffer, header.size_bytes)


def stamp_producer(
    buffer: memoryview | bytearray, *, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    """Make the batch at position 0 part of this producer's transaction, and correct the CRC."""
    header = parse_header(buffer)
    if header.size_bytes > len(buffer):
        raise CallError(f"a batch of {header.size_bytes} bytes in a buffer of {len(buffer)}")
    _ATTRIBUTES.pack_into(buffer, CRC_START, header.attributes | TRANSACTIONAL_BIT)
    _PRODUCER.pack_into(buffer, PRODUCER_START, producer_id, producer_epoch, base_sequence)
    _seal(buffer, header.size_bytes)


def _seal(buffer: memoryview | bytearray, size_bytes: int) -> None:
    crc = iscsi(memoryview(buffer)[CRC_START:size_bytes])
    _CRC.pack_into(buffer, CRC_FIELD_START, crc)
