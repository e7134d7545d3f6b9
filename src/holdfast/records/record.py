"""The records inside a batch: one batch to a list of records, and records to one batch.

Pure. Owns the encoding of records. Strict and bounded: a length must never be trusted beyond the
bytes that are left, and inconsistent bytes raise CorruptObject. Plain Python, about 250,000 records
a second: for clients, tests, the simulation and lookups by time, never for the path of a produce or
of a fetch.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fastcrc.crc32 import iscsi

from holdfast.errors import CallError, CorruptObject
from holdfast.records.batch import (
    CONTROL_BIT,
    COVERED,
    CRC_START,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    PREFIX,
    TRANSACTIONAL_BIT,
    BatchHeader,
    parse_header,
    walk,
)
from holdfast.records.compression import Buffer, Codec, compress, decompress
from holdfast.records.varint import decode_varint, encode_varint

UNCOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
HEADER_KEY_ERRORS = "surrogateescape"
"""Header keys should be UTF-8, but no broker checks it. Other bytes survive a round trip."""

_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)


class Record(NamedTuple):
    """One record. Its offset comes from the log. A producer's offset is ignored."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class _Bytes(NamedTuple):
    """The records of one batch, uncompressed, and the end of the current one."""

    data: bytes
    end: int


def decode(
    buffer: Buffer, position: int = 0, *, uncompressed_bytes_max: int = UNCOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """Yield the records of all batches from a position to the end, including control batches."""
    view = memoryview(buffer)[position:]
    for start, header in walk(view):
        yield from decode_batch(
            view[start : start + header.size_bytes], uncompressed_bytes_max=uncompressed_bytes_max
        )


def decode_batch(
    batch: Buffer, *, uncompressed_bytes_max: int = UNCOMPRESSED_BYTES_MAX
) -> list[Record]:
    """Return the records of exactly one batch. Its CRC is checked first."""
    header = parse_header(batch)
    _check_frame(batch, header)
    body = decompress(
        header.codec,
        memoryview(batch)[HEADER_BYTES:],
        uncompressed_bytes_max=uncompressed_bytes_max,
    )
    records: list[Record] = []
    position = 0
    last_delta = -1
    end = len(body)
    for _ in range(header.record_count):
        length, position = decode_varint(body, position, end, 32)
        if not 0 < length <= end - position:
            raise CorruptObject(
                f"the batch at offset {header.base_offset}: a record of {length} bytes "
                f"at byte {position}, with {end - position} left"
            )
        record = _decode_record(_Bytes(body, position + length), position, header)
        delta = record.offset - header.base_offset
        if not last_delta < delta <= header.last_offset_delta:
            raise CorruptObject(
                f"the batch at offset {header.base_offset}: offset delta {delta} "
                f"after {last_delta}, of at most {header.last_offset_delta}"
            )
        last_delta = delta
        records.append(record)
        position += length
    if position != end:
        raise CorruptObject(
            f"the batch at offset {header.base_offset}: {end - position} bytes follow "
            f"its {header.record_count} records"
        )
    return records


def _check_frame(batch: Buffer, header: BatchHeader) -> None:
    if header.magic != MAGIC or header.size_bytes != len(batch):
        raise CorruptObject(
            f"the batch at offset {header.base_offset} has magic {header.magic} and says "
            f"{header.size_bytes} bytes; {len(batch)} are there"
        )
    computed = iscsi(memoryview(batch)[CRC_START:])
    if computed != header.crc:
        raise CorruptObject(
            f"the batch at offset {header.base_offset} says CRC {header.crc:#010x}; "
            f"its {len(batch)} bytes give {computed:#010x}"
        )
    if header.record_count < 0:
        raise CorruptObject(
            f"the batch at offset {header.base_offset} says {header.record_count} records"
        )


def _decode_record(source: _Bytes, position: int, header: BatchHeader) -> Record:
    data, end = source
    timestamp_delta, position = decode_varint(data, position + 1, end, 64)
    offset_delta, position = decode_varint(data, position, end, 32)
    key, position = _decode_bytes(source, position)
    value, position = _decode_bytes(source, position)
    count, position = decode_varint(data, position, end, 32)
    if not 0 <= count <= (end - position) // 2:
        raise CorruptObject(
            f"{count} record headers at byte {position}, with {end - position} left"
        )
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _decode_bytes(source, position)
        if name is None:
            raise CorruptObject(f"a record header has no key, before byte {position}")
        header_value, position = _decode_bytes(source, position)
        headers.append((name.decode("utf-8", HEADER_KEY_ERRORS), header_value))
    if position != end:
        raise CorruptObject(f"a record ends at byte {position}; its length says {end}")
    timestamp = (
        header.max_timestamp
        if header.is_log_append_time
        else header.base_timestamp + timestamp_delta
    )
    return Record(header.base_offset + offset_delta, timestamp, key, value, tuple(headers))


def _decode_bytes(source: _Bytes, position: int) -> tuple[bytes | None, int]:
    data, end = source
    length, position = decode_varint(data, position, end, 32)
    if length == -1:
        return None, position
    after = position + length
    if length < -1 or after > end:
        raise CorruptObject(
            f"a field of {length} bytes at byte {position}, with {end - position} left"
        )
    return data[position:after], after


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
    log_append_time_ms: int | None = None,
) -> bytes:
    """Encode one batch at base_offset, base_offset + 1, ...

    The records' own offsets are ignored.
    """
    if not records:
        raise CallError("a batch needs at least one record")
    base_timestamp = records[0].timestamp
    max_timestamp = base_timestamp
    parts: list[bytes] = []
    for delta, record in enumerate(records):
        timestamp = record.timestamp
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        body = encode_record(record, timestamp_delta=timestamp - base_timestamp, offset_delta=delta)
        parts.append(encode_varint(len(body)))
        parts.append(body)
    body = b"".join(parts)
    attributes = 0
    if codec:
        body = compress(codec, body)
        attributes = int(codec)
    if transactional:
        attributes |= TRANSACTIONAL_BIT
    if control:
        attributes |= CONTROL_BIT
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = log_append_time_ms
    count = len(records)
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(body)
    covered = (
        COVERED.pack(
            attributes,
            count - 1,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        )
        + body
    )
    return PREFIX.pack(base_offset, length, leader_epoch, MAGIC, iscsi(covered)) + covered


