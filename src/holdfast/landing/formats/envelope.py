"""The envelope: a whole record as one JSON object on one line.

Pure. Owns its members: one for each column, in the order of the columns. Text is written as text.
Bytes that are not UTF-8 are written in base64, as key_base64 or value_base64. Timestamps are in
milliseconds. Must never change a record on the way there and back. The one exception: null headers
come back as an empty list.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from holdfast.columnar import envelope_kernels as kernels
from holdfast.columnar import line_kernels
from holdfast.columnar.arrow import RecordBatch, bytes_of, new_array, pa
from holdfast.columnar.schema import SCHEMA, SCHEMA_WITH_HEADERS
from holdfast.json_bytes import member
from holdfast.landing.arrow import batches_of
from holdfast.landing.formats.columns import PIECE_BYTES, header_items, parts_of, valid_rows

REASON = "reason"
"""The column of a dead letter that says why it could not land in the main chain."""

_ALPHABET = bytes_of(kernels.ALPHABET)


class _Table:
    """The table of columns and labels for the kernel, and the arrays that it points into."""

    def __init__(self, batch: RecordBatch) -> None:
        self._rows: list[list[int]] = []
        self._labels = b""
        self._kept: list[NDArray[Any]] = []
        for i, name in enumerate(batch.schema.names):
            self._column("," if i else "{", name, batch.column(name))
        self.numbers = np.array(self._rows, dtype=np.int64)
        self.labels = bytes_of(self._labels)

    def _column(self, before: str, name: str, column: Any) -> None:
        kind = column.type
        if pa.types.is_list(kind):
            items = header_items(column)
            self._add(kernels.LIST, before, name, offsets=items.offsets)
            self._column("{", "key", items.flat.field(0))
            self._column(",", "value", items.flat.field(1))
        elif pa.types.is_timestamp(kind):
            shown = column.cast(pa.timestamp("ms", tz="UTC"), safe=False)
            self._numbers(before, name, shown.cast(pa.int64()))
        elif pa.types.is_integer(kind):
            self._numbers(before, name, column.cast(pa.int64()))
        else:
            parts = parts_of(column)
            is_text = np.empty(len(column), np.bool_)
            if line_kernels.utf8_rows(parts.data, parts.offsets, is_text) == 0:
                is_text = is_text[:0]
            self._add(
                kernels.TEXT,
                before,
                name,
                data=parts.data,
                offsets=parts.offsets,
                valid=parts.valid,
                is_text=is_text,
            )

    def _numbers(self, before: str, name: str, column: Any) -> None:
        valid = valid_rows(column)
        filled = column.fill_null(0) if len(valid) else column
        numbers = np.ascontiguousarray(filled.to_numpy(zero_copy_only=False), dtype=np.int64)
        self._add(kernels.NUMBER, before, name, data=numbers, valid=valid)

    def _add(self, kind: int, before: str, name: str, **arrays: NDArray[Any]) -> None:
        label, other = (
            f"{before}{msgspec.json.encode(shown).decode()}:".encode()
            for shown in (name, f"{name}_base64")
        )
        start = len(self._labels)
        middle = start + len(label)
        end = middle + len(other)
        self._labels += label + other
        self._kept.extend(arrays.values())
        places = [
            int(arrays[what].ctypes.data) if what in arrays and len(arrays[what]) else 0
            for what in ("data", "offsets", "valid", "is_text")
        ]
        self._rows.append([kind, start, middle, middle, end, *places])


def envelopes(batch: RecordBatch) -> Iterator[bytes]:
    """Yield all records as lines, in pieces."""
    if batch.num_rows == 0:
        return
    table = _Table(batch)
    out = new_array(min(PIECE_BYTES, 8 * batch.nbytes + 1024 * batch.num_rows), np.uint8)
    row = 0
    while row < batch.num_rows:
        row, size, room = kernels.put_envelopes(
            table.numbers, table.labels, _ALPHABET, row, batch.num_rows, out
        )
        if size:
            yield out[:size].tobytes()
        elif room:
            # Sized for a value of control characters. Pages that are not written take no memory.
            out = np.empty(room, np.uint8)


def opened(lines: list[bytes]) -> RecordBatch:
    """Return the records of some lines, with their reasons if they have any."""
    rows: list[dict[str, Any]] = []
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    for line in map(decode, lines):
        row: dict[str, Any] = line | {
            "key": member(line, "key"),
            "value": member(line, "value"),
        }
        if row.get("timestamp") is not None:
            row["timestamp"] = row["timestamp"] * 1000
        if "headers" in line:
            row["headers"] = [
                {"key": header["key"], "value": member(header, "value")}
                for header in line["headers"]
            ]
        rows.append(row)
    names = rows[0] if rows else {}
    schema: Any = SCHEMA_WITH_HEADERS if "headers" in names else SCHEMA
    if REASON in names:
        schema = schema.append(pa.field(REASON, pa.string()))
    return batches_of(rows, schema)
