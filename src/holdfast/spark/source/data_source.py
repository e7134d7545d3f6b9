"""The data source "holdfast": passes Spark's calls to a Planner, to read_range and to the sink.

Owns only this translation. Readers are pickled and sent to executors, so they must never hold more
than options. The input is opened in the process that plans, and stays open while the query runs.
"""

import logging
import pickle
from collections.abc import Iterator, Mapping
from typing import Any, cast

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from holdfast.columnar.arrow import RecordBatch, pa, record_batch
from holdfast.environment import SystemEnvironment
from holdfast.errors import ConfigurationError
from holdfast.spark.source import offsets
from holdfast.spark.source.group_offsets import GroupOffsets, group_offsets
from holdfast.spark.source.inputs import Input, Range, read_range
from holdfast.spark.source.kafka_options import client_options
from holdfast.spark.source.options import Rows, SourceOptions, parse_options
from holdfast.spark.source.planning import Planner
from holdfast.spark.source.where import parse_where

LOGGER = logging.getLogger("holdfast.spark.source.data_source")

RECORDS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
COLUMNS: tuple[str, ...] = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
)
HEADERS = ", headers array<struct<key: string, value: binary>>"
RANGES = "range binary"
RANGES_SCHEMA: Any = pa.schema([("range", pa.binary())])


def open_input(options: SourceOptions) -> Input:
    """Return the input that the options name."""
    if options.store is not None:
        from holdfast.spark.source.store_input import StoreInput

        return StoreInput(options.store, read_committed=options.read_committed)
    from holdfast.spark.source.kafka_input import KafkaInput

    client = client_options(options.bootstrap_servers or "", options.client)
    return KafkaInput(client, read_committed=options.read_committed)