def encode_empty_batch(base_offset: int, last_offset: int, *, leader_epoch: int) -> bytes:
    """Encode a batch without records over some offsets, as compaction by key leaves one.

    Readers skip it.
    """
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES
    covered = COVERED.pack(0, last_offset - base_offset, -1, -1, -1, -1, -1, 0)
    return PREFIX.pack(base_offset, length, leader_epoch, MAGIC, iscsi(covered)) + covered


def encode_record(record: Record, *, timestamp_delta: int, offset_delta: int) -> bytes:
    """Encode a record without the length before it."""
    key, value, headers = record.key, record.value, record.headers
    return b"".join(
        (
            b"\x00",
            encode_varint(timestamp_delta),
            encode_varint(offset_delta),
            _NULL if key is None else encode_varint(len(key)) + key,
            _NULL if value is None else encode_varint(len(value)) + value,
            _encode_headers(headers) if headers else _NO_HEADERS,
        )
    )


def _encode_headers(headers: tuple[tuple[str, bytes | None], ...]) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        raw = name.encode("utf-8", HEADER_KEY_ERRORS)
        parts.append(encode_varint(len(raw)) + raw)
        parts.append(_NULL if value is None else encode_varint(len(value)) + value)
    return b"".join(parts)


def first_at_or_after(
    batch: Buffer,
    timestamp: int,
    *,
    from_offset: int = 0,
    uncompressed_bytes_max: int = UNCOMPRESSED_BYTES_MAX,
) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record at or after both timestamp and offset."""
    header = parse_header(batch)
    if header.max_timestamp < timestamp:
        return None
    if header.is_log_append_time:
        return max(header.base_offset, from_offset), header.max_timestamp
    for record in decode_batch(batch, uncompressed_bytes_max=uncompressed_bytes_max):
        if record.timestamp >= timestamp and record.offset >= from_offset:
            return record.offset, record.timestamp
    return None


def max_timestamp_record(
    batch: Buffer, *, uncompressed_bytes_max: int = UNCOMPRESSED_BYTES_MAX
) -> tuple[int, int]:
    """Return (offset, timestamp) of the first record with the batch's greatest timestamp."""
    header = parse_header(batch)
    if header.is_log_append_time or header.record_count == 1:
        return header.base_offset, header.max_timestamp
    records = decode_batch(batch, uncompressed_bytes_max=uncompressed_bytes_max)
    if not records:
        return header.base_offset, header.max_timestamp
    newest = max(records, key=lambda record: record.timestamp)
    return newest.offset, newest.timestamp
