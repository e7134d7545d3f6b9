"""Lines: the value as it is, or an envelope of JSON with the whole record.

Pure. Owns what a line is. In the layout `value` a line is the record's value, byte for byte. A
value cannot be a line if it is null, empty, not UTF-8, or contains a line feed or carriage return.
If JSON is required (and values are not wrapped), it must also be one JSON text. A value that cannot
be a line is refused with its reason, or wrapped if `wrap_unfit` is set. A wrapped line is an object
whose first key is "$holdfast". A value that begins like that is wrapped too, so that reading back
is exact. In the layout `envelope` every value fits. Must never let one record become two lines.

The layout `value` keeps no keys, times or headers. Its offsets are known when read back only if the
object's range has no holes. Otherwise they are null.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from holdfast.columnar import line_kernels as kernels
from holdfast.columnar.arrow import RecordBatch, new_array, pa
from holdfast.columnar.schema import SCHEMA_WITH_HEADERS
from holdfast.errors import ConfigurationError, CorruptObject
from holdfast.json_bytes import unwrapped, wrapped
from holdfast.landing.facts import Facts
from holdfast.landing.formats.codecs import FileCodec, checked_level, decompress
from holdfast.landing.formats.columns import parts_of, windows
from holdfast.landing.formats.envelope import envelopes, opened
from holdfast.landing.formats.fitness import (
    add_too_large,
    checked_record_bytes,
    first_unfit,
    line_problems,
    sorted_out,
)
from holdfast.landing.formats.interface import Encoded, RecordWriter, Unfit, encode_with
from holdfast.landing.formats.streamed import LINE_FEED, StreamWriter
from holdfast.landing.formats.values import VALUE_COLUMNS, value_batch
from holdfast.store.interface import Buffer

NAME = "jsonl"
VALUE, WRAPPED, ENVELOPE = "value", "value-wrapped", "envelope"
ROWS_PER_BATCH = 50_000
_REMEDY = "use the envelope layout, or wrap_unfit, or divert such records"


class JsonLines:
    """The format `jsonl`, in one of its layouts and with one of the codecs."""

    def __init__(
        self,
        layout: Literal["value", "envelope"] = "value",
        *,
        compression: str = "zstd",
        level: int | None = None,
        wrap_unfit: bool = False,
        require_json: bool = False,
        record_bytes_max: int | None = None,
    ) -> None:
        if layout not in ("value", "envelope"):
            raise ConfigurationError(f"there is no layout {layout!r}: use 'value' or 'envelope'")
        self._layout = layout if layout == ENVELOPE or not wrap_unfit else WRAPPED
        self._codec = FileCodec.named(compression)
        self._level = checked_level(self._codec, level) if level is not None else None
        self._requires_json = require_json
        self._record_bytes_max = checked_record_bytes(record_bytes_max)

    @property
    def name(self) -> str:
        return f"{NAME}{self._codec.value}/{self._layout}"

    @property
    def extension(self) -> str:
        return f".{NAME}{self._codec.value}"

    @property
    def columns(self) -> tuple[str, ...]:
        schema: Any = SCHEMA_WITH_HEADERS
        return tuple(schema.names) if self._layout == ENVELOPE else VALUE_COLUMNS

    def check(self, batch: RecordBatch) -> Unfit | None:
        found = first_unfit(batch, self._problems(batch), self._record_bytes_max)
        if found is None or self._layout != VALUE:
            return found
        return Unfit(offset=found.offset, problem=f"{found.problem}; {_REMEDY}")

    def sort_out(self, batch: RecordBatch) -> tuple[RecordBatch, list[Unfit]]:
        return sorted_out(batch, self._problems(batch), self._record_bytes_max)

    def _problems(self, batch: RecordBatch) -> NDArray[np.uint8] | None:
        found = None
        if self._layout == VALUE:
            found = line_problems(batch.column("value"), asks_json=self._requires_json)
        return add_too_large(found, batch, self._record_bytes_max)

    def writer(self) -> RecordWriter:
        pieces = {VALUE: _values, WRAPPED: _wrapped_values, ENVELOPE: envelopes}[self._layout]
        return StreamWriter(pieces, self._codec, self._level, is_lines=True)

    def encode(self, batches: Sequence[RecordBatch], described: Mapping[str, str]) -> Encoded:
        return encode_with(self.writer(), batches, described)

    def decode(self, body: bytes, facts: Facts) -> Iterator[RecordBatch]:
        where = f"{facts.topic}-{facts.partition} from offset {facts.first_offset}"
        text = decompress(self._codec, memoryview(body)[: facts.body_bytes], key=where)
        if self._codec is FileCodec.NONE:
            text += body[len(body) - facts.after_bytes :]
        lines = text.split(LINE_FEED)
        if lines.pop() != b"" or len(lines) != facts.records:
            raise CorruptObject(
                f"{where}: the object has {len(lines)} lines; its facts block says"
                f" {facts.records} records"
            )
        for start in range(0, len(lines), ROWS_PER_BATCH):
            part = lines[start : start + ROWS_PER_BATCH]
            if self._layout == ENVELOPE:
                yield opened(part)
            else:
                values = [unwrapped(line) for line in part] if self._layout == WRAPPED else part
                yield value_batch(pa.array(values, pa.binary()), start, facts)


def _values(batch: RecordBatch) -> Iterator[Buffer]:
    """Yield values as lines, by whole columns."""
    parts = parts_of(batch.column("value"))
    for first, last in windows(parts.offsets):
        size = int(parts.offsets[last] - parts.offsets[first]) + last - first
        out = new_array(size, np.uint8)
        kernels.put_lines(parts.data, parts.offsets, first, last, out)
        yield out.data


def _wrapped_values(batch: RecordBatch) -> Iterator[Buffer]:
    """Yield values as lines, one by one if some value of the batch cannot be a line."""
    column = batch.column("value")
    problems = line_problems(column)
    if problems is None:
        yield from _values(batch)
        return
    yield b"".join(
        (wrapped(value) if problem else value) + LINE_FEED
        for value, problem in zip(column.to_pylist(), problems, strict=True)
    )
