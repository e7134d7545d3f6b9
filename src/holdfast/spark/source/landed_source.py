"""The data source "holdfast-landed": reads exactly what is committed, as a batch DataFrame.

Owns the translation of Spark's calls. What counts is decided in `landing`: the files that a sink's
ledger names (`sinkId`), or the objects that a chain reaches from its origin (`topic`). All bytes
are checked against their checksum before a row of them is returned. Must never list a folder to
find rows.

Filters are not pushed down. Spark 4.3 keeps the plan of the last pushed filter on the DataFrame, so
a second use of it with another filter, or none, would miss rows. The option `partitions` leaves
files unread instead. It belongs to one load and to nothing else.
"""

import difflib
import importlib
import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import cramjam
import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from holdfast.columnar.arrow import RecordBatch, pa
from holdfast.errors import NOT_JSON, ConfigurationError, CorruptObject, HoldfastError
from holdfast.identifiers import topic_name_problem
from holdfast.landing.arrow import pq
from holdfast.landing.data_files import sink_id_problem
from holdfast.landing.facts import Facts
from holdfast.landing.landed import files, is_origin_key, objects, read_object
from holdfast.landing.ledger_entry import FileRole, OutputFile
from holdfast.landing.origin import read_origin
from holdfast.landing.output_files import read_footer, read_output
from holdfast.landing.parallel import each
from holdfast.landing.partition_columns import partition_fields, partition_value
from holdfast.spark.runtime.worker import worker
from holdfast.spark.source.data_source import HEADERS, RECORDS
from holdfast.spark.source.task_split import task_bytes

_types: Any = importlib.import_module("pyspark.sql.pandas.types")

