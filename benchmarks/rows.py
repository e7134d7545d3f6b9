"""The rows of the broker benchmark: what is done to a running broker, and what is counted.

Broker CPU is the process's user and system time over the row, per GB of record values; client and
broker share the machine, so throughput alone would show mostly the client.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.peers.holdfast import HoldfastBroker
from tests.peers.process import wait_until

from benchmarks import java_client, librdkafka_client
from benchmarks.samples import (
    BROKER_CPU,
    FILES,
    LATENCY,
    PUTS,
    START_UP,
    THROUGHPUT,
    Metric,
    Sample,
)
from benchmarks.session import WARM_UP, Row
from benchmarks.variants import Broker, Variant

PARTITIONS = 6
LATENCY_RECORDS_PER_SECOND = 1_000
START_SECONDS_MAX = 180.0
GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much work a run does; the bounds keep a slow broker from taking all day."""

    bytes_max: int
    seconds_max: float
    latency_seconds: int
    start_up_bytes: int
    disk_writes: int
    shapes: tuple["Shape", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    record_bytes: int
    codec: str

    @property
    def name(self) -> str:
        size = "1 KiB" if self.record_bytes == 1024 else f"{self.record_bytes} B"
        return size if self.codec == "none" else f"{size} {self.codec}"


SHAPES = tuple(Shape(record_bytes=b, codec=c) for b in (100, 1024) for c in ("none", "lz4"))

FULL = Sizes(
    bytes_max=300_000_000,
    seconds_max=4.0,
    latency_seconds=8,
    start_up_bytes=2_000_000_000,
    disk_writes=60,
    shapes=SHAPES,
)
QUICK = Sizes(
    bytes_max=20_000_000,
    seconds_max=1.0,
    latency_seconds=2,
    start_up_bytes=100_000_000,
    disk_writes=10,
    shapes=(SHAPES[0], SHAPES[3]),
)


class NewFiles:
    """The files that appeared in a folder since this object was made.

    Names are compared, not totals: the broker deletes lane objects of earlier rows about a minute
    after it rewrote them, so a difference of totals can be negative.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = self._names()

    def count(self) -> int:
        return len(self._names() - self._before)

    def _names(self) -> set[Path]:
        return {path for path in self._folder.rglob("*") if path.is_file()}


class Counters:
    """What a broker has used since the row began."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._cpu_seconds = broker.process.cpu_seconds()
        self._puts = self._put_count()
        self._files = self._new_files()

    def per_gb(self, payload_bytes: float) -> Iterator[tuple[Metric, float]]:
        cpu_seconds = self._broker.process.cpu_seconds() - self._cpu_seconds
        yield BROKER_CPU, cpu_seconds / (payload_bytes / GB)
        if isinstance(self._broker, HoldfastBroker):
            yield PUTS, (self._put_count() - self._puts) / (payload_bytes / GB)
            if self._files is not None:
                yield FILES, self._files.count() / (payload_bytes / GB)

    def _put_count(self) -> float:
        if not isinstance(self._broker, HoldfastBroker):
            return 0.0
        return self._broker.metric("holdfast_store_requests_total", operation="create")

    def _new_files(self) -> NewFiles | None:
        if not isinstance(self._broker, HoldfastBroker) or "://" in self._broker.store:
            return None
        return NewFiles(Path(self._broker.store))


class Workload:
    """All rows of one variant in one repeat, on one running broker."""

    def __init__(
        self, variant: Variant, broker: Broker, sizes: Sizes, java_records: dict[str, int]
    ) -> None:
        """The numbers of records that the Java tool sends are found once and kept in the dict."""
        self._variant = variant
        self._java_records = java_records
        self._broker = broker
        self._sizes = sizes
        self._bootstrap = broker.bootstrap

    def rows(self) -> list[tuple[str, Row]]:
        """Each row by name; the first warms the broker up and measures nothing."""
        named: list[tuple[str, Row]] = [(WARM_UP, self._warm_up)]
        for shape in self._sizes.shapes:
            named.append((f"librdkafka {shape.name}", lambda s=shape: self._librdkafka(s)))
            named.append((f"Java {shape.name}", lambda s=shape: self._java(s)))
        named.append(("Java at 1,000 records/s", self._latency))
        return named

    def _sample(self, metric: Metric, row: str, value: float) -> Sample:
        return Sample(metric=metric, row=row, variant=self._variant.name, value=value)

    def _topic(self, name: str) -> str:
        topic = name.replace(" ", "-").replace(",", "").replace("/", "-")
        librdkafka_client.create_topic(self._bootstrap, topic, PARTITIONS)
        return topic

    def _measured(self, row: str, work: Callable[[], tuple[float, float]]) -> Iterator[Sample]:
        """Work returns its payload bytes and its bytes per second."""
        counters = Counters(self._broker)
        payload_bytes, bytes_per_second = work()
        yield self._sample(THROUGHPUT, row, bytes_per_second / 1e6)
        for metric, value in counters.per_gb(payload_bytes):
            if row.startswith(("librdkafka consume", "Java consume")) and metric in (PUTS, FILES):
                continue
            yield self._sample(metric, row, value)

    def _warm_up(self) -> Iterator[Sample]:
        """Every kind of work once, unmeasured, so that a JVM is not measured while it compiles."""
        for shape in self._sizes.shapes:
            topic = self._topic(f"warm-up {shape.name}")
            run = librdkafka_client.produce(
                self._bootstrap,
                topic,
                partitions=PARTITIONS,
                record_bytes=shape.record_bytes,
                codec=shape.codec,
                records_max=self._sizes.bytes_max // shape.record_bytes,
                seconds_max=self._sizes.seconds_max,
            )
            librdkafka_client.consume(
                self._bootstrap, topic, partitions=PARTITIONS, records=run.records
            )
        return iter(())

    def _librdkafka(self, shape: Shape) -> Iterator[Sample]:
        topic = self._topic(f"librdkafka {shape.name}")
        records = 0

        def produce() -> tuple[float, float]:
            nonlocal records
            run = librdkafka_client.produce(
                self._bootstrap,
                topic,
                partitions=PARTITIONS,
                record_bytes=shape.record_bytes,
                codec=shape.codec,
                records_max=self._sizes.bytes_max // shape.record_bytes,
                seconds_max=self._sizes.seconds_max,
            )
            records = run.records
            payload_bytes = run.records * shape.record_bytes
            return payload_bytes, payload_bytes / run.seconds

        def consume() -> tuple[float, float]:
            run = librdkafka_client.consume(
                self._bootstrap, topic, partitions=PARTITIONS, records=records
            )
            payload_bytes = run.records * shape.record_bytes
            return payload_bytes, payload_bytes / run.seconds

        yield from self._measured(f"librdkafka produce {shape.name}", produce)
        yield from self._measured(f"librdkafka consume {shape.name}", consume)

    def _java(self, shape: Shape) -> Iterator[Sample]:
        topic = self._topic(f"java {shape.name}")
        records = self._records_in_time(shape)
        payload_bytes = records * shape.record_bytes

        def produce() -> tuple[float, float]:
            produced = java_client.produce(
                self._bootstrap,
                topic,
                records=records,
                record_bytes=shape.record_bytes,
                codec=shape.codec,
                warm_up_records=records // 4,
            )
            return payload_bytes, produced.records_per_second * shape.record_bytes

        def consume() -> tuple[float, float]:
            bytes_per_second = java_client.consume(
                self._bootstrap, topic, partitions=PARTITIONS, records=records
            )
            return payload_bytes, bytes_per_second

        yield from self._measured(f"Java produce {shape.name}", produce)
        yield from self._measured(f"Java consume {shape.name}", consume)

    def _records_in_time(self, shape: Shape) -> int:
        """As many as the time allows, by a short trial: Kafka's tool counts records, not time."""
        key = f"{self._variant.name} {shape.name}"
        if key not in self._java_records:
            trial_records = self._sizes.bytes_max // 8 // shape.record_bytes
            trial = java_client.produce(
                self._bootstrap,
                self._topic(f"java trial {shape.name}"),
                records=trial_records,
                record_bytes=shape.record_bytes,
                codec=shape.codec,
                warm_up_records=trial_records // 2,
            )
            # The trial is still part of the client's warm-up: the true rate is far higher.
            possible = int(trial.records_per_second * self._sizes.seconds_max * 3)
            records_max = self._sizes.bytes_max // shape.record_bytes
            self._java_records[key] = max(trial_records, min(possible, records_max))
        return self._java_records[key]

    def _latency(self) -> Iterator[Sample]:
        row = "Java at 1,000 records/s, 1 KiB"
        topic = self._topic("latency")
        counters = Counters(self._broker)
        records = LATENCY_RECORDS_PER_SECOND * (self._sizes.latency_seconds + 2)
        produced = java_client.produce(
            self._bootstrap,
            topic,
            records=records,
            record_bytes=1024,
            records_per_second=LATENCY_RECORDS_PER_SECOND,
            warm_up_records=2 * LATENCY_RECORDS_PER_SECOND,
        )
        yield self._sample(LATENCY, f"{row}: p50", produced.p50_ms)
        yield self._sample(LATENCY, f"{row}: p99", produced.p99_ms)
        for metric, value in counters.per_gb(records * 1024):
            yield self._sample(metric, row, value)


def start_up(variant: Variant, folder: Path, sizes: Sizes) -> Iterator[Sample]:
    """How long until a broker with a large log names its latest offsets again."""
    broker = variant.open(folder)
    topic = "start-up"
    broker.start()
    try:
        librdkafka_client.create_topic(broker.bootstrap, topic, PARTITIONS)
        total = sizes.start_up_bytes // 1024
        written = 0
        while written < total:
            written += _append(broker, topic, min(total - written, 500_000))
        broker.stop()
        clean = _timed_start(broker, topic, written)
        # A log that was not touched since its clean start would be easy to recover.
        written += _append(broker, topic, 10_000)
        broker.kill()
        killed = _timed_start(broker, topic, written)
    finally:
        broker.stop()
    size = f"{sizes.start_up_bytes / GB:g} GB of log"
    for row, seconds in ((f"{size}, clean stop", clean), (f"{size}, SIGKILL", killed)):
        yield Sample(metric=START_UP, row=row, variant=variant.name, value=seconds)


def _append(broker: Broker, topic: str, records: int) -> int:
    return librdkafka_client.produce(
        broker.bootstrap,
        topic,
        partitions=PARTITIONS,
        record_bytes=1024,
        codec="none",
        records_max=records,
        seconds_max=START_SECONDS_MAX,
    ).records


def _timed_start(broker: Broker, topic: str, expected: int) -> float:
    begun = time.monotonic()
    broker.start()
    wait_until(
        lambda: librdkafka_client.latest_offsets(broker.bootstrap, topic, PARTITIONS) == expected,
        seconds_max=START_SECONDS_MAX,
        what=f"{broker.name} names {expected} records",
    )
    return time.monotonic() - begun
