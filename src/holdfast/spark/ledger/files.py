"""Writes the output files of one task: tables to objects, divided by their partition columns.

Runs on executors. Owns the layout of rows in files. A file counts only once a ledger entry names
it, so a task may die at any time. Must never use a name twice.
"""

import datetime
import decimal
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import cramjam
import msgspec
import numpy as np

from holdfast.columnar.arrow import pa
from holdfast.environment import Environment
from holdfast.errors import ConfigurationError
from holdfast.json_bytes import marked
from holdfast.landing.data_files import data_key
from holdfast.landing.formats.parquet import file_of
from holdfast.landing.ledger_entry import FileRole, OutputFile
from holdfast.landing.output_files import write_output
from holdfast.landing.partition_columns import described
from holdfast.spark.ledger.job import Output
from holdfast.store.interface import Store

EXTENSIONS = {"parquet": ".parquet", "jsonl.zst": ".jsonl.zst"}


@dataclass(slots=True, kw_only=True)
class FileWriter:
    """Writes the files of one attempt at one task."""

    store: Store
    output: Output
    number: int
    attempt: str
    task: int
    environment: Environment
    parts: int = 0

    async def write(self, table: Any, *, role: FileRole = FileRole.ROWS) -> list[OutputFile]:
        """Write one file for each combination of partition values; none if there are no rows."""
        footer = described(folder_fields(table.schema, self.output.partition_by))
        return [
            await self._write_one(rows, values, role, footer)
            for values, rows in by_partition(table, self.output.partition_by)
        ]

    async def _write_one(
        self, rows: Any, values: dict[str, str | None], role: FileRole, footer: dict[str, str]
    ) -> OutputFile:
        key = data_key(
            self.output.sink_id,
            self.number,
            attempt=self.attempt,
            task=self.task,
            part=self.parts,
            extension=EXTENSIONS[self.output.format],
            partition_values=values,
            is_late=role is FileRole.LATE,
        )
        self.parts += 1
        return await write_output(
            self.store,
            key,
            encode(rows, self.output, footer),
            rows=rows.num_rows,
            partition_values=values,
            role=role,
            environment=self.environment,
        )


def encode(rows: Any, output: Output, footer: Mapping[str, str] | None = None) -> memoryview:
    """Return the bytes of a file. Lines have no place for a footer."""
    if output.format == "parquet":
        # Arrow's buffers hold signed bytes, which the client of remote stores refuses.
        return memoryview(file_of(rows, footer or {}, level=output.compression_level)).cast("B")
    return memoryview(bytes(cramjam.zstd.compress(_lines(rows), level=output.compression_level)))


def folder_fields(schema: Any, columns: tuple[str, ...]) -> list[Any]:
    """Return the fields of the partition columns; ConfigurationError if one is missing."""
    for name in columns:
        if name not in schema.names:
            raise ConfigurationError(
                f"there is no column {name!r} to partition by; there are {', '.join(schema.names)}"
            )
    return [schema.field(name) for name in columns]


def by_partition(
    table: Any, columns: tuple[str, ...]
) -> Iterator[tuple[dict[str, str | None], Any]]:
    """Yield the rows of each combination of values. The columns themselves are only in the path."""
    if not table.num_rows:
        return
    if not columns:
        yield {}, table
        return
    codes = np.zeros(table.num_rows, np.int64)
    for name in columns:
        encoded = table.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        indices = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64)
        codes = np.unique(codes * (len(encoded.dictionary) + 1) + indices, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    ranked = codes[order]
    starts = [0, *(np.flatnonzero(ranked[1:] != ranked[:-1]) + 1).tolist(), ranked.size]
    ordered = table.take(pa.array(order))
    for start, end in itertools.pairwise(starts):
        rows = ordered.slice(start, end - start)
        values = {name: _text(rows.column(name)[0].as_py()) for name in columns}
        yield values, rows.drop_columns(list(columns))


def _text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _lines(rows: Any) -> bytes:
    encoder = msgspec.json.Encoder(enc_hook=_plain)
    lines: list[bytes] = []
    for batch in rows.to_batches():
        for row in batch.to_pylist():
            lines.append(encoder.encode({name: _shown(value) for name, value in row.items()}))
    lines.append(b"")
    return b"\n".join(lines)


def _shown(value: Any) -> Any:
    """Return bytes that are text as text, and other bytes as base64, marked as such."""
    if isinstance(value, bytes):
        return marked(value)
    if isinstance(value, dict):
        return {name: _shown(inner) for name, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_shown(inner) for inner in cast("list[Any]", value)]
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return str(value)
    raise ConfigurationError(
        f"a column of {type(value).__name__} cannot be written as JSON: use parquet, or cast it"
    )
