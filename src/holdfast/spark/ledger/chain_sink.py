"""Lands one micro-batch on the landing chains: each partition's records, in order, as they are.

The driver's part is a foreachBatch function for a source with rows="ranges": it hands each
partition's ranges, in order, to one task. The tasks read and land them, so rows never pass through
the JVM. The objects themselves are the only commit: a micro-batch that runs again, a zombie or a
second driver finds what has landed and continues after it. Must never give parts of one partition
to two tasks: a chain grows at its end only.
"""

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.columnar.arrow import pa
from holdfast.errors import StopError
from holdfast.landing import blocking
from holdfast.landing.chain import Chain, NotLanded
from holdfast.landing.formats.interface import Format
from holdfast.landing.formats.jsonl import JsonLines
from holdfast.landing.formats.parquet import Parquet
from holdfast.landing.keys import DEFAULT_TEMPLATE, KeyTemplate
from holdfast.landing.packing import ObjectBounds
from holdfast.spark.ledger.tasks import REPORT_SCHEMA, REPORT_TEXT
from holdfast.spark.runtime.worker import worker
from holdfast.spark.source.inputs import LeftOut, Range, read_range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WORK_TEXT = "task int, ranges binary"
LANDING_DEADLINE_S = 300.0
LAYOUTS = ("parquet", "jsonl.zst", "jsonl.zst/envelope")


class LandingRefused(StopError):
    """A chain does not take these records; the message names the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainLanding:
    """Where and how topics land on chains."""

    store: str
    format: str = "parquet"
    template: str = DEFAULT_TEMPLATE
    object_bytes_max: int = 64 * 1024 * 1024
    cover_hole: bool = False
    """True if records that are gone from the log may be skipped (failOnDataLoss=false)."""

    def __post_init__(self) -> None:
        self.file_format()
        KeyTemplate(self.template)

    def file_format(self) -> Format:
        if self.format == "parquet":
            return Parquet()
        if self.format == "jsonl.zst/envelope":
            return JsonLines("envelope")
        return JsonLines("value", wrap_unfit=True)


class LandedReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one task did with the ranges of one partition."""

    topic: str
    partition: int
    created: int
    found: int
    records: int
    next_offset: int
    unreadable: int = 0
    """Records that were left out because their record batch cannot be read."""


class ChainSink:
    """The foreachBatch function, with the totals of what it has done so far."""

    def __init__(self, landing: ChainLanding) -> None:
        self.landing = landing
        self.totals: dict[str, int] = {"records": 0, "objects": 0, "found": 0, "unreadable": 0}

    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        ranges = [cast(Range, pickle.loads(bytes(row[0]))) for row in frame.collect()]
        for report in land_ranges(frame.sparkSession, ranges, self.landing):
            self.totals["records"] += report.records
            self.totals["objects"] += report.created
            self.totals["found"] += report.found
            self.totals["unreadable"] += report.unreadable


def land_ranges(spark: Any, ranges: Iterable[Range], landing: ChainLanding) -> list[LandedReport]:
    """Land ranges, with one task for each partition."""
    groups: dict[tuple[str, int], list[Range]] = {}
    for wanted in ranges:
        groups.setdefault((wanted.topic, wanted.partition), []).append(wanted)
    if not groups:
        return []
    rows = [
        (i, pickle.dumps(sorted(group, key=lambda wanted: wanted.start_offset)))
        for i, group in enumerate(groups.values())
    ]
    work = spark.createDataFrame(rows, WORK_TEXT).repartitionById(len(rows), "task")
    done = work.mapInArrow(partial(_land_in_task, landing), REPORT_TEXT).collect()
    return [msgspec.msgpack.decode(bytes(row[0]), type=LandedReport) for row in done]


def _land_in_task(landing: ChainLanding, batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        for pickled in batch.column(1).to_pylist():
            body = msgspec.msgpack.encode(_land(landing, pickle.loads(pickled)))
            yield pa.RecordBatch.from_arrays([pa.array([body], pa.binary())], schema=REPORT_SCHEMA)


def _land(landing: ChainLanding, ranges: list[Range]) -> LandedReport:
    here = worker()
    first, last = ranges[0], ranges[-1]
    chain = Chain(
        here.writable(landing.store),
        first.topic,
        first.partition,
        format=landing.file_format(),
        environment=here.environment,
        template=KeyTemplate(landing.template),
    )
    left_out = LeftOut()
    # In a separate event loop, because reading the ranges waits for the worker's loop.
    outcome = blocking.run(
        chain.land(
            (batch for wanted in ranges for batch in read_range(wanted, None, left_out)),
            start_offset=first.start_offset,
            end_offset=last.end_offset,
            bounds=ObjectBounds(bytes_max=landing.object_bytes_max),
            cover_hole=landing.cover_hole,
            deadline_seconds=LANDING_DEADLINE_S,
        )
    )
    if isinstance(outcome, NotLanded):
        raise LandingRefused(outcome.reason)
    return LandedReport(
        topic=first.topic,
        partition=first.partition,
        created=len(outcome.created),
        found=len(outcome.found),
        records=sum(facts.records for facts in outcome.created),
        next_offset=outcome.next_offset,
        unreadable=left_out.offsets,
    )