OPTIONS = (
    "store",
    "sinkId",
    "topic",
    "files",
    "partitions",
    "includeHeaders",
    "mergeSchema",
    "minPartitions",
)
PARQUET, LINES = ".parquet", ".jsonl.zst"
DEAD = "dead"
"""The value of the option `files` for dead letters."""
REASON = ", reason string"
LINE = "value"
"""The only column of jsonl files: each line as it is, to be parsed with from_json."""
ROWS_PER_BATCH = 50_000
MIN_PARTITIONS = 8
Chosen = Mapping[str, frozenset[str | None]]
"""For some partition columns, the values to read, as the ledger writes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedOptions:
    """The parsed options of a read: which files of a sink, or which chains of a topic."""

    store: str
    sink_id: str | None
    topic: str | None
    role: FileRole
    dead: bool
    """True to read the dead letters of the topic."""
    partitions: Chosen
    include_headers: bool
    merge_schema: bool
    min_partitions: int


def parse_landed_options(given: Mapping[str, str]) -> LandedOptions:
    """Return the options after checking them. Names are case-insensitive, as in Spark."""
    names = {name.lower(): name for name in OPTIONS}
    found: dict[str, str] = {}
    for name, value in given.items():
        known = names.get(name.lower())
        if known is None:
            close = difflib.get_close_matches(name.lower(), names, n=1)
            hint = f"did you mean {names[close[0]]}?" if close else f"use {', '.join(OPTIONS)}"
            raise ConfigurationError(f"holdfast-landed has no option {name!r}: {hint}")
        found[known] = str(value).strip()
    if not found.get("store"):
        raise ConfigurationError('say where to read: .option("store", "s3://bucket/prefix")')
    sink_id, topic = found.get("sinkId") or None, found.get("topic") or None
    if (sink_id is None) == (topic is None):
        raise ConfigurationError(
            "say what to read, and only one of both: sinkId for the output of a pipeline, topic for"
            " what landed on chains"
        )
    problem = sink_id_problem(sink_id) if sink_id else topic_name_problem(topic or "")
    if problem is not None:
        raise ConfigurationError(problem)
    roles = {role.value: role for role in FileRole}
    role = found.get("files", FileRole.ROWS.value).lower()
    dead = role == DEAD and topic is not None
    if not dead and role not in roles:
        raise ConfigurationError(
            f"files={role!r}: use {' or '.join(roles)} with sinkId, and {DEAD} with topic"
        )
    least = found.get("minPartitions", str(MIN_PARTITIONS))
    if not least.isdigit() or int(least) < 1:
        raise ConfigurationError(f"minPartitions={least!r}: use a number from 1 on")
    return LandedOptions(
        store=found["store"],
        sink_id=sink_id,
        topic=topic,
        role=roles.get(role, FileRole.ROWS),
        dead=dead,
        partitions=_chosen(found.get("partitions", "{}"), is_chain=topic is not None),
        include_headers=_is_true("includeHeaders", found),
        merge_schema=_is_true("mergeSchema", found),
        min_partitions=int(least),
    )


def _chosen(text: str, *, is_chain: bool) -> Chosen:
    example = '{"partition": [0, 1]}' if is_chain else '{"day": ["2026-11-16", null]}'
    problem = ConfigurationError(
        f"partitions={text[:100]!r}: write for each column the values to read, as in {example}"
    )
    try:
        given = msgspec.json.decode(text, type=dict[str, list[str | int | bool | None]])
    except NOT_JSON as error:
        raise problem from error
    if is_chain and set(given) - {"partition"}:
        raise problem
    return {name: frozenset(map(_value_text, values)) for name, values in given.items()}


def _value_text(value: str | int | bool | None) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_true(name: str, found: Mapping[str, str]) -> bool:
    text = found.get(name, "false").lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f"{name}={text!r}: use true or false")
    return text == "true"


class LandedSource(DataSource):
    """The Spark format "holdfast-landed": reads what pipelines and sinks have committed.

    Give `store` and one of `sinkId` (the output of a pipeline) and `topic` (the chains of a topic).
    Files that a killed run left behind are never read. All options are in
    docs/how-to/read-what-was-landed.md.
    """

    told_schema = False
    """True if the schema came from the files, and not from a call of schema()."""

    @classmethod
    def name(cls) -> str:
        return "holdfast-landed"

    def schema(self) -> StructType | str:
        options = self._parsed()
        if options.dead:
            return RECORDS + HEADERS + REASON
        if options.topic is not None:
            return RECORDS + (HEADERS if options.include_headers else "")
        self.told_schema = True
        return _types.from_arrow_schema(sink_schema(options), prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> "LandedReader":
        return LandedReader(self._parsed(), schema, is_strict=self.told_schema)

    def _parsed(self) -> LandedOptions:
        return parse_landed_options(dict(cast(Mapping[str, Any], self.options)))


@dataclass(frozen=True, slots=True)
class _Work:
    """What one task reads: files of a sink, or keys of chain objects."""

    files: tuple[OutputFile, ...] = ()
    keys: tuple[str, ...] = ()


class LandedReader(DataSourceReader):
    """The reader of a batch query over one sink or one topic."""

    def __init__(self, options: LandedOptions, schema: StructType, *, is_strict: bool) -> None:
        self._options = options
        self._schema = schema
        self._is_strict = is_strict

    def partitions(self) -> list[InputPartition]:
        if self._options.sink_id is not None:
            kept = chosen_files(sink_files(self._options), self._options.partitions)
            cut = grouped([file.bytes for file in kept], self._options.min_partitions)
            work = [_Work(files=tuple(kept[start:end])) for start, end in cut]
        else:
            wanted = self._options.partitions.get("partition")
            found = [
                (key, facts)
                for key, facts in chain_objects(self._options)
                if wanted is None or str(facts.partition) in wanted
            ]
            cut = grouped([facts.size for _, facts in found], self._options.min_partitions)
            work = [_Work(keys=tuple(key for key, _ in found[s:e])) for s, e in cut]
        return [InputPartition(one) for one in work]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        work = cast("_Work | None", partition.value)
        if work is None:
            # Spark's stand-in if there are no partitions at all.
            return
        here = worker()
        target: Any = _types.to_arrow_schema(self._schema, timezone="UTC")
        store = here.store(self._options.store)
        for file in work.files:
            body = here.run(read_output(store, file, environment=here.environment))
            for batch in _rows(file, body):
                yield conform(batch, target, file.path, file.partition_values, self._is_strict)
        for key in work.keys:
            for batch in here.run(read_object(store, key, environment=here.environment)):
                yield conform(batch, target, key, {}, False)


def chosen_files(found: Sequence[OutputFile], partitions: Chosen) -> list[OutputFile]:
    """Return the files with a chosen value in each column; each must be a partition column."""
    for name in partitions:
        unknown = [file for file in found if name not in file.partition_values]
        if unknown:
            raise ConfigurationError(
                f"{unknown[0].path} is not partitioned by {name!r}, but by"
                f" {[*unknown[0].partition_values]}: use where(...) for other columns"
            )
    return [
        file
        for file in found
        if all(file.partition_values[name] in values for name, values in partitions.items())
    ]


def sink_files(options: LandedOptions) -> tuple[OutputFile, ...]:
    """Return the committed files of a sink; ConfigurationError if there is no such sink."""
    here = worker()
    store = here.store(options.store)
    sink_id = options.sink_id or ""
    found = here.run(files(store, sink_id, environment=here.environment, role=options.role))
    if found:
        return found
    listed = here.run(store.list("ledger/"))
    sinks = sorted({row.key.split("/")[1] for row in listed if row.key.count("/") == 2})
    if sink_id in sinks:
        return ()
    raise ConfigurationError(
        f"there is no sink {sink_id!r} in {options.store}:"
        f" {_among('sinks', sinks)}; see `holdfast landed {shlex.quote(options.store)}`"
    )


def sink_schema(options: LandedOptions) -> Any:
    """Return the Arrow schema of a sink's rows: that of the newest file, or all merged.

    Partition columns come last.
    """
    found = sink_files(options)
    if not found:
        raise ConfigurationError(
            f"nothing has landed yet as {options.role.value} of sink {options.sink_id!r} in"
            f" {options.store}, so its columns are not known: wait for the first micro-batch, or"
            " give them with .schema(...)"
        )
    read = found if options.merge_schema else found[-1:]
    here = worker()
    store = here.store(options.store)

    async def one(file: OutputFile) -> Any:
        if file.path.endswith(LINES):
            return pa.schema(
                [(LINE, pa.string()), *partition_fields([*file.partition_values], {}, path="")]
            )
        footer = await read_footer(store, file, environment=here.environment)
        return whole_schema(file, footer)

    schemas = here.run(each(one, read))
    try:
        return pa.unify_schemas(schemas)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ConfigurationError(
            f"the files of sink {options.sink_id!r} in {options.store} have columns that do not go"
            f" together: {error}; read them with .schema(...)"
        ) from error


def whole_schema(file: OutputFile, footer: Any) -> Any:
    """Return the columns of a Parquet file, followed by those of its path."""
    inside = footer.schema.to_arrow_schema().remove_metadata()
    apart = partition_fields([*file.partition_values], footer.metadata, path=file.path)
    fields = [field.remove_metadata() for field in inside]
    return pa.schema([*fields, *(field for field in apart if field.name not in inside.names)])


def chain_objects(options: LandedOptions) -> list[tuple[str, Facts]]:
    """Return the objects of a topic's chains; ConfigurationError if there is no chain."""
    here = worker()
    store, environment = here.store(options.store), here.environment
    found = here.run(
        objects(store, environment=environment, topic=options.topic, dead=options.dead)
    )
    if found:
        return found
    keys = [row.key for row in here.run(store.list("")) if is_origin_key(row.key)]
    origins = here.run(each(partial(read_origin, store, environment=environment), keys))
    topics = sorted({origin.topic for origin in origins if origin is not None})
    if options.topic in topics:
        return []
    raise ConfigurationError(
        f"no chain of topic {options.topic!r} has landed in {options.store}:"
        f" {_among('topics', topics)}"
    )


