"""The sink into topics as chaos runs it: held at a step of its commit when it is told to.

Owns the way to aim: whoever writes a step's name into the file `hold` finds, in the file `at`, the
process that has come to it and waits there. Everything else is the product's own, but for planted
bugs, which the checker must find.
"""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.spark_driver import Plan

from holdfast.spark.source.data_source import HoldfastSource
from holdfast.spark.topic import commit as topic_commit
from holdfast.spark.topic.position import WriteRecords
from holdfast.spark.topic.sink import TopicStreamWriter, topic_options

AIM = "aim"
VARIANT = "variant"
TASK = "task"
BLIND = "blind"
"""Writes each micro-batch without asking whether it is there."""


class AimedSource(HoldfastSource):
    """`format("holdfast-aimed")`."""

    @classmethod
    def name(cls) -> str:
        return "holdfast-aimed"

    def streamWriter(self, schema: Any, overwrite: bool) -> "AimedWriter":
        given = dict(self.options)
        folder, variant = Path(given.pop(AIM)), given.pop(VARIANT)
        options = topic_options(given, schema, overwrite=overwrite)
        return AimedWriter(options, folder, variant)


class AimedWriter(TopicStreamWriter):
    def __init__(self, options: Any, folder: Path, variant: str) -> None:
        super().__init__(options)
        self._folder = folder
        self._variant = variant

    def write(self, iterator: Iterator[Any]) -> Any:
        self.at(TASK)
        return super().write(iterator)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        if self._variant == BLIND:
            topic_commit.decide = lambda *_, **__: WriteRecords()
        super().commit(messages, batchId)

    def at(self, step: str) -> None:
        hold, seen = self._folder / "hold", self._folder / "at"
        while _text(hold) == step:
            if not seen.exists():
                unfinished = self._folder / f"at-{os.getpid()}"
                unfinished.write_text(str(os.getpid()))
                unfinished.rename(seen)
            time.sleep(0.002)


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None


def start_topic_query(spark: Any, plan: Plan) -> Any:
    """From a topic into another: each record becomes one that names its place in the source."""
    spark.dataSource.register(AimedSource)
    reader = spark.readStream.format("holdfast").option("subscribe", plan.topic)
    if plan.store:
        reader = reader.option("store", plan.store)
    reader = reader.option("kafka.bootstrap.servers", plan.bootstrap)
    reader = reader.option("commitGroupId", f"{plan.topic}-lag")
    reader = reader.option("startingOffsets", plan.starting)
    rows = reader.option("maxOffsetsPerTrigger", plan.offsets_max).load()
    rows = rows.selectExpr("cast(partition as string) key", "concat(partition, '-', offset) value")
    writer = rows.writeStream.format("holdfast-aimed")
    options = {
        AIM: plan.lake,
        VARIANT: plan.variant,
        "kafka.bootstrap.servers": plan.bootstrap,
        "sinkId": plan.sink_id,
        "topic": plan.output,
        "checkpointLocation": plan.checkpoint,
    }
    return writer.options(**options).trigger(processingTime="100 milliseconds").start()