class HoldfastSource(DataSource):
    """The Spark format "holdfast": reads topics, as a stream or a batch, and writes topics.

    It reads a Holdfast store without a broker (option `store`), or any Kafka
    (`kafka.bootstrap.servers`). Options and columns are those of Spark's Kafka source and sink. A
    stream is written exactly once (option `sinkId`), and a batch in one transaction. All options
    are in docs/reference/spark-source.md and docs/reference/spark-sink.md.
    """

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    @classmethod
    def open_input(cls, options: SourceOptions) -> Input:
        """Return the input; a test can override this to supply another one."""
        return open_input(options)

    def schema(self) -> str:
        if text := self._option("where"):
            # Spark asks for the schema in load(), so a mistake shows there and not in the plan.
            parse_where(text)
        if self._option("rows").lower() == Rows.RANGES.value:
            return RANGES
        return RECORDS + (HEADERS if self._option("includeHeaders").lower() == "true" else "")

    def reader(self, schema: StructType) -> "HoldfastReader":
        return HoldfastReader(type(self), self._parsed(schema, streaming=False))

    def streamReader(self, schema: StructType) -> "HoldfastStreamReader":  # noqa: N802
        return HoldfastStreamReader(type(self), self._parsed(schema, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from holdfast.spark.topic.batch import TopicBatchWriter
        from holdfast.spark.topic.sink import topic_options

        options = cast(Mapping[str, Any], self.options)
        return TopicBatchWriter(topic_options(options, schema, overwrite=overwrite, is_batch=True))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from holdfast.spark.topic.sink import TopicStreamWriter, topic_options

        options = cast(Mapping[str, Any], self.options)
        return TopicStreamWriter(topic_options(options, schema, overwrite=overwrite))

    def _option(self, name: str) -> str:
        options = cast(Mapping[str, Any], self.options)
        return str(options[name]).strip() if name in options else ""

    def _parsed(self, schema: StructType, *, streaming: bool) -> SourceOptions:
        options = cast(Mapping[str, Any], self.options)
        parsed = parse_options(dict(options), streaming=streaming)
        if parsed.bootstrap_servers is not None:
            client_options(parsed.bootstrap_servers, parsed.client)
        given, expected = schema.fieldNames(), list(COLUMNS)
        if parsed.rows is Rows.RANGES:
            expected = ["range"]
        elif parsed.include_headers:
            expected.append("headers")
        if given != expected:
            raise ConfigurationError(
                f"the schema of this source is fixed ({self.schema()}): remove the call of "
                f"schema(), which asks for {', '.join(given)}"
            )
        return parsed


class _Reading:
    """The part that both readers share: the planner of this process, and reading in a task."""

    def __init__(self, source: type[HoldfastSource], options: SourceOptions) -> None:
        self._source = source
        self._options = options
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_planner": None}

    def planner(self) -> Planner:
        """Return the planner of this process, with its input open."""
        if self._planner is None:
            for what in self._options.ignored:
                LOGGER.warning("option_without_effect: %s", what)
            self._planner = Planner(
                options=self._options,
                source=self._source.open_input(self._options),
                environment=SystemEnvironment(),
            )
        return self._planner

    def close(self) -> None:
        if self._planner is not None:
            self._planner.source.close()
            self._planner = None

    def partition_rows(self, partition: InputPartition) -> Iterator[RecordBatch]:
        wanted = cast("Range | None", partition.value)
        if wanted is None:
            # Spark's stand-in if a batch query has no partitions at all.
            return iter(())
        if self._options.rows is Rows.RANGES:
            row = pa.array([pickle.dumps(wanted)], pa.binary())
            return iter([record_batch(RANGES_SCHEMA, [row])])
        return iter(read_range(wanted))


class HoldfastReader(DataSourceReader):
    """The reader of a batch query.

    It takes no filters from Spark (ADR 7). Spark would keep the narrowed plan for every later use
    of the same DataFrame, and rows would be missing there. The option `where` is safe, because it
    belongs to the DataFrame for good.
    """

    def __init__(self, source: type[HoldfastSource], options: SourceOptions) -> None:
        self._reading = _Reading(source, options)

    def partitions(self) -> list[InputPartition]:
        try:
            ranges = self._reading.planner().batch_ranges()
        finally:
            self._reading.close()
        return [InputPartition(wanted) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return self._reading.partition_rows(partition)


class HoldfastStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query, with admission control."""

    def __init__(self, source: type[HoldfastSource], options: SourceOptions) -> None:
        self._reading = _Reading(source, options)
        self._options = options
        self._group: GroupOffsets | None = None
        if options.commit_group_id is not None:
            client = client_options(options.bootstrap_servers or "", options.client)
            self._group = group_offsets(client, options.commit_group_id)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_group": None}

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        return offsets.to_json(self._reading.planner().initial_offset())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.offsets_per_trigger_min is not None:
            return ReadMinRows(self._options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        # Spark passes one limit only. If it is a maximum, the minimum comes from the options.
        least = self._options.offsets_per_trigger_min
        most: int | None = None
        match limit:
            case ReadAllAvailable():
                least = None
            case ReadMaxRows(max_rows=rows):
                most = rows
            case ReadMinRows(min_rows=rows):
                least = rows
            case _:
                raise ConfigurationError(
                    f"{limit!r} cannot be followed: this source counts offsets, not bytes or files"
                )
        start_offset = offsets.from_json(start)
        if self._group is not None:
            # Spark asks only after it has committed the micro-batch that ends at `start`.
            self._group.committed(start_offset)
        end = self._reading.planner().next_offset(start_offset, most=most, least=least)
        return start if end == start_offset else offsets.to_json(end)

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        newest = self._reading.planner().newest_offset()
        return None if newest is None else offsets.to_json(newest)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._reading.planner().prepare_for_available_now()

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        ranges = self._reading.planner().stream_ranges(
            offsets.from_json(start), offsets.from_json(end)
        )
        return [InputPartition(wanted) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return self._reading.partition_rows(partition)

    def stop(self) -> None:
        self._reading.close()
