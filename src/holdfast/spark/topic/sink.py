"""The sink of `writeStream.format("holdfast")`: passes Spark's calls to an encoder and a commit.

Tasks encode their rows as record batches and hand them to the driver. The driver writes them in one
transaction (ADR 9 says why tasks do not). Owns the check of the columns and nothing else. Must
never write in a task; so an abort has nothing to undo.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from holdfast.client.refusals import RefusedForNow
from holdfast.columnar.arrow import RecordBatch
from holdfast.errors import CallError, ConfigurationError, InvariantViolation
from holdfast.spark.runtime.worker import worker
from holdfast.spark.topic.commit import TopicCommit, planned_offsets
from holdfast.spark.topic.options import TopicOptions, parse_batch_options, parse_topic_options
from holdfast.spark.topic.position import Position
from holdfast.spark.topic.rows import RowEncoder, Staged

LOGGER = logging.getLogger("holdfast.spark.topic")

TOPIC_WAIT_MS_MAX = 10_000
QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class TaskBatches(WriterCommitMessage):
    """The record batches that one task made of its rows."""

    task: int
    query_id: str
    staged: Sequence[Staged]


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """The writer that Spark makes twice for each micro-batch: for its tasks, and to commit."""

    def __init__(self, options: TopicOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> TaskBatches:
        task, query_id = _task()
        return TaskBatches(task, query_id, encode_rows(iterator, self._options, task=task))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        tasks = [cast(TaskBatches, one) for one in messages if one is not None]
        if len(tasks) != len(messages) or len({one.query_id for one in tasks}) != 1:
            raise InvariantViolation(
                f"micro-batch {batchId}: {len(tasks)} of {len(messages)} tasks"
            )
        staged = [one for each in sorted(tasks, key=lambda t: t.task) for one in each.staged]
        batch = Position(
            query_id=tasks[0].query_id,
            batch_id=batchId,
            offsets=planned_offsets(self._options.checkpoint, batchId),
        )
        here = worker()
        sink = TopicCommit(here.cluster(self._options.client), self._options, at=self.at)
        is_new = here.run(sink.commit(staged, batch))
        LOGGER.info(
            "micro_batch_%s sink=%s batch=%d records=%d",
            "committed" if is_new else "known",
            self._options.sink_id,
            batchId,
            sum(one.records for one in staged),
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: tasks wrote nothing, and a commit that failed may have been decided."""

    def at(self, step: str) -> None:
        """Log a step of a commit, before it is taken."""
        LOGGER.debug("topic_commit sink=%s step=%s", self._options.sink_id, step)


def encode_rows(
    batches: Iterable[RecordBatch], options: TopicOptions, *, task: int
) -> Sequence[Staged]:
    """Return the rows of one task as record batches. Nothing is written here."""
    here = worker()
    encoder = RowEncoder(
        topic=options.topic,
        codec=options.codec,
        partitions_of=partial(_partitions_of, options),
        now_ms=here.environment.now_ms,
        first=task,
    )
    for rows in batches:
        encoder.add(rows)
    return encoder.finish()


def _partitions_of(options: TopicOptions, topic: str) -> int:
    here = worker()
    cluster = here.cluster(options.client)
    asked = cluster.patiently(
        lambda: cluster.describe(topic),
        f"topic {topic!r}",
        topic=topic,
        deadline_ms=TOPIC_WAIT_MS_MAX,
    )
    try:
        return len(here.run(asked).leaders)
    except RefusedForNow as missing:
        raise CallError(f"{missing}: create the topic first, the sink does not") from missing


def topic_options(
    raw: Mapping[str, Any], schema: StructType, *, overwrite: bool, is_batch: bool = False
) -> TopicOptions:
    """Return the options after checking them and the columns."""
    if overwrite:
        mode, other = (
            ('mode("overwrite")', '"append"')
            if is_batch
            else ('outputMode("complete")', '"append" or "update"')
        )
        raise ConfigurationError(f"{mode} would replace what is in a topic: use {other}")
    given = {name: str(value) for name, value in raw.items()}
    if is_batch:
        options = parse_batch_options(given, worker().environment.new_uuid().hex)
    else:
        options = parse_topic_options(given)
    _check_columns(schema, needs_topic=options.topic is None)
    return options


TEXT_OR_BYTES = (StringType, BinaryType)
COLUMNS: Mapping[str, tuple[type[DataType], ...]] = {
    "key": TEXT_OR_BYTES,
    "value": TEXT_OR_BYTES,
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
}


def _check_columns(schema: StructType, *, needs_topic: bool) -> None:
    found = {one.name: one.dataType for one in schema.fields}
    if "value" not in found:
        raise ConfigurationError(
            f"the sink needs a column `value`, of text or bytes; there are {', '.join(found)}"
        )
    if needs_topic and "topic" not in found:
        raise ConfigurationError(
            "say which topic: with the option topic, or with a column `topic` of text"
        )
    for name, kinds in COLUMNS.items():
        if name in found and not isinstance(found[name], kinds):
            wanted = " or ".join(kind.typeName() for kind in kinds)
            raise ConfigurationError(
                f"the column `{name}` must be {wanted}, not {found[name].simpleString()}: cast it"
            )
    headers = found.get("headers")
    if headers is not None and headers.simpleString() != "array<struct<key:string,value:binary>>":
        raise ConfigurationError(
            "the column `headers` must be array<struct<key: string, value: binary>>, not "
            + headers.simpleString()
        )


def _task() -> tuple[int, str]:
    from pyspark import TaskContext

    context = TaskContext.get()
    query_id = context.getLocalProperty(QUERY_ID) if context is not None else None
    if context is None or query_id is None:
        raise InvariantViolation("a task of a streaming query knows neither itself nor its query")
    return context.partitionId(), query_id
