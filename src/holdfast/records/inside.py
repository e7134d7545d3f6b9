"""The check that the records inside a batch match its header.

Pure. Owns the walk, which makes no objects of the records. It costs one to two microseconds for
each record, too much for every produce (ADR 16). So the broker does it for compacted topics, whose
records need a key, and for topics with holdfast.validate.records. Stricter than Kafka, which does
not look at the offset deltas of an uncompressed batch. Must never decompress more than its bound.
"""

from typing import NamedTuple, Never

from holdfast.errors import CorruptObject
from holdfast.records.batch import HEADER_BYTES, BatchHeader, parse_header
from holdfast.records.check import BatchRefusal, RecordError, RefusalKind
from holdfast.records.compression import Codec, decompress
from holdfast.records.record import UNCOMPRESSED_BYTES_MAX
from holdfast.records.varint import decode_varint

RECORD_ERRORS_MAX = 10_000
"""The most invalid records that are listed. A response must not be larger than its request."""
RECORDS_MAX = 200_000
"""The most records of a batch that is walked: some tenths of a second without other requests."""
SHOWN_MAX = 3
NULL = 1
"""The zigzag varint of -1: the length of a null."""


class _Found(NamedTuple):
    """Facts about well-formed records that a walk collects."""

    keyless: list[int]
    """The indexes of records without a key."""
    timestamp_deltas: list[int]


def check_inside(
    records: memoryview | bytes,
    *,
    keys_required: bool = False,
    uncompressed_bytes_max: int = UNCOMPRESSED_BYTES_MAX,
) -> BatchRefusal | None:
    """Return the problem with the records of a batch that check_produced accepted, or None."""
    header = parse_header(records)
    try:
        keyless = _walk(_body(records, header, uncompressed_bytes_max), header).keyless
    except CorruptObject as error:
        return BatchRefusal(RefusalKind.INVALID_RECORD, str(error))
    if not keyless or not keys_required:
        return None
    why = "a record of a compacted topic needs a key"
    shown = ", ".join(map(str, keyless[:SHOWN_MAX]))
    more = f" and {len(keyless) - SHOWN_MAX} more" if len(keyless) > SHOWN_MAX else ""
    return BatchRefusal(
        RefusalKind.INVALID_RECORD,
        f"{len(keyless)} of {header.record_count} records were refused (at {shown}{more}): {why}",
        tuple(RecordError(index, why) for index in keyless[:RECORD_ERRORS_MAX]),
    )


def name_records_out_of_time(
    records: memoryview | bytes,
    *,
    oldest: int,
    newest: int,
    uncompressed_bytes_max: int = UNCOMPRESSED_BYTES_MAX,
) -> tuple[RecordError, ...]:
    """List the records with timestamps out of bounds. Empty if the batch cannot be read."""
    header = parse_header(records)
    base = header.base_timestamp
    try:
        deltas = _walk(_body(records, header, uncompressed_bytes_max), header).timestamp_deltas
    except CorruptObject:
        return ()
    found = [i for i, delta in enumerate(deltas) if not oldest <= base + delta <= newest]
    message = f"the timestamp is not between {oldest} and {newest}"
    return tuple(RecordError(index, message) for index in found[:RECORD_ERRORS_MAX])


def _body(records: memoryview | bytes, header: BatchHeader, bound: int) -> bytes:
    if header.record_count > RECORDS_MAX:
        raise CorruptObject(
            f"the batch has {header.record_count} records; at most {RECORDS_MAX} can be checked:"
            " send smaller batches"
        )
    data = memoryview(records)[HEADER_BYTES:]
    return decompress(Codec(header.codec_id), data, uncompressed_bytes_max=bound)


def _walk(data: bytes, header: BatchHeader) -> _Found:
    """Walk the records.

    Raise CorruptObject if the bytes are not the records that the header says.
    """
    try:
        return _walk_records(data, header.record_count)
    except IndexError:
        raise CorruptObject(
            f"the batch ends inside one of its {header.record_count} records"
        ) from None


def _walk_records(data: bytes, count: int) -> _Found:
    """Like _walk, but raise IndexError if the bytes end too early.

    One flat loop with the usual widths of varints inlined: a call for each varint would double its
    time.
    """
    found = _Found([], [])
    add_delta = found.timestamp_deltas.append
    position = 0
    end = len(data)
    for index in range(count):
        byte = data[position]
        if byte < 0x80:
            raw, position = byte, position + 1
        else:
            raw, position = _unsigned(data, position, end)
        after = position + (raw >> 1)
        if raw & 1 or after > end:
            raise CorruptObject(f"record {index} says a length that is not there")
        position += 1  # attributes
        byte = data[position]
        if byte < 0x80:
            delta, position = (byte >> 1) ^ -(byte & 1), position + 1
        else:
            delta, position = decode_varint(data, position, end, 64)
        add_delta(delta)
        byte = data[position]
        if byte < 0x80:
            raw, position = byte, position + 1
        else:
            raw, position = _unsigned(data, position, end)
        if raw != index << 1:
            raise CorruptObject(f"record {index} has another offset delta than {index}")
        raw = data[position]
        if raw < 0x80:
            position += 1
        else:
            raw, position = _unsigned(data, position, end)
        if raw == NULL:
            found.keyless.append(index)
        else:
            position += raw >> 1 if not raw & 1 else _refuse_size(index)
        raw = data[position]
        if raw < 0x80:
            position += 1
        else:
            raw, position = _unsigned(data, position, end)
        if raw != NULL:
            position += raw >> 1 if not raw & 1 else _refuse_size(index)
        if data[position]:
            position = _skip_headers(data, position, after, index)
        else:
            position += 1
        if position != after:
            raise CorruptObject(f"record {index} ends at byte {position}; its length says {after}")
    if position != end:
        raise CorruptObject(f"{end - position} bytes follow the {count} records")
    return found


def _refuse_size(index: int) -> Never:
    raise CorruptObject(f"record {index} has a key or value of a negative length")


def _unsigned(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Return a varint of at most 32 bits before zigzag, and the position after it."""
    high = data[position + 1]
    if high < 0x80:
        return data[position] & 0x7F | high << 7, position + 2
    value, after = decode_varint(data, position, end, 32)
    return value << 1 if value >= 0 else ~value << 1 | 1, after


def _skip_headers(data: bytes, position: int, end: int, index: int) -> int:
    count, position = decode_varint(data, position, end, 32)
    if not 0 <= count <= (end - position) // 2:
        raise CorruptObject(f"record {index} says {count} headers in {end - position} bytes")
    for _ in range(count):
        for is_name in (True, False):
            length, position = decode_varint(data, position, end, 32)
            if length < (0 if is_name else -1) or length > end - position:
                raise CorruptObject(f"record {index} has a header of {length} bytes")
            position += max(0, length)
    return position
