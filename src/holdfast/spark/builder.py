"""Pipelines in a few words: `pipeline(stream).dedup(...).to(...).start(...)`.

Owns the builder that users call. Each step gives a new Pipeline; nothing runs before start. Must
never decide anything that the ledger or the job decides.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from holdfast.errors import ConfigurationError
from holdfast.keyed_state.aggregates import Aggregate, AggregateSettings, Function
from holdfast.keyed_state.dedup import DedupSettings, LatePolicy
from holdfast.keyed_state.timers import TimerSettings
from holdfast.spark.checkpoint import open_checkpoint
from holdfast.spark.job import (
    BUCKETS_DEFAULT,
    Aggregation,
    Dedup,
    Job,
    Operation,
    Output,
    Timers,
)
from holdfast.spark.ledger_sink import Follower, LedgerSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")
_UNITS_MS = {
    ("ms", "millisecond", "milliseconds"): 1,
    ("s", "second", "seconds"): 1_000,
    ("m", "min", "minute", "minutes"): 60_000,
    ("h", "hour", "hours"): 3_600_000,
    ("d", "day", "days"): 86_400_000,
    ("w", "week", "weeks"): 604_800_000,
}


def duration_ms(text: str) -> int:
    """Milliseconds of "10 minutes", "24h", "1 day 6 hours"; the words are those of Spark."""
    total = 0.0
    position = 0
    lower = text.lower()
    for found in _DURATION.finditer(lower):
        unit = next((ms for names, ms in _UNITS_MS.items() if found[2] in names), None)
        if found.start() != position or unit is None:
            break
        total += float(found[1]) * unit
        position = found.end()
    if not lower or position != len(lower):
        raise ConfigurationError(f'{text!r} is no duration: write it as "10 minutes" or "24 hours"')
    return round(total)


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
        settings = DedupSettings(
            within_ms=duration_ms(within) if within is not None else None,
            lateness_ms=duration_ms(lateness) if lateness is not None else None,
            late=_late(late),
        )
        wanted = Dedup(by=_columns(by), settings=settings, event_time=event_time, buckets=buckets)
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
        functions = [function.value for function in Function]
        for name, (function, _) in aggregates.items():
            if function not in functions:
                raise ConfigurationError(
                    f"aggregate {name!r}: there is no {function!r}: use {', '.join(functions)}"
                )
        settings = AggregateSettings(
            key_columns=_columns(by),
            aggregates=tuple(
                Aggregate(name=name, function=Function(function), column=column)
                for name, (function, column) in aggregates.items()
            ),
            idle_ms=duration_ms(forget_after) if forget_after is not None else None,
            late=_late(late),
        )
        wanted = Aggregation(settings=settings, event_time=event_time, buckets=buckets)
        return self._with(wanted)

    def timers(
        self, by: str | Sequence[str], *, after: str, buckets: int = BUCKETS_DEFAULT
    ) -> "Pipeline":
        """One row for each key that had no event for `after` of wall-clock time, once.

        The rows have the key, `deadline` and `_entry`. Timers are looked at in each micro-batch;
        for micro-batches without records give the source the option tickInterval.
        """
        settings = TimerSettings(key_columns=_columns(by), after_ms=duration_ms(after))
        return self._with(Timers(settings=settings, buckets=buckets))

    def _with(self, operation: Operation) -> "Pipeline":
        if self.operation is not None:
            raise ConfigurationError(
                "a pipeline has one stateful step: land the first one's output, and read that with"
                " a second pipeline"
            )
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
        for table in self.tables:
            # A driver may have died between ledger and table, and no record may come for long.
            table.catch_up(sink.ledger())
        writer = self.stream.writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", checkpoint)
        if name is not None:
            writer = writer.queryName(name)
        writer = cast(Any, writer).trigger(**(trigger or {"processingTime": "1 second"}))
        return Running(query=writer.start(), sink=sink)


def _columns(by: str | Sequence[str]) -> tuple[str, ...]:
    return (by,) if isinstance(by, str) else tuple(by)


def _late(policy: str) -> LatePolicy:
    if policy not in ("keep", "divert"):
        raise ConfigurationError(f'late is {policy!r}: use "keep" or "divert"')
    return LatePolicy(policy)
