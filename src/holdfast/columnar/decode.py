"""Record batches (magic 2) to Arrow record batches, with the columns of Spark's Kafka source.

Pure. Owns which of a partition's records become rows: no control records, no records of aborted
transactions if these are given, nothing outside [start_offset, end_offset). The CRC of every batch
is checked, even of a skipped one. Offsets must rise from batch to batch, because the base offset is
not under the CRC. Corrupt bytes raise CorruptObject and must never become rows. A batch with a
correct CRC and unreadable records was sent that way by its producer: `decode` raises for it, and
`decode_rest` reports it and continues.

Some bytes cannot be expressed in Arrow. In a header key that is not UTF-8, U+FFFD replaces the
malformed parts, as in a Java client. A timestamp whose microseconds do not fit into 64 bits becomes
the nearest one that does. As in Spark, no timestamp (-1) is 1969-12-31 23:59:59.999, and the
headers of a record without any are null.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from fastcrc.crc32 import iscsi
from numpy.typing import NDArray

from holdfast.columnar import kernels
from holdfast.columnar.arrow import (
    Array,
    RecordBatch,
    bytes_of,
    list_array,
    new_array,
    number_array,
    pa,
    record_batch,
    repeated,
    variable_array,
)
from holdfast.columnar.schema import HEADERS, SCHEMA, SCHEMA_WITH_HEADERS, TIMESTAMP
from holdfast.columnar.unreadable import Unreadable
from holdfast.errors import CallError, CorruptObject
from holdfast.records.batch import CRC_START, HEADER_BYTES, BatchHeader, walk
from holdfast.records.compression import Buffer, Codec, decompress
from holdfast.records.record import UNCOMPRESSED_BYTES_MAX, decode_batch

ROWS_PER_BATCH = 50_000
BYTES_PER_BATCH = 32 * 1024 * 1024
BYTES_PER_BATCH_MAX = 2**31 - 1
"""The largest 32-bit offset of a binary column."""
OFFSET_MAX = 2**63 - 1
Aborted = tuple[int, int] | tuple[int, int, int]
"""Producer id, first offset and, if it is known, the offset of the marker."""
CONTROL_TYPE_ABORT = 0

_REASONS = {
    kernels.VARINT_CUT: "its bytes end inside a varint",
    kernels.VARINT_LONG: "it has a varint of too many bits",
    kernels.RECORD_LENGTH: "it says {value} bytes, which the batch does not have",
    kernels.FIELD_LENGTH: "a field of it says {value} bytes, which the record does not have",
    kernels.HEADER_COUNT: "it says {value} headers, for which it has no bytes",
    kernels.HEADER_KEY_NULL: "a header of it has no key",
    kernels.RECORD_REST: "{value} bytes follow its headers",
    kernels.OFFSET_DELTA: "its offset delta {value} does not rise, or is past the batch's last",
    kernels.BATCH_REST: "{value} bytes follow the records that the batch says",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The arguments of one call of decode."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    schema: Any
    rows_per_batch: int
    bytes_per_batch: int
    uncompressed_bytes_max: int


class _Body(NamedTuple):
    """The records of one batch, uncompressed, as a range of a buffer."""

    buffer: memoryview
    start: int
    end: int
    header: BatchHeader
    batch: memoryview
    """The whole batch, as it arrived."""


@dataclass(slots=True)
class _Pending:
    """Batches that will be scanned together, to save kernel calls."""

    bodies: list[_Body] = field(default_factory=list[_Body])
    rows: int = 0
    bytes: int = 0


def decode(
    buffers: Iterable[Buffer],
    *,
    topic: str,
    partition: int,
    start_offset: int,
    end_offset: int,
    include_headers: bool = False,
    columns: Collection[str] | None = None,
    read_committed_aborted: Sequence[Aborted] | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
    bytes_per_batch: int = BYTES_PER_BATCH,
    uncompressed_bytes_max: int = UNCOMPRESSED_BYTES_MAX,
) -> Iterator[RecordBatch]:
    """Like decode_rest, but raise CorruptObject at the first batch that cannot be read."""
    found = decode_rest(
        buffers,
        topic=topic,
        partition=partition,
        start_offset=start_offset,
        end_offset=end_offset,
        include_headers=include_headers,
        columns=columns,
        read_committed_aborted=read_committed_aborted,
        rows_per_batch=rows_per_batch,
        bytes_per_batch=bytes_per_batch,
        uncompressed_bytes_max=uncompressed_bytes_max,
    )
    return _strictly(found, f"{topic}-{partition}")


def decode_rest(
    buffers: Iterable[Buffer],
    *,
    topic: str,
    partition: int,
    start_offset: int,
    end_offset: int,
    include_headers: bool = False,
    columns: Collection[str] | None = None,
    read_committed_aborted: Sequence[Aborted] | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
    bytes_per_batch: int = BYTES_PER_BATCH,
    uncompressed_bytes_max: int = UNCOMPRESSED_BYTES_MAX,
) -> Iterator[RecordBatch | Unreadable]:
    """Yield the records of one partition from buffers of whole batches, in offset order.

    A batch that cannot be read, or that is too large when uncompressed, is yielded as Unreadable in
    the place of its records. The bytes of a buffer must not change during the call, because checked
    bytes are read again.

    - columns: the wanted columns of the schema, which keep its order. None means all.
    - read_committed_aborted: the (producer_id, first_offset) of aborted transactions, as a Fetch
      response names them. Each applies up to its marker, so all batches from its first one on must
      be among the buffers. With a third number, the offset of the marker, any of them may be
      missing. None returns the records of all transactions. The last stable offset is not known
      here, so a reader of committed records must not ask for records past it.
    """
    if rows_per_batch < 1 or not 1 <= bytes_per_batch <= BYTES_PER_BATCH_MAX:
        raise CallError(
            f"rows_per_batch {rows_per_batch} and bytes_per_batch {bytes_per_batch} must be "
            f"1 or more, and the bytes at most {BYTES_PER_BATCH_MAX}"
        )
    wanted = _Wanted(
        topic=topic,
        partition=partition,
        start_offset=start_offset,
        end_offset=end_offset,
        schema=_schema(include_headers, columns),
        rows_per_batch=min(rows_per_batch, BYTES_PER_BATCH_MAX // (len(topic.encode()) + 1)),
        bytes_per_batch=bytes_per_batch,
        uncompressed_bytes_max=uncompressed_bytes_max,
    )
    return _decode(buffers, wanted, read_committed_aborted)


def _strictly(found: Iterable[RecordBatch | Unreadable], where: str) -> Iterator[RecordBatch]:
    for item in found:
        if isinstance(item, Unreadable):
            raise CorruptObject(f"{where}: the batch at offset {item.base_offset}: {item.problem}")
        yield item


def _schema(include_headers: bool, columns: Collection[str] | None) -> Any:
    whole: Any = SCHEMA_WITH_HEADERS if include_headers else SCHEMA
    if columns is None:
        return whole
    return pa.schema([whole.field(name) for name in whole.names if name in columns])


def _decode(
    buffers: Iterable[Buffer], wanted: _Wanted, aborted: Sequence[Aborted] | None
) -> Iterator[RecordBatch | Unreadable]:
    pending = _Pending()
    for body in _visible_bodies(buffers, wanted, aborted):
        if isinstance(body, Unreadable):
            yield from _scan(pending, wanted)
            pending = _Pending()
            yield body
            continue
        rows = body.header.record_count
        size = body.end - body.start
        if pending.bodies and (
            pending.rows + rows > wanted.rows_per_batch
            or pending.bytes + size > wanted.bytes_per_batch
        ):
            yield from _scan(pending, wanted)
            pending = _Pending()
        pending.bodies.append(body)
        pending.rows += rows
        pending.bytes += size
    yield from _scan(pending, wanted)


def _visible_bodies(
    buffers: Iterable[Buffer],
    wanted: _Wanted,
    aborted_transactions: Sequence[Aborted] | None,
) -> Iterator[_Body | Unreadable]:
    """Yield, uncompressed, the batches that a consumer sees and that can have wanted offsets."""
    coming = sorted(aborted_transactions or (), key=lambda row: row[1], reverse=True)
    aborted: dict[int, int] = {}
    last_offset = -1
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        for start, header in walk(view):
            batch = view[start : start + header.size_bytes]
            _check(batch, header, last_offset, wanted)
            last_offset = max(header.base_offset, header.last_offset)
            while coming and coming[-1][1] <= last_offset:
                producer_id, *offsets = coming.pop()
                aborted[producer_id] = offsets[1] if len(offsets) > 1 else OFFSET_MAX
            if header.is_control:
                if header.producer_id in aborted and _is_abort_marker(batch):
                    del aborted[header.producer_id]
            elif header.is_transactional and header.base_offset <= aborted.get(
                header.producer_id, -1
            ):
                continue
            elif last_offset >= wanted.start_offset and header.base_offset < wanted.end_offset:
                yield _body(view, start, header, wanted)


def _check(batch: memoryview, header: BatchHeader, last_offset: int, wanted: _Wanted) -> None:
    computed = iscsi(batch[CRC_START:])
    if computed != header.crc:
        raise _corrupt(
            wanted,
            header,
            f"its CRC says {header.crc:#010x}; its {len(batch)} bytes give {computed:#010x}",
        )
    if not last_offset < header.base_offset <= OFFSET_MAX - header.last_offset_delta:
        raise _corrupt(wanted, header, f"the batch before it ends at offset {last_offset}")


def _is_abort_marker(batch: memoryview) -> bool:
    """True if the key of the control record (version and type, two bytes each) says abort."""
    for record in decode_batch(batch):
        if record.key is not None and len(record.key) >= 4:
            return int.from_bytes(record.key[2:4], "big") == CONTROL_TYPE_ABORT
    return False


def _body(view: memoryview, start: int, header: BatchHeader, wanted: _Wanted) -> _Body | Unreadable:
    end = start + header.size_bytes
    batch = view[start:end]
    start += HEADER_BYTES
    count = header.record_count
    if count < 0 or (count > 0 and count > header.last_offset_delta + 1):
        problem = f"it says {count} records and a last offset delta of {header.last_offset_delta}"
        return Unreadable(header, batch, problem)
    try:
        codec = header.codec
        if codec is not Codec.NONE or end - start > wanted.uncompressed_bytes_max:
            data = decompress(
                codec, view[start:end], uncompressed_bytes_max=wanted.uncompressed_bytes_max
            )
            view, start, end = memoryview(data), 0, len(data)
    except CorruptObject as error:
        return Unreadable(header, batch, str(error))
    if count * kernels.RECORD_BYTES_MIN > end - start:
        return Unreadable(header, batch, f"{count} records cannot be in {end - start} bytes")
    return _Body(view, start, end, header, batch)


def _corrupt(wanted: _Wanted, header: BatchHeader, reason: str) -> CorruptObject:
    return CorruptObject(
        f"{wanted.topic}-{wanted.partition}: the batch at offset {header.base_offset}: {reason}"
    )


def _one_source(bodies: list[_Body]) -> tuple[NDArray[np.uint8], list[int]]:
    """Return the bytes of all bodies and where each starts. Copies unless they share a buffer."""
    buffer = bodies[0].buffer
    if all(body.buffer is buffer for body in bodies):
        return bytes_of(buffer), [body.start for body in bodies]
    starts: list[int] = []
    at = 0
    for body in bodies:
        starts.append(at)
        at += body.end - body.start
    return bytes_of(b"".join(body.buffer[body.start : body.end] for body in bodies)), starts


def _scan(pending: _Pending, wanted: _Wanted) -> Iterator[RecordBatch | Unreadable]:
    """Yield the rows of some batches. If one cannot be read, scan each batch separately."""
    if not pending.bodies:
        return
    found = _scanned(pending.bodies, pending.rows, wanted)
    if isinstance(found, _Rows):
        yield from _windows(found, wanted)
    elif len(pending.bodies) == 1:
        yield Unreadable(pending.bodies[0].header, pending.bodies[0].batch, found)
    else:
        for body in pending.bodies:
            yield from _scan(_Pending(bodies=[body], rows=body.header.record_count), wanted)


def _scanned(bodies: list[_Body], room: int, wanted: _Wanted) -> "_Rows | str":
    """Return where each row is, or the problem of the first batch that cannot be read."""
    source, starts = _one_source(bodies)
    table = np.array(
        [
            (
                start,
                start + body.end - body.start,
                body.header.base_offset,
                body.header.max_timestamp
                if body.header.is_log_append_time
                else body.header.base_timestamp,
                body.header.last_offset_delta,
                body.header.record_count,
                body.header.is_log_append_time,
            )
            for start, body in zip(starts, bodies, strict=True)
        ],
        dtype=np.int64,
    )
    offsets = new_array(room, np.int64)
    timestamps = new_array(room, np.int64)
    types = new_array(room, np.int32)
    spans = new_array(room * kernels.SPAN_COLUMNS, np.int64).reshape(room, kernels.SPAN_COLUMNS)
    fault = np.zeros(4, dtype=np.int64)
    bounds = (wanted.start_offset, wanted.end_offset)
    rows = kernels.scan(source, table, bounds, offsets, timestamps, types, spans, fault)
    if rows < 0:
        body = bodies[int(fault[kernels.FAULT_BATCH])]
        start = int(table[fault[kernels.FAULT_BATCH], kernels.BODY_START])
        reason = _REASONS[int(fault[kernels.FAULT_CODE])]
        position = int(fault[kernels.FAULT_POSITION]) - start
        return f"the record at byte {position} of {body.end - body.start}: " + reason.format(
            value=int(fault[kernels.FAULT_VALUE])
        )
    return _Rows(source, rows, spans, offsets, timestamps, types)


class _Rows(NamedTuple):
    """The rows of some batches, as positions in their bytes. The arrays may have unused room."""

    source: NDArray[np.uint8]
    rows: int
    spans: NDArray[np.int64]
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    types: NDArray[np.int32]


def _windows(found: _Rows, wanted: _Wanted) -> Iterator[RecordBatch]:
    source, rows, spans, offsets, timestamps, types = found
    first = 0
    rows_max = -(-rows // -(-rows // wanted.rows_per_batch)) if rows else 0
    while first < rows:
        last, key_bytes, value_bytes = kernels.window(
            spans[:rows], first, rows_max, wanted.bytes_per_batch
        )
        yield _columns(
            wanted,
            source,
            spans[first:last],
            (key_bytes, value_bytes),
            (offsets[first:last], timestamps[first:last], types[first:last]),
        )
        first = last


def _columns(
    wanted: _Wanted,
    source: NDArray[np.uint8],
    spans: NDArray[np.int64],
    sizes: tuple[int, int],
    numbers: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]],
) -> RecordBatch:
    rows = len(spans)
    offsets, timestamps, types = numbers
    made: dict[str, Callable[[], Array]] = {
        "key": lambda: _binary(source, spans, kernels.KEY, sizes[0]),
        "value": lambda: _binary(source, spans, kernels.VALUE, sizes[1]),
        "topic": lambda: repeated(wanted.topic, rows),
        "partition": lambda: number_array(
            pa.int32(), np.full(rows, wanted.partition, dtype=np.int32)
        ),
        "offset": lambda: number_array(pa.int64(), offsets),
        "timestamp": lambda: number_array(TIMESTAMP, timestamps),
        "timestampType": lambda: number_array(pa.int32(), types),
        "headers": lambda: _headers(source, spans),
    }
    return record_batch(wanted.schema, [made[name]() for name in wanted.schema.names])


def _binary(source: NDArray[np.uint8], spans: NDArray[np.int64], column: int, size: int) -> Array:
    offsets = new_array(len(spans) + 1, np.int32)
    data = new_array(size, np.uint8)
    validity = _mask(len(spans))
    nulls = kernels.gather(source, spans, column, offsets, data, validity)
    return variable_array(pa.binary(), offsets, data, validity, nulls)


def _headers(source: NDArray[np.uint8], spans: NDArray[np.int64]) -> Array:
    count, key_bytes, value_bytes = kernels.measure_headers(source, spans)
    list_offsets = new_array(len(spans) + 1, np.int32)
    list_validity = _mask(len(spans))
    key_offsets = new_array(count + 1, np.int32)
    keys = new_array(key_bytes, np.uint8)
    value_offsets = new_array(count + 1, np.int32)
    values = new_array(value_bytes, np.uint8)
    validity = _mask(count)
    empty, nulls = kernels.gather_headers(
        source,
        spans,
        list_offsets,
        list_validity,
        key_offsets,
        keys,
        value_offsets,
        values,
        validity,
    )
    children = [
        _text(key_offsets, keys),
        variable_array(pa.binary(), value_offsets, values, validity, nulls),
    ]
    return list_array(HEADERS, list_offsets, list_validity, empty, children)


def _text(offsets: NDArray[np.int32], data: NDArray[np.uint8]) -> Array:
    """Return header keys as strings. Decodes one by one only if some key is not UTF-8."""
    raw = variable_array(pa.binary(), offsets, data)
    try:
        return pa.compute.cast(raw, pa.string())
    except pa.ArrowInvalid:
        keys = [key.as_py().decode("utf-8", "replace") for key in pa.array(raw)]
        return pa.array(keys, pa.string())


def _mask(rows: int) -> NDArray[np.uint8]:
    return np.zeros((rows + 7) // 8, dtype=np.uint8)
