"""The check whether the records of one partition in a Produce request may be appended.

Pure. Owns the checks that Kafka makes on the header and the CRC, in Kafka's order and with Kafka's
errors. Must never open more than the first record, and that only in an uncompressed batch. Checking
all records is the task of inside.py and costs one or two microseconds for each record. Stricter
than Kafka in three places: bytes after the batch are refused, while Kafka cuts them off and
acknowledges the rest. A negative producer epoch and the bit for log append time are always refused.
"""

import enum
from dataclasses import dataclass
from typing import NamedTuple

from fastcrc.crc32 import iscsi

from holdfast.errors import CorruptObject
from holdfast.records.batch import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    parse_header,
)
from holdfast.records.compression import Codec
from holdfast.records.varint import decode_varint

RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, two lengths and a header count, of one byte each."""

FIRST_RECORD_BYTES = 21
"""The most bytes that a length, the attributes and two deltas can take."""

EXPANSION_MAX = (1, 2048, 64, 512, 65536)
"""By codec id, the most bytes that one compressed byte can give, at least twice the real limit."""


class RefusalKind(enum.Enum):
    """Kafka's name and code of the error in the response."""

    CORRUPT_MESSAGE = 2
    MESSAGE_TOO_LARGE = 10
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_COMPRESSION_TYPE = 76
    INVALID_RECORD = 87


class RecordError(NamedTuple):
    """One invalid record. Other records of its batch may be valid (KIP-467)."""

    batch_index: int
    message: str


@dataclass(frozen=True, slots=True)
class BatchRefusal:
    """The reason why the records were refused."""

    error: RefusalKind
    message: str
    record_errors: tuple[RecordError, ...] = ()


def check_produced(
    records: memoryview | bytes | None, *, max_batch_bytes: int, zstd_allowed: bool = True
) -> list[BatchHeader] | BatchRefusal:
    """Return the header of the one batch, or the refusal.

    zstd_allowed is false before Produce v7.
    """
    if records is None:
        return BatchRefusal(
            RefusalKind.INVALID_RECORD, "the records are null; one batch is required"
        )
    header = _frame(records)
    if isinstance(header, BatchRefusal):
        return header
    if header.codec_id == Codec.ZSTD and not zstd_allowed:
        return BatchRefusal(
            RefusalKind.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs a Produce request of v7 or newer"
        )
    if header.size_bytes != len(records):
        return _invalid(
            f"{len(records) - header.size_bytes} bytes follow the first batch "
            f"of {header.size_bytes}; exactly one batch is allowed per partition"
        )
    if header.base_offset != 0:
        return _invalid(f"the base offset is {header.base_offset}; a producer must send 0")
    if header.size_bytes > max_batch_bytes:
        return BatchRefusal(
            RefusalKind.MESSAGE_TOO_LARGE,
            f"the batch has {header.size_bytes} bytes; max.message.bytes is {max_batch_bytes}",
        )
    computed = iscsi(memoryview(records)[CRC_START:])
    if computed != header.crc:
        return BatchRefusal(
            RefusalKind.CORRUPT_MESSAGE,
            f"the batch of {header.size_bytes} bytes says CRC {header.crc:#010x}; "
            f"its bytes give {computed:#010x}",
        )
    return _field_problem(header) or _first_record_problem(records, header) or [header]


def _frame(records: memoryview | bytes) -> BatchHeader | BatchRefusal:
    """Return the header of the whole batch of magic 2 at the start, or else Kafka's refusal."""
    left = len(records)
    if left < LENGTH_PREFIX_BYTES + 5:
        return _invalid(f"{left} bytes of records; at least one batch is required")
    length = int.from_bytes(records[8:12], "big", signed=True)
    magic = records[16]
    if magic > MAGIC:
        return BatchRefusal(RefusalKind.CORRUPT_MESSAGE, f"the batch has the unknown magic {magic}")
    if magic < MAGIC:
        return _invalid(f"the batch has magic {magic}; only 2 is allowed")
    size_bytes = length + LENGTH_PREFIX_BYTES
    if size_bytes < HEADER_BYTES:
        return BatchRefusal(
            RefusalKind.CORRUPT_MESSAGE,
            f"the batch says {size_bytes} bytes; its header alone has {HEADER_BYTES}",
        )
    if size_bytes > left:
        return _invalid(f"the batch says {size_bytes} bytes; the request holds {left}")
    return parse_header(records)


def _field_problem(header: BatchHeader) -> BatchRefusal | None:
    """Refuse header fields that a producer must not send, even with a correct CRC."""
    count = header.record_count
    if header.codec_id > Codec.ZSTD:
        return BatchRefusal(
            RefusalKind.UNSUPPORTED_COMPRESSION_TYPE,
            f"the batch has the unknown codec {header.codec_id}",
        )
    if count <= 0:
        return _invalid(f"the batch says {count} records; at least 1 is required")
    if count != header.last_offset_delta + 1:
        return _invalid(
            f"the batch says {count} records and a last offset delta of {header.last_offset_delta}"
        )
    body_bytes = header.size_bytes - HEADER_BYTES
    if count * RECORD_BYTES_MIN > body_bytes * EXPANSION_MAX[header.codec_id]:
        return _invalid(f"{count} records cannot be in {body_bytes} bytes")
    if header.is_control:
        return _invalid("the batch is a control batch; only a coordinator may write one")
    if header.is_log_append_time:
        return BatchRefusal(
            RefusalKind.INVALID_TIMESTAMP,
            "the batch says that its timestamps are log append time; a producer must not set that",
        )
    if header.has_producer and (header.base_sequence < 0 or header.producer_epoch < 0):
        return _invalid(
            f"producer {header.producer_id} sends sequence {header.base_sequence} "
            f"and producer epoch {header.producer_epoch}; neither may be negative"
        )
    if header.is_transactional and not header.has_producer:
        return _invalid(f"the batch is transactional and has producer id {header.producer_id}")
    return None


def _first_record_problem(records: memoryview | bytes, header: BatchHeader) -> BatchRefusal | None:
    """Refuse an uncompressed batch whose first record has an impossible length or a delta not 0."""
    if header.codec_id != Codec.NONE:
        return None
    head = bytes(records[HEADER_BYTES : HEADER_BYTES + FIRST_RECORD_BYTES])
    left = header.size_bytes - HEADER_BYTES
    others = (header.record_count - 1) * RECORD_BYTES_MIN
    try:
        length, position = decode_varint(head, 0, len(head), 32)
        is_possible = RECORD_BYTES_MIN - 1 <= length <= left - position - others
        if is_possible and header.record_count == 1:
            is_possible = length == left - position
        _, position = decode_varint(head, position + 1, len(head), 64)
        delta, _ = decode_varint(head, position, len(head), 32)
    except CorruptObject as error:
        return _invalid(f"the first record cannot be read: {error}")
    if not is_possible:
        return _invalid(
            f"the first of {header.record_count} records says {length} bytes; {left} are there"
        )
    return None if delta == 0 else _invalid(f"the first record has offset delta {delta}, not 0")


def _invalid(message: str) -> BatchRefusal:
    return BatchRefusal(RefusalKind.INVALID_RECORD, message)