def _among(what: str, names: Sequence[str]) -> str:
    return (
        f"the {what} there are {', '.join(names[:20])}" if names else f"there are no {what} at all"
    )


def grouped(sizes: Sequence[int], min_partitions: int) -> list[tuple[int, int]]:
    """Return index ranges [start, end) of about equal bytes, in order."""
    most = task_bytes(sum(sizes), min_partitions)
    bounds = [0]
    taken = 0
    for i, size in enumerate(sizes):
        if taken and taken + size > most:
            bounds.append(i)
            taken = 0
        taken += size
    return list(itertools.pairwise([*bounds, len(sizes)])) if sizes else []


def _rows(file: OutputFile, body: bytes) -> Iterator[RecordBatch]:
    if file.path.endswith(LINES):
        lines = bytes(cramjam.zstd.decompress(body)).split(b"\n")
        if lines.pop() != b"" or len(lines) != file.rows:
            raise CorruptObject(f"{file.path}: {len(lines)} lines; the ledger says {file.rows}")
        for start in range(0, len(lines), ROWS_PER_BATCH):
            part = pa.array(lines[start : start + ROWS_PER_BATCH], pa.binary()).cast(pa.string())
            yield pa.RecordBatch.from_arrays([part], names=[LINE])
        return
    try:
        opened = pq.ParquetFile(pa.BufferReader(body))
        yield from opened.iter_batches(batch_size=ROWS_PER_BATCH)
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptObject(f"{file.path}: it cannot be read as Parquet: {error}") from error


def conform(
    batch: Any,
    target: Any,
    path: str,
    partition_values: Mapping[str, str | None],
    is_strict: bool,
) -> RecordBatch:
    """Return the batch with exactly the columns of a schema; what a file lacks is null."""
    inside: list[str] = batch.schema.names
    if is_strict and (more := [name for name in inside if name not in target.names]):
        raise HoldfastError(
            f"{path} has the column {more[0]!r}, which the newest file has not: read with"
            ' .option("mergeSchema", "true"), or name the columns with .schema(...)'
        )
    columns: list[Any] = []
    for field in target:
        if field.name in inside:
            columns.append(_cast(batch.column(field.name), field, path))
        elif field.name in partition_values:
            value = partition_value(partition_values[field.name], field.type, path=path)
            columns.append(pa.repeat(value, batch.num_rows))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _cast(column: Any, field: Any, path: str) -> Any:
    if column.type.equals(field.type):
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise HoldfastError(
            f"{path}: its column {field.name!r} is {column.type}, and {field.type} is wanted:"
            f" {error}; read it with .schema(...)"
        ) from error
