"""Lines under zstd: the value as it is, or an envelope of JSON with all of the record.

Pure. Owns what a line is. In the layout `value` a line is the record's value, byte for byte; one
that cannot stand on a line of its own (none, empty, not UTF-8, or with a line feed or carriage
return inside) is refused by name, or wrapped where `wrap_unfit` is set: such a line is an object
whose first key is "$holdfast", and a value that begins so itself is wrapped too, so that reading
back is exact. In the layout `envelope` nothing is unfit: text stands as text, and bytes that are
no UTF-8 stand in key_base64 or value_base64. Must never let one record become two lines.

The layout `value` keeps no keys, times or headers. Its offsets are known when read back only where
the object's range has no holes; they are null otherwise.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import cramjam
import msgspec

from holdfast.columnar.schema import SCHEMA, SCHEMA_WITH_HEADERS
from holdfast.errors import ConfigurationError, CorruptObject
from holdfast.landing.arrow import RecordBatch, batches_of, offsets_of, pa, pc
from holdfast.landing.facts import Facts, checksum
from holdfast.landing.formats.interface import Encoded, Unfit, Writer, encode_with

EXTENSION = ".jsonl.zst"
VALUE = "jsonl.zst/value"
WRAPPED = "jsonl.zst/value-wrapped"
ENVELOPE = "jsonl.zst/envelope"
WRAP_START = b'{"$holdfast"'
ROWS_PER_BATCH = 50_000
_REMEDY = "use the envelope layout, or wrap_unfit, or divert such records"


class _Writer:
    """Lines that go through one zstd frame."""

    def __init__(self, lines: Callable[[RecordBatch], bytes], level: int) -> None:
        self.rows = 0
        self.held_bytes = 0
        self._lines = lines
        self._compressor = cramjam.zstd.Compressor(level=level)
        self._parts: list[bytes] = []

    def add(self, batch: RecordBatch) -> None:
        self._compressor.compress(self._lines(batch))
        self._parts.append(bytes(self._compressor.flush()))
        self.held_bytes += len(self._parts[-1])
        self.rows += batch.num_rows

    def finish(self, described: Mapping[str, str]) -> Encoded:
        body = (*self._parts, bytes(self._compressor.finish()))
        return Encoded(body=body, body_crc=checksum(body))


def batch_without(batch: RecordBatch, offset: int) -> RecordBatch:
    return cast(Any, batch).filter(pc.not_equal(batch.column("offset"), offset))


class JsonLines:
    """`jsonl.zst`, in one of its layouts."""

    def __init__(
        self,
        layout: Literal["value", "envelope"] = "value",
        *,
        level: int = 3,
        wrap_unfit: bool = False,
    ) -> None:
        if layout not in ("value", "envelope"):
            raise ConfigurationError(f"no layout {layout!r}: use 'value' or 'envelope'")
        if not 1 <= level <= 19:
            raise ConfigurationError(f"no zstd level {level}: use 1 to 19, as in 3")
        self._is_envelope = layout == "envelope"
        self._wraps = wrap_unfit and not self._is_envelope
        self._level = level

    @property
    def name(self) -> str:
        if self._is_envelope:
            return ENVELOPE
        return WRAPPED if self._wraps else VALUE

    @property
    def extension(self) -> str:
        return EXTENSION

    @property
    def columns(self) -> tuple[str, ...]:
        schema: Any = SCHEMA_WITH_HEADERS
        return tuple(schema.names) if self._is_envelope else ("value", "offset")

    def check(self, batch: RecordBatch) -> Unfit | None:
        if self._is_envelope or self._wraps or _all_fit(batch.column("value")):
            return None
        for offset, value in zip(
            offsets_of(batch).tolist(), batch.column("value").to_pylist(), strict=True
        ):
            problem = line_problem(value)
            if problem is not None:
                return Unfit(offset=offset, problem=f"its value {problem}; {_REMEDY}")
        return None

    def sort_out(self, batch: RecordBatch) -> tuple[RecordBatch, list[Unfit]]:
        unfit: list[Unfit] = []
        while (found := self.check(batch)) is not None:
            unfit.append(found)
            batch = batch_without(batch, found.offset)
        return batch, unfit

    def writer(self) -> Writer:
        return _Writer(self.lines, self._level)

    def encode(self, batches: Sequence[RecordBatch], described: Mapping[str, str]) -> Encoded:
        return encode_with(self.writer(), batches, described)

    def lines(self, batch: RecordBatch) -> bytes:
        """All of the batch, each record a line."""
        if batch.num_rows == 0:
            return b""
        if self._is_envelope:
            return _envelopes(batch)
        if not self._wraps or _all_fit(batch.column("value")):
            return _joined(batch.column("value"))
        wrapped = (_wrapped(value) for value in batch.column("value").to_pylist())
        return b"".join(line + b"\n" for line in wrapped)

    def decode(self, body: bytes, facts: Facts) -> Iterator[RecordBatch]:
        lines = bytes(cramjam.zstd.decompress(body[: facts.body_bytes])).split(b"\n")
        if lines.pop() != b"" or len(lines) != facts.records:
            raise CorruptObject(
                f"{facts.topic}-{facts.partition} from {facts.first_offset}: {len(lines)} lines,"
                f" and it says that it has {facts.records} records"
            )
        for start in range(0, len(lines), ROWS_PER_BATCH):
            part = lines[start : start + ROWS_PER_BATCH]
            if facts.format == ENVELOPE:
                yield _opened(part)
            else:
                yield _values(part, start, facts)


def line_problem(value: bytes | None) -> str | None:
    """Why a value cannot be a line, or None where it can."""
    if value is None:
        return "is null"
    if not value:
        return "is empty"
    if b"\n" in value or b"\r" in value:
        return "has a line feed or a carriage return inside"
    if value.startswith(WRAP_START):
        return 'begins with {"$holdfast", which marks wrapped values'
    try:
        value.decode()
    except UnicodeDecodeError:
        return "is not UTF-8"
    return None


def _all_fit(column: Any) -> bool:
    """Whether all values are lines, by whole columns: true for nearly every batch."""
    if column.null_count:
        return False
    try:
        text = column.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    unfit = (
        pc.equal(pc.binary_length(column), 0),
        pc.match_substring(text, "\n"),
        pc.match_substring(text, "\r"),
        pc.starts_with(text, WRAP_START.decode()),
    )
    return not any(pc.any(part).as_py() for part in unfit)


def _wrapped(value: bytes | None) -> bytes:
    if value is not None and line_problem(value) is None:
        return value
    encoded = None if value is None else base64.b64encode(value).decode()
    return WRAP_START + b':"base64","value":' + msgspec.json.encode(encoded) + b"}"


def _unwrapped(line: bytes) -> bytes | None:
    if not line.startswith(WRAP_START):
        return line
    encoded = msgspec.json.decode(line)["value"]
    return None if encoded is None else base64.b64decode(encoded)


def _values(lines: list[bytes], start: int, facts: Facts) -> RecordBatch:
    dense = facts.last_offset - facts.first_offset + 1 == facts.records
    wrapped = facts.format == WRAPPED
    first = facts.first_offset + start
    schema: Any = SCHEMA
    nulls = {name: pa.nulls(len(lines), schema.field(name).type) for name in schema.names}
    columns = nulls | {
        "value": pa.array([_unwrapped(line) for line in lines] if wrapped else lines, pa.binary()),
        "topic": pa.repeat(pa.scalar(facts.topic, schema.field("topic").type), len(lines)),
        "partition": pa.repeat(pa.scalar(facts.partition, pa.int32()), len(lines)),
    }
    if dense:
        columns["offset"] = pa.array(range(first, first + len(lines)), pa.int64())
    fields = [schema.field(name).with_nullable(True) for name in schema.names]
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=pa.schema(fields))


def _joined(column: Any) -> bytes:
    """Values as lines, by whole columns."""
    whole = pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column)
    return bytes(pc.binary_join(whole, b"\n")[0].as_buffer()) + b"\n"


def _envelopes(batch: RecordBatch) -> bytes:
    """Records as lines; columns that are text from end to end, as nearly all are, go as one."""
    names: list[str] = list(batch.schema.names)
    columns: list[list[Any]] = []
    raw: list[str] = []
    for name in names:
        column: Any = batch.column(name)
        if name == "timestamp":
            column = column.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
        elif pa.types.is_binary(column.type):
            try:
                column = column.cast(pa.string())
            except pa.ArrowInvalid:
                raw.append(name)
        columns.append(column.to_pylist())
    lines: list[dict[str, Any]] = [
        dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)
    ]
    for name in raw:
        for line in lines:
            _as_text(line, name, line.pop(name))
    if "headers" in names:
        for line in lines:
            line["headers"] = [_header(header) for header in line["headers"] or ()]
    return msgspec.json.Encoder().encode_lines(lines)


def _header(header: Mapping[str, Any]) -> dict[str, Any]:
    return _as_text({"key": header["key"]}, "value", header["value"])


def _as_text(line: dict[str, Any], name: str, value: bytes | None) -> dict[str, Any]:
    try:
        line[name] = None if value is None else value.decode()
    except UnicodeDecodeError:
        line[f"{name}_base64"] = base64.b64encode(bytes(value or b"")).decode()
    return line


def _as_bytes(line: Mapping[str, Any], name: str) -> bytes | None:
    encoded = line.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded)
    text = line.get(name)
    return None if text is None else text.encode()


def _opened(lines: list[bytes]) -> RecordBatch:
    rows: list[dict[str, Any]] = []
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    for line in map(decode, lines):
        row: dict[str, Any] = line | {
            "key": _as_bytes(line, "key"),
            "value": _as_bytes(line, "value"),
        }
        if row.get("timestamp") is not None:
            row["timestamp"] = row["timestamp"] * 1000
        if "headers" in line:
            row["headers"] = [
                {"key": header["key"], "value": _as_bytes(header, "value")}
                for header in line["headers"]
            ]
        rows.append(row)
    with_headers = bool(rows) and "headers" in rows[0]
    return batches_of(rows, SCHEMA_WITH_HEADERS if with_headers else SCHEMA)
