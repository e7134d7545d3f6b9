"""Parquet with the columns of Spark's Kafka source.

Pure. Owns the settings of the file. The facts block goes between the last row group and the footer,
where it changes no position in the footer. The footer's key-value metadata repeats names and
numbers for people and tools. Holdfast itself must never trust anything but the block. A file that
is being written holds its full row groups compressed, and the current one as it came.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.columnar.arrow import RecordBatch, pa
from holdfast.columnar.schema import SCHEMA, SCHEMA_WITH_HEADERS
from holdfast.errors import CallError, ConfigurationError, CorruptObject
from holdfast.landing.arrow import pq
from holdfast.landing.facts import Facts, checksum
from holdfast.landing.formats.codecs import GZIP_LEVEL, FileCodec, Pieces
from holdfast.landing.formats.fitness import (
    add_too_large,
    checked_record_bytes,
    first_unfit,
    sorted_out,
)
from holdfast.landing.formats.interface import Encoded, RecordWriter, Unfit, encode_with
from holdfast.store.interface import Buffer

EXTENSION = ".parquet"
NAME = "parquet"
ROWS_PER_GROUP = 1_000_000
ROW_GROUP_BYTES = 16 * 1024 * 1024
"""Bytes of Arrow memory that an open file holds uncompressed."""
ROWS_PER_BATCH = 50_000
LEVEL = 1
"""Level of zstd. Level 3 took half as long again for files 7 % smaller."""
LEVELS = {FileCodec.ZSTD: range(1, 23), FileCodec.GZIP: range(1, 10)}
REPEATED_COLUMNS = ("topic", "partition", "timestampType")
RISING_COLUMNS = ("offset", "timestamp")
"""Columns with small steps between rows. As differences they are smaller and faster to compress."""
OPAQUE_COLUMN = "value"
"""A column without statistics: nobody needs the minimum and maximum of these bytes."""
_FOOTER_END = 8


class Parquet:
    """The format `parquet`, with the schema of the batches that it gets."""

    def __init__(
        self,
        *,
        compression: str = "zstd",
        level: int | None = None,
        rows_per_group: int = ROWS_PER_GROUP,
        row_group_bytes: int = ROW_GROUP_BYTES,
        record_bytes_max: int | None = None,
    ) -> None:
        if rows_per_group < 1 or row_group_bytes < 1:
            raise ConfigurationError(
                f"row groups cannot have {rows_per_group} rows and {row_group_bytes} bytes: use at"
                " least 1 of each"
            )
        self._codec = FileCodec.named(compression)
        self._level = _checked_level(self._codec, level)
        self._rows_per_group = rows_per_group
        self._row_group_bytes = row_group_bytes
        self._record_bytes_max = checked_record_bytes(record_bytes_max)

    @property
    def name(self) -> str:
        return NAME

    @property
    def extension(self) -> str:
        return EXTENSION

    @property
    def columns(self) -> tuple[str, ...]:
        schema: Any = SCHEMA_WITH_HEADERS
        return tuple(schema.names)

    def check(self, batch: RecordBatch) -> Unfit | None:
        problems = add_too_large(None, batch, self._record_bytes_max)
        return first_unfit(batch, problems, self._record_bytes_max)

    def sort_out(self, batch: RecordBatch) -> tuple[RecordBatch, list[Unfit]]:
        problems = add_too_large(None, batch, self._record_bytes_max)
        return sorted_out(batch, problems, self._record_bytes_max)

    def writer(self) -> RecordWriter:
        return _Writer(self._codec, self._level, self._rows_per_group, self._row_group_bytes)

    def encode(self, batches: Sequence[RecordBatch], described: Mapping[str, str]) -> Encoded:
        return encode_with(self.writer(), batches, described)

    def decode(self, body: bytes, facts: Facts) -> Iterator[RecordBatch]:
        file = pq.ParquetFile(pa.BufferReader(body))
        if file.metadata.num_rows != facts.records:
            raise CorruptObject(
                f"{facts.topic}-{facts.partition} from offset {facts.first_offset}: the object has"
                f" {file.metadata.num_rows} rows; its facts block says {facts.records} records"
            )
        yield from file.iter_batches(batch_size=ROWS_PER_BATCH)


class _Writer:
    """One Parquet file that is being written."""

    def __init__(
        self, codec: FileCodec, level: int | None, rows_per_group: int, row_group_bytes: int
    ) -> None:
        self._codec = codec
        self._level = level
        self._rows_per_group = rows_per_group
        self._row_group_bytes = row_group_bytes
        self._file = Pieces()
        self._opened: Any = None
        self._body: list[Buffer] = []
        self._body_bytes = 0
        self._waiting: list[RecordBatch] = []
        self._waiting_bytes = 0
        self._waiting_rows = 0
        self._rows = 0
        self._is_finished = False

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def held_bytes(self) -> int:
        return self._body_bytes + self._waiting_bytes

    def add(self, batch: RecordBatch) -> None:
        if self._is_finished:
            raise CallError("records were added to a file that is finished")
        if batch.num_rows == 0:
            return
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        self._waiting_rows += batch.num_rows
        self._rows += batch.num_rows
        if (
            self._waiting_bytes >= self._row_group_bytes
            or self._waiting_rows >= self._rows_per_group
        ):
            self._write()

    def finish(self, described: Mapping[str, str]) -> Encoded:
        if self._is_finished:
            raise CallError("a file was finished twice")
        self._is_finished = True
        self._write()
        opened = self._opened or self._open(SCHEMA)
        opened.add_key_value_metadata(dict(described))
        opened.close()
        end = self._file.take()
        footer = int.from_bytes(end[-_FOOTER_END:-4], "little") + _FOOTER_END
        body = (*self._body, end[:-footer])
        return Encoded(body=body, body_crc=checksum(body), after=end[-footer:])

    def _open(self, schema: Any) -> Any:
        sink = pa.PythonFile(self._file, mode="w")
        return writer_of(sink, schema, codec=self._codec, level=self._level)

    def _write(self) -> None:
        """Write the waiting batches as one row group, or several if they exceed rows_per_group."""
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting)
        self._opened = self._opened or self._open(table.schema)
        self._opened.write_table(table, row_group_size=self._rows_per_group)
        self._waiting, self._waiting_bytes, self._waiting_rows = [], 0, 0
        self._body.append(self._file.take())
        self._body_bytes += len(self._body[-1])


def _checked_level(codec: FileCodec, level: int | None) -> int | None:
    levels = LEVELS.get(codec)
    if level is None:
        return {FileCodec.ZSTD: LEVEL, FileCodec.GZIP: GZIP_LEVEL}.get(codec)
    if levels is None or level not in levels:
        use = "remove it" if levels is None else f"use {levels[0]} to {levels[-1]}"
        raise ConfigurationError(f"{codec.name.lower()} has no compression level {level}: {use}")
    return level


def file_of(
    table: Any,
    described: Mapping[str, str],
    *,
    level: int = LEVEL,
    rows_per_group: int = ROWS_PER_GROUP,
) -> Any:
    """Return a Parquet file as a buffer. Also used for output that is not in a chain."""
    sink = pa.BufferOutputStream()
    with writer_of(sink, table.schema, level=level) as writer:
        if table.num_rows:
            writer.write_table(table, row_group_size=rows_per_group)
        writer.add_key_value_metadata(dict(described))
    return sink.getvalue()


def writer_of(
    sink: Any, schema: Any, *, codec: FileCodec = FileCodec.ZSTD, level: int | None = LEVEL
) -> Any:
    """Return pyarrow's writer with the settings of our files."""
    names: list[str] = schema.names
    repeated = [name for name in REPEATED_COLUMNS if name in names]
    compression = {"compression": codec.name.lower(), "compression_level": level}
    if not repeated:
        return pq.ParquetWriter(sink, schema, **compression)
    rising = [name for name in RISING_COLUMNS if name in names and _is_number(schema.field(name))]
    return pq.ParquetWriter(
        sink,
        schema,
        **compression,
        use_dictionary=repeated,
        column_encoding=dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
        write_statistics=[name for name in names if name != OPAQUE_COLUMN],
    )


def _is_number(field: Any) -> bool:
    return pa.types.is_int64(field.type) or pa.types.is_timestamp(field.type)
