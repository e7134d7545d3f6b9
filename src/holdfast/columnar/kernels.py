"""The compiled walk over the records of batches, and the copy of their bytes into columns.

Pure. Owns the loops. `scan` trusts nothing: each position is compared with the end of its record
and of its batch before a byte is read. It must never disagree with records/record.py about a batch.
`gather` and `gather_headers` read only what scan has written. Positions are signed, and are
converted to unsigned to index an array, because numba's check for negative indices is what makes a
loop slow.
"""

import numpy as np
from numpy.typing import NDArray

from holdfast.columnar.compiled import Address, address_of, byte_at, copy_bytes, i64, kernel, u64

RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, two lengths and a header count, of one byte each."""

# Columns of the table of batches.
BODY_START, BODY_END, BASE_OFFSET, BASE_TIMESTAMP, LAST_DELTA, RECORD_COUNT, APPEND_TIME = range(7)

# Columns of the spans, one row for each record that is kept.
KEY, VALUE, HEADERS, RECORD_END = 0, 2, 4, 6
"""KEY, VALUE: start and length. HEADERS: start and count. RECORD_END: the end of the record."""
SPAN_COLUMNS = 7

# Codes of faults that scan reports. decode.py has the texts.
VARINT_CUT, VARINT_LONG, RECORD_LENGTH, FIELD_LENGTH, HEADER_COUNT = 1, 2, 3, 4, 5
HEADER_KEY_NULL, RECORD_REST, OFFSET_DELTA, BATCH_REST = 6, 7, 8, 9

# Columns of a fault.
FAULT_CODE, FAULT_BATCH, FAULT_POSITION, FAULT_VALUE = 0, 1, 2, 3

TIMESTAMP_MAX_MS = (2**63 - 1) // 1000
NULL = -1


@kernel
def read_varint(source: Address, position: int, end: int, bits: int) -> tuple[int, int]:
    """Return the value and the position after it. A negative position is a fault's code, negated.

    Of a 64-bit varint, only the tenth byte could have bits that are shifted out unnoticed.
    """
    if position >= end:
        return 0, -VARINT_CUT
    byte = u64(byte_at(source, position))
    raw = byte & u64(0x7F)
    position += 1
    shift = 7
    while byte >= u64(0x80):
        if shift >= bits:
            return 0, -VARINT_LONG
        if position >= end:
            return 0, -VARINT_CUT
        byte = u64(byte_at(source, position))
        position += 1
        if shift == 63 and (byte & u64(0x7F)) > u64(1):
            return 0, -VARINT_LONG
        raw |= (byte & u64(0x7F)) << u64(shift)
        shift += 7
    if bits == 32 and raw > u64(0xFFFFFFFF):
        return 0, -VARINT_LONG
    return i64(raw >> u64(1)) ^ -i64(raw & u64(1)), position


@kernel
def read_field(source: Address, position: int, end: int) -> tuple[int, int]:
    """Return the length of a key or value (-1 is null) and the start of its bytes, all present."""
    length, position = read_varint(source, position, end, 32)
    if position < 0:
        return 0, position
    if length < NULL or length > end - position:
        return length, -FIELD_LENGTH
    return length, position


@kernel
def check_headers(source: Address, position: int, end: int, count: int) -> int:
    """Return the position after the headers, or a fault's code, negated."""
    for _ in range(count):
        length, position = read_field(source, position, end)
        if position < 0:
            return position
        if length == NULL:
            return -HEADER_KEY_NULL
        length, position = read_field(source, position + length, end)
        if position < 0:
            return position
        if length > 0:
            position += length
    return position


