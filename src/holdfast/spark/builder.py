"""Pipelines in a few words: `pipeline(stream).dedup(...).to(...).start(...)`.

Owns the builder that users call. Each step gives a new Pipeline; nothing runs before start. Must
never decide anything that the ledger or the job decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from holdfast.errors import ConfigurationError
from holdfast.spark.checkpoint import open_checkpoint
from holdfast.spark.job import BUCKETS_DEFAULT, Job, Operation, Output
from holdfast.spark.ledger_sink import Follower, LedgerSink
from holdfast.spark.operations import ONE_STEP, aggregate_step, dedup_step, timer_step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A query that runs, and its sink, for progress and counts."""

    query: "StreamingQuery"
    sink: LedgerSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What was asked for so far."""

    stream: "DataFrame"
    operation: Operation | None = None
    output: Output | None = None
    tables: tuple[Follower, ...] = ()

    def dedup(
        self,
        by: str | Sequence[str],
        *,
        within: str | None = None,
        event_time: str | None = None,
        lateness: str | None = None,
        late: Literal["keep", "divert"] = "keep",
        buckets: int = BUCKETS_DEFAULT,
    ) -> "Pipeline":
        """Let each key through once: within a span of event time, or for ever where it is None.

        A record that comes so late that its twin may be forgotten is kept, or diverted into files
        of their own (`late="divert"`); both are counted. A record with no key is kept.
        """
        wanted = dedup_step(
            by,
            within=within,
            event_time=event_time,
            lateness=lateness,
            late=late,
            buckets=buckets,
        )
        return self._with(wanted)

    def aggregate(
        self,
        by: str | Sequence[str],
        aggregates: Mapping[str, tuple[str, str | None]],
        *,
        event_time: str | None = None,
        forget_after: str | None = None,
        late: Literal["keep", "divert"] = "keep",
        buckets: int = BUCKETS_DEFAULT,
    ) -> "Pipeline":
        """Running aggregates: {"orders": ("count", None), "total": ("sum", "amount")}.

        Each micro-batch gives one row for each key that it changed, with the key, the aggregates
        and `_entry`, the ledger number: the row with the greatest one is the newest. A key without
        events for `forget_after` of event time is forgotten, and begins anew if it comes back.
        """
        wanted = aggregate_step(
            by,
            aggregates,
            event_time=event_time,
            forget_after=forget_after,
            late=late,
            buckets=buckets,
        )
        return self._with(wanted)

    def timers(
        self, by: str | Sequence[str], *, after: str, buckets: int = BUCKETS_DEFAULT
    ) -> "Pipeline":
        """One row for each key that had no event for `after` of wall-clock time, once.

        The rows have the key, `deadline` and `_entry`. Timers are looked at in each micro-batch;
        for micro-batches without records give the source the option tickInterval.
        """
        return self._with(timer_step(by, after=after, buckets=buckets))

    def _with(self, operation: Operation) -> "Pipeline":
        if self.operation is not None:
            raise ConfigurationError(ONE_STEP)
        return replace(self, operation=operation)

    def to(
        self,
        store: str,
        *,
        sink_id: str,
        format: Literal["parquet", "jsonl.zst"] = "parquet",
        partition_by: Sequence[str] = (),
        tables: Sequence[Follower] = (),
    ) -> "Pipeline":
        """Files in a store, visible only through the ledger of this sink id.

        `tables` follow the ledger: DeltaTable() or IcebergTable(...) of holdfast.spark.tables.
        """
        wanted = Output(
            store=store, sink_id=sink_id, format=format, partition_by=tuple(partition_by)
        )
        return replace(self, output=wanted, tables=tuple(tables))

    def start(
        self, checkpoint: str, *, trigger: Mapping[str, Any] | None = None, name: str | None = None
    ) -> Running:
        """Start the query; `trigger` is as for Spark: {"availableNow": True}."""
        if self.output is None:
            raise ConfigurationError('say where the output goes: .to("s3://...", sink_id="...")')
        job = Job(output=self.output, operation=self.operation)
        opened = open_checkpoint(self.stream.sparkSession, checkpoint)
        sink = LedgerSink(job, opened, followers=self.tables)
        sink.catch_up()
        writer = self.stream.writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", checkpoint)
        if name is not None:
            writer = writer.queryName(name)
        writer = cast(Any, writer).trigger(**(trigger or {"processingTime": "1 second"}))
        return Running(query=writer.start(), sink=sink)
