"""What one process of the pipeline benchmark is asked to do, and what it answers.

Pure. Owns the names of the variants and the two messages between the processes.
"""

from dataclasses import dataclass

import msgspec

RESULT = "RESULT "
"""A line of a child's output that begins so is a Result."""
MARK = "MARK "
"""A line that says how far a child is."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One variant of one row."""

    row: str
    variant: str
    folder: str
    """For checkpoint and output; the process is the only one there."""
    store: str
    holdfast: str
    kafka: str
    topic: str
    ids: int
    """Distinct keys of the topic: what a dedup must leave."""
    brokers: list[int]
    """Processes whose CPU time is part of the work."""
    records: int
    warm_up: int
    per_trigger: int
    seconds: int
    """Of the measured part, where the row is about time and not about rows."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One measured value."""

    row: str
    metric: str
    value: float
    other_cores: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What is compared."""

    name: str
    title: str
    uses: str = "none"
    """Whose broker works while it runs: kafka, holdfast or none."""


STORE = Variant(name="holdfast-store", title='`format("holdfast")` straight from the store')
STORE_RANGES = Variant(
    name="holdfast-store-ranges",
    title='`holdfast-store` with rows="ranges": rows do not pass through the JVM',
)
KAFKA_OF_HOLDFAST = Variant(
    name="holdfast-kafka-from-holdfast",
    title='`format("holdfast")` with kafka.bootstrap.servers, from a Holdfast broker',
    uses="holdfast",
)
KAFKA_OF_KAFKA = Variant(
    name="holdfast-kafka-from-kafka",
    title='`format("holdfast")` with kafka.bootstrap.servers, from Apache Kafka',
    uses="kafka",
)
KAFKA_RANGES = Variant(
    name="holdfast-kafka-ranges",
    title='`holdfast-kafka-from-kafka` with rows="ranges"',
    uses="kafka",
)
STOCK = Variant(
    name="stock",
    title="Spark's own Kafka source with its defaults, from Apache Kafka",
    uses="kafka",
)
STOCK_TUNED = Variant(
    name="stock-10000", title="`stock` with kafka.max.poll.records=10000", uses="kafka"
)
SPARK = Variant(
    name="spark-rocksdb",
    title="Spark's dedup operator on RocksDB, changelog on, row tracking off; source `stock-10000`",
    uses="kafka",
)
SPARK_TRACKED = Variant(
    name="spark-rocksdb-tracked",
    title="`spark-rocksdb` with row tracking on, Spark's default",
    uses="kafka",
)
STREAMS = Variant(
    name="kafka-streams",
    title="Kafka Streams, exactly_once_v2, RocksDB with changelog, two threads, into a topic",
    uses="kafka",
)
STOCK_FILES = Variant(
    name="stock-files", title="Spark's own source and its own Parquet sink", uses="kafka"
)
STOCK_EACH = Variant(
    name="stock-foreach",
    title="Spark's own source, foreachBatch and one Parquet folder per micro-batch",
    uses="kafka",
)

BACKFILL = "backfill"
DEDUP_EVER = "dedup for ever"
DEDUP_WINDOW = "dedup within 10 minutes"
LATENCY = "latency at a 1 s trigger"
RECOVERY = "recovery"

ROWS: dict[str, tuple[Variant, ...]] = {
    BACKFILL: (STORE, KAFKA_OF_HOLDFAST, KAFKA_OF_KAFKA, STOCK, STOCK_TUNED),
    DEDUP_EVER: (STORE_RANGES, STORE, KAFKA_RANGES, SPARK, STREAMS),
    DEDUP_WINDOW: (STORE_RANGES, STORE, KAFKA_RANGES, SPARK, SPARK_TRACKED, STREAMS),
    LATENCY: (STORE_RANGES, KAFKA_RANGES, STOCK_FILES, STOCK_EACH),
    RECOVERY: (STORE_RANGES, SPARK),
}
WINDOW = "10 minutes"
WINDOW_MS = 600_000
RECOVERY_WINDOW = "2 hours"


def all_variants() -> list[Variant]:
    return list({variant.name: variant for row in ROWS.values() for variant in row}.values())
