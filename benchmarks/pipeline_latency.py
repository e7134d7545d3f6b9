"""End-to-end latency: records at a steady rate, from the producer's clock to visible in the sink.

A producer of its own process stamps each record as it hands it over; every record that a sink
published is then found in its files, with the time since which its commit is there.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from confluent_kafka import Producer

from benchmarks.librdkafka_client import create_topic
from benchmarks.pipeline_data import PARTITIONS
from benchmarks.pipeline_spark import (
    OURS,
    SINK_ID,
    FileSinkCommits,
    FolderCommits,
    LedgerCommits,
    stream,
)
from benchmarks.pipeline_work import STOCK_EACH, STOCK_FILES, STORE_RANGES, Work
from holdfast.spark import pipeline

RECORDS_PER_SECOND = 1_000
WARM_UP_SECONDS = 12
VISIBLE_SECONDS_MAX = 60.0


class NotAllVisible(Exception):
    """Records were produced and never came out."""


def measure(spark: Any, work: Work) -> dict[str, float]:
    """p50 and p99 in milliseconds."""
    topic = f"latency-{Path(work.folder).name}"
    broker = work.holdfast if work.variant == STORE_RANGES.name else work.kafka
    create_topic(broker, topic, PARTITIONS)
    commits, query = _start(spark, work, topic)
    seconds = WARM_UP_SECONDS + work.seconds
    sent = RECORDS_PER_SECOND * seconds
    subprocess.run(
        [sys.executable, "-m", "benchmarks.pipeline_latency", broker, topic, str(seconds)],
        check=True,
        timeout=seconds + 60,
    )
    deadline = time.monotonic() + VISIBLE_SECONDS_MAX
    while (there := _rows(commits)) < sent:
        if time.monotonic() > deadline:
            raise NotAllVisible(f"{there} of {sent} records after {VISIBLE_SECONDS_MAX} s")
        time.sleep(0.5)
    query.stop()
    taken = np.concatenate(
        [_latencies_ms(at, path) for at, paths in commits.files() for path in paths]
    )
    order = np.argsort(taken[:, 0])
    measured = taken[order][RECORDS_PER_SECOND * WARM_UP_SECONDS :, 1]
    return {
        "p50 ms": float(np.percentile(measured, 50)),
        "p99 ms": float(np.percentile(measured, 99)),
    }


def _start(spark: Any, work: Work, topic: str) -> tuple[Any, Any]:
    lake, checkpoint = f"{work.folder}/lake", f"{work.folder}/checkpoint"
    frame = stream(spark, work, {}, topic=topic)
    trigger = {"processingTime": "1 second"}
    if work.variant in OURS:
        made = pipeline(frame).to(lake, sink_id=SINK_ID)
        return LedgerCommits(Path(lake)), made.start(checkpoint, trigger=trigger).query
    writer = frame.writeStream.option("checkpointLocation", checkpoint).trigger(**trigger)
    if work.variant == STOCK_FILES.name:
        return FileSinkCommits(Path(lake)), writer.format("parquet").start(lake)
    assert work.variant == STOCK_EACH.name

    def write(batch: Any, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{lake}/{number}")

    return FolderCommits(Path(lake)), writer.foreachBatch(write).start()


def _rows(commits: Any) -> int:
    return sum(pq.read_metadata(path).num_rows for _, paths in commits.files() for path in paths)


def _latencies_ms(visible_at: float, path: Path) -> np.ndarray:
    """For each row, when it was produced, and how long after that it was visible."""
    times = pq.read_table(path, columns=["timestamp"]).column(0).cast("int64").to_numpy()
    produced_ms = times / _units_per_ms(path)
    return np.stack([produced_ms, visible_at * 1000 - produced_ms], axis=1)


def _units_per_ms(path: Path) -> int:
    unit = pq.read_schema(path).field("timestamp").type.unit
    return {"ms": 1, "us": 1_000, "ns": 1_000_000}[unit]


def main() -> None:
    """The producer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("seconds", type=int)
    arguments = parser.parse_args()
    producer = Producer({"bootstrap.servers": arguments.bootstrap, "linger.ms": 5, "log_level": 3})
    value = b"x" * 125
    begun = time.monotonic()
    for number in range(RECORDS_PER_SECOND * arguments.seconds):
        behind = begun + number / RECORDS_PER_SECOND - time.monotonic()
        if behind > 0:
            time.sleep(behind)
        now_ms = int(time.time() * 1000)
        producer.produce(
            arguments.topic, value, b"k%d" % number, number % PARTITIONS, timestamp=now_ms
        )
        producer.poll(0)
    if producer.flush(30):
        sys.exit("records without an answer")


if __name__ == "__main__":
    main()