@kernel
def read_record(
    source: Address, position: int, end: int
) -> tuple[int, int, int, int, int, int, int, int, int]:
    """Return the end, both deltas, start and length of key and value, start and count of headers.

    If the record is corrupt, the end is a fault's code, negated, and the fault's value comes next.
    """
    timestamp_delta, position = read_varint(source, position + 1, end, 64)
    if position < 0:
        return position, 0, 0, 0, 0, 0, 0, 0, 0
    offset_delta, position = read_varint(source, position, end, 32)
    if position < 0:
        return position, 0, 0, 0, 0, 0, 0, 0, 0
    key_length, key = read_field(source, position, end)
    if key < 0:
        return key, key_length, 0, 0, 0, 0, 0, 0, 0
    value_length, value = read_field(source, key + max(0, key_length), end)
    if value < 0:
        return value, value_length, 0, 0, 0, 0, 0, 0, 0
    count, headers = read_varint(source, value + max(0, value_length), end, 32)
    if headers < 0:
        return headers, 0, 0, 0, 0, 0, 0, 0, 0
    if count < 0 or count > (end - headers) // 2:
        return -HEADER_COUNT, count, 0, 0, 0, 0, 0, 0, 0
    position = check_headers(source, headers, end, count)
    if position < 0:
        return position, 0, 0, 0, 0, 0, 0, 0, 0
    if position != end:
        return -RECORD_REST, end - position, 0, 0, 0, 0, 0, 0, 0
    return end, timestamp_delta, offset_delta, key, key_length, value, value_length, headers, count


@kernel
def micros(base_ms: int, delta_ms: int) -> int:
    """Convert milliseconds to microseconds. Beyond 64 bits, return the nearest that fits."""
    if delta_ms >= 0:
        total = base_ms + delta_ms if base_ms <= TIMESTAMP_MAX_MS - delta_ms else TIMESTAMP_MAX_MS
    else:
        total = base_ms + delta_ms if base_ms >= -TIMESTAMP_MAX_MS - delta_ms else -TIMESTAMP_MAX_MS
    return max(-TIMESTAMP_MAX_MS, min(TIMESTAMP_MAX_MS, total)) * 1000


@kernel
def scan(
    source: NDArray[np.uint8],
    table: NDArray[np.int64],
    bounds: tuple[int, int],
    offsets: NDArray[np.int64],
    timestamps: NDArray[np.int64],
    timestamp_types: NDArray[np.int32],
    spans: NDArray[np.int64],
    fault: NDArray[np.int64],
) -> int:
    """Write rows for all records within the bounds. Return their number, or -1 if one is corrupt.

    There is room for the records that the table counts, and no batch can write more than that.
    """
    row = 0
    for batch in range(len(table)):
        position = table[u64(batch), u64(BODY_START)]
        body_end = table[u64(batch), u64(BODY_END)]
        last_delta = -1
        append_time = table[u64(batch), u64(APPEND_TIME)]
        fault[u64(FAULT_BATCH)] = batch
        for _ in range(table[u64(batch), u64(RECORD_COUNT)]):
            fault[u64(FAULT_POSITION)] = position
            length, start = read_varint(address_of(source), position, body_end, 32)
            if start < 0:
                fault[u64(FAULT_CODE)] = -start
                return -1
            if length <= 0 or length > body_end - start:
                fault[u64(FAULT_CODE)], fault[u64(FAULT_VALUE)] = RECORD_LENGTH, length
                return -1
            end, time_delta, delta, key, key_length, value, value_length, headers, count = (
                read_record(address_of(source), start, start + length)
            )
            if end < 0:
                fault[u64(FAULT_CODE)], fault[u64(FAULT_VALUE)] = -end, time_delta
                return -1
            if delta <= last_delta or delta > table[u64(batch), u64(LAST_DELTA)]:
                fault[u64(FAULT_CODE)], fault[u64(FAULT_VALUE)] = OFFSET_DELTA, delta
                return -1
            last_delta = delta
            position = end
            offset = table[u64(batch), u64(BASE_OFFSET)] + delta
            if bounds[0] <= offset < bounds[1]:
                offsets[u64(row)] = offset
                timestamps[u64(row)] = micros(
                    table[u64(batch), u64(BASE_TIMESTAMP)], 0 if append_time else time_delta
                )
                timestamp_types[u64(row)] = append_time
                spans[u64(row), u64(KEY)] = key
                spans[u64(row), u64(KEY + 1)] = key_length
                spans[u64(row), u64(VALUE)] = value
                spans[u64(row), u64(VALUE + 1)] = value_length
                spans[u64(row), u64(HEADERS)] = headers
                spans[u64(row), u64(HEADERS + 1)] = count
                spans[u64(row), u64(RECORD_END)] = end
                row += 1
        if position != body_end:
            fault[u64(FAULT_POSITION)] = position
            fault[u64(FAULT_CODE)], fault[u64(FAULT_VALUE)] = BATCH_REST, body_end - position
            return -1
    return row


