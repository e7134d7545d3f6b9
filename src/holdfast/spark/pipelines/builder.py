"""The builder of pipelines: `pipeline(stream).dedup(...).to(...).start(...)`.

Owns the classes that users call. Each step returns a new Pipeline, and nothing runs before `start`.
Must never make a decision that belongs to the ledger or the job.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from holdfast.errors import ConfigurationError
from holdfast.spark.ledger.checkpoint import open_checkpoint
from holdfast.spark.ledger.job import BUCKETS_DEFAULT, Job, Operation, Output
from holdfast.spark.ledger.ledger_sink import LedgerFollower, LedgerSink
from holdfast.spark.ledger.operations import ONE_STEP, aggregate_step, dedup_step, timer_step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A query that runs, and its sink.

    `query` is Spark's StreamingQuery. `sink` counts what this run has committed (`sink.totals`) and
    has the newest entry of the ledger (`sink.last`).
    """

    query: "StreamingQuery"
    sink: LedgerSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline under construction: a stream, at most one stateful step, and an output.

    Get one from `holdfast.spark.pipeline(stream)`. Each step returns a new Pipeline; `start` runs
    it.
    """

    stream: "DataFrame"
    operation: Operation | None = None
    output: Output | None = None
    tables: tuple[LedgerFollower, ...] = ()

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
        """Keep the first record of each key and drop the others.

        - `by` is the key: a column, a field of a JSON column (`value.$.id`), a header
          (`headers.id`), or a list of these. Records without a key are kept.
        - `within` is how long a key is remembered, in event time, as in "24 hours". None: for ever.
          It needs `event_time`.
        - `event_time` is a column of timestamps, or of whole milliseconds since 1970.
        - `lateness` is how far a record may be behind the event-time watermark; by default, as far
          as `within`. An older record is late: its key may be forgotten already.
        - `late` is "keep" to keep late records, or "divert" to write them to separate files. They
          are counted either way.
        - `buckets` is the number of parts of the state. The first run fixes it.
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
        """Keep running aggregates by key.

        Each micro-batch writes one row for every key that it changed: the key, the aggregates and
        `_entry`, the number of the ledger entry. The row with the greatest `_entry` is the newest
        of its key.

        - `by` is the key: a column, or a list of columns.
        - `aggregates` has a name, a function and a column for each aggregate, as in
          `{"orders": ("count", None), "total": ("sum", "amount")}`. The functions are count, sum,
          min, max, first and last.
        - `event_time` is a column of timestamps, or of whole milliseconds since 1970.
        - `forget_after` forgets a key that had no events for this long in event time. If it comes
          back, it starts from zero. None: never. It needs `event_time`.
        - `late` is what to do with a record older than that: "keep" aggregates it, "divert" writes
          it to separate files. It is counted either way.
        - `buckets` is the number of parts of the state. The first run fixes it.
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
        """Write one row for each key that had no event for `after` of wall-clock time.

        The row has the key, `deadline` and `_entry`, the number of the ledger entry. It is written
        once. A key that comes back is watched again. Timers are checked in each micro-batch. To
        have micro-batches without new records, give the source the option tickInterval.

        - `by` is the key: a column, or a list of columns.
        - `after` is how long a key must be silent, as in "15 minutes".
        - `buckets` is the number of parts of the state. The first run fixes it.
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
        tables: Sequence[LedgerFollower] = (),
    ) -> "Pipeline":
        """Write the output as files in a store, which count once the ledger names them.

        - `store` is a directory, s3://, gs:// or az://.
        - `sink_id` names this output and its ledger. Use one for each pipeline and never change it.
        - `format` is "parquet", or "jsonl.zst" for lines of JSON.
        - `partition_by` lists columns that become folders `name=value/`.
        - `tables` follow the ledger: DeltaTable() or IcebergTable(...) of holdfast.spark.tables.
          They need the format "parquet".
        """
        wanted = Output(
            store=store, sink_id=sink_id, format=format, partition_by=tuple(partition_by)
        )
        return replace(self, output=wanted, tables=tuple(tables))

    def start(
        self, checkpoint: str, *, trigger: Mapping[str, Any] | None = None, name: str | None = None
    ) -> Running:
        """Start the query and return it with its sink.

        `checkpoint` is the folder of Spark's checkpoint. `trigger` has the arguments of Spark's
        trigger, as in `{"availableNow": True}`; the default starts a micro-batch every second.
        `name` is the name of the query. Raises ConfigurationError if `to` was not called.
        """
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
