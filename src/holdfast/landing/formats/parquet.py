"""Parquet with the columns of Spark's Kafka source, under zstd.

Pure. Owns the settings of the file: the block of facts goes between the last row group and the
footer, where no position of the footer changes by it. Names and numbers stand in the footer's
key-value metadata as well, for people and tools; Holdfast itself trusts the block alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.columnar.schema import SCHEMA, SCHEMA_WITH_HEADERS
from holdfast.errors import ConfigurationError, CorruptObject
from holdfast.landing.arrow import RecordBatch, pa, pq
from holdfast.landing.facts import Facts, checksum
from holdfast.landing.formats.interface import Encoded, Unfit, Writer

EXTENSION = ".parquet"
NAME = "parquet"
ROWS_PER_GROUP = 1_000_000
ROWS_PER_BATCH = 50_000
LEVEL = 1
"""zstd's; 3 took half as long again for files 7 % smaller."""
REPEATED_COLUMNS = ("topic", "partition", "timestampType")
RISING_COLUMNS = ("offset", "timestamp")
"""Small steps between neighbours: as differences they take less room, and less work to compress."""
OPAQUE_COLUMN = "value"
"""Nobody looks for the least and the greatest of these bytes."""
_FOOTER_END = 8


class _Writer:
    """Batches that become a file at the end."""

    def __init__(self, format: "Parquet") -> None:
        self.rows = 0
        self.held_bytes = 0
        self._format = format
        self._batches: list[RecordBatch] = []

    def add(self, batch: RecordBatch) -> None:
        self._batches.append(batch)
        self.rows += batch.num_rows
        self.held_bytes += batch.nbytes

    def finish(self, described: Mapping[str, str]) -> Encoded:
        return self._format.encode(self._batches, described)


class Parquet:
    """`parquet`, with the schema of the batches that it is given."""

    def __init__(self, *, level: int = LEVEL, rows_per_group: int = ROWS_PER_GROUP) -> None:
        if not 1 <= level <= 22:
            raise ConfigurationError(f"no zstd level {level}: use 1 to 22, as in 3")
        if rows_per_group < 1:
            raise ConfigurationError(f"no row groups of {rows_per_group} rows: use at least 1")
        self._level = level
        self._rows_per_group = rows_per_group

    @property
    def name(self) -> str:
        return NAME

    @property
    def extension(self) -> str:
        return EXTENSION

    def check(self, batch: RecordBatch) -> Unfit | None:
        return None

    def sort_out(self, batch: RecordBatch) -> tuple[RecordBatch, list[Unfit]]:
        return batch, []

    @property
    def columns(self) -> tuple[str, ...]:
        schema: Any = SCHEMA_WITH_HEADERS
        return tuple(schema.names)

    def writer(self) -> Writer:
        return _Writer(self)

    def encode(self, batches: Sequence[RecordBatch], described: Mapping[str, str]) -> Encoded:
        schema: Any = batches[0].schema if batches else SCHEMA
        file = file_of(
            pa.Table.from_batches(list(batches), schema=schema),
            described,
            level=self._level,
            rows_per_group=self._rows_per_group,
        )
        view = memoryview(file)
        footer = int.from_bytes(view[-_FOOTER_END:-4], "little") + _FOOTER_END
        body = view[:-footer].cast("B")
        return Encoded(body=(body,), body_crc=checksum([body]), after=bytes(view[-footer:]))

    def decode(self, body: bytes, facts: Facts) -> Iterator[RecordBatch]:
        file = pq.ParquetFile(pa.BufferReader(body))
        if file.metadata.num_rows != facts.records:
            raise CorruptObject(
                f"{facts.topic}-{facts.partition} from {facts.first_offset}:"
                f" {file.metadata.num_rows} rows, and it says that it has {facts.records} records"
            )
        yield from file.iter_batches(batch_size=ROWS_PER_BATCH)


def file_of(
    table: Any,
    described: Mapping[str, str],
    *,
    level: int = LEVEL,
    rows_per_group: int = ROWS_PER_GROUP,
) -> Any:
    """A Parquet file as a buffer; also for output that no chain holds."""
    sink = pa.BufferOutputStream()
    with writer_of(sink, table.schema, level=level) as writer:
        if table.num_rows:
            writer.write_table(table, row_group_size=rows_per_group)
        writer.add_key_value_metadata(dict(described))
    return sink.getvalue()


def writer_of(sink: Any, schema: Any, *, level: int = LEVEL) -> Any:
    """pyarrow's writer with the settings of our files."""
    names: list[str] = schema.names
    repeated = [name for name in REPEATED_COLUMNS if name in names]
    if not repeated:
        return pq.ParquetWriter(sink, schema, compression="zstd", compression_level=level)
    rising = [name for name in RISING_COLUMNS if name in names and _is_number(schema.field(name))]
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=level,
        use_dictionary=repeated,
        column_encoding=dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
        write_statistics=[name for name in names if name != OPAQUE_COLUMN],
    )


def _is_number(field: Any) -> bool:
    return pa.types.is_int64(field.type) or pa.types.is_timestamp(field.type)