@kernel
def window(
    spans: NDArray[np.int64], first: int, rows_max: int, bytes_max: int
) -> tuple[int, int, int]:
    """Return the end of the next output batch, and the bytes of its keys and of its values.

    All bytes of a record count, so that no column of the window is longer than bytes_max. A record
    that is longer than that is alone in its window.
    """
    total = key_bytes = value_bytes = 0
    row = first
    while row < len(spans) and row - first < rows_max:
        total += spans[u64(row), u64(RECORD_END)] - spans[u64(row), u64(KEY)]
        if total > bytes_max and row > first:
            break
        key_bytes += max(0, spans[u64(row), u64(KEY + 1)])
        value_bytes += max(0, spans[u64(row), u64(VALUE + 1)])
        row += 1
    return row, key_bytes, value_bytes


@kernel
def gather(
    source: NDArray[np.uint8],
    spans: NDArray[np.int64],
    field: int,
    offsets: NDArray[np.int32],
    data: NDArray[np.uint8],
    validity: NDArray[np.uint8],
) -> int:
    """Write one column's bytes, offsets, validity (zeroed before). Return the number of nulls."""
    at = 0
    nulls = 0
    offsets[0] = 0
    for row in range(len(spans)):
        length = spans[u64(row), u64(field + 1)]
        if length >= 0:
            start = spans[u64(row), u64(field)]
            copy_bytes(address_of(data), at, address_of(source), start, length)
            at += length
            validity[u64(row >> 3)] |= np.uint8(1 << (row & 7))
        else:
            nulls += 1
        offsets[u64(row + 1)] = at
    return nulls


@kernel
def measure_headers(source: NDArray[np.uint8], spans: NDArray[np.int64]) -> tuple[int, int, int]:
    """Return how many headers all rows have, and the bytes of their keys and values."""
    headers = key_bytes = value_bytes = 0
    for row in range(len(spans)):
        position = spans[u64(row), u64(HEADERS)]
        end = spans[u64(row), u64(RECORD_END)]
        count = spans[u64(row), u64(HEADERS + 1)]
        headers += count
        for _ in range(count):
            length, position = read_varint(address_of(source), position, end, 32)
            key_bytes += length
            length, position = read_varint(address_of(source), position + length, end, 32)
            length = max(0, length)
            value_bytes += length
            position += length
    return headers, key_bytes, value_bytes


@kernel
def gather_headers(
    source: NDArray[np.uint8],
    spans: NDArray[np.int64],
    list_offsets: NDArray[np.int32],
    list_validity: NDArray[np.uint8],
    key_offsets: NDArray[np.int32],
    keys: NDArray[np.uint8],
    value_offsets: NDArray[np.int32],
    values: NDArray[np.uint8],
    validity: NDArray[np.uint8],
) -> tuple[int, int]:
    """Write all headers, row by row (masks zeroed before). Count rows without any, and null values.

    A row without headers is null, as in Spark's Kafka source.
    """
    header = key_at = value_at = empty = nulls = 0
    list_offsets[0] = key_offsets[0] = value_offsets[0] = 0
    for row in range(len(spans)):
        position = spans[u64(row), u64(HEADERS)]
        end = spans[u64(row), u64(RECORD_END)]
        count = spans[u64(row), u64(HEADERS + 1)]
        if count:
            list_validity[u64(row >> 3)] |= np.uint8(1 << (row & 7))
        else:
            empty += 1
        for _ in range(count):
            length, position = read_varint(address_of(source), position, end, 32)
            copy_bytes(address_of(keys), key_at, address_of(source), position, length)
            key_at += length
            length, position = read_varint(address_of(source), position + length, end, 32)
            if length >= 0:
                copy_bytes(address_of(values), value_at, address_of(source), position, length)
                validity[u64(header >> 3)] |= np.uint8(1 << (header & 7))
                value_at += length
                position += length
            else:
                nulls += 1
            header += 1
            key_offsets[u64(header)] = key_at
            value_offsets[u64(header)] = value_at
        list_offsets[u64(row + 1)] = header
    return empty, nulls
