"""`python -m benchmarks.handoff`: what clients notice of a hand-off, three brokers of Holdfast
against three nodes of Apache Kafka with replication 3, interleaved and repeated.

A producer sends to every partition all the time and a consumer reads, while one broker is stopped
cleanly, and later killed. The producer's pause is the longest time between two acks of one
partition, minus the usual time; the consumer's is the longest time from a record's creation to its
arrival. Also measured: the latency of acks, and the puts of an idle and of a busy cluster.
A full run writes docs/reference/benchmarks-handoff.md and a JSON file under benchmarks/results.
"""

import argparse
import dataclasses
import itertools
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import OFFSET_END, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast_cluster import HoldfastCluster
from tests.peers.jars import PeerUnavailable
from tests.peers.kafka import KAFKA_DEFAULT_HEAP
from tests.peers.kafka_cluster import KafkaCluster
from tests.peers.process import wait_until
from tests.peers.seaweedfs import SeaweedFs

from benchmarks import report
from benchmarks.machine import describe_machine
from benchmarks.samples import FAILED, LATENCY, PAUSE, PUTS_BY_HOUR, Metric, Sample

PARTITIONS = 6
SEND_EVERY_S = 0.01
SETTLE_S = 5.0
RESTART_S = 12.0
"""How long a broker stays away: longer than the others need to notice."""
AFTER_S = 18.0
"""Long enough for the lanes to go back to it, which is one more hand-off."""
LATENCY_SENDS = 1_000
PUTS_SECONDS = 60.0
PUTS_SECONDS_BY_DISK = 240.0
"""Four times holdfast.flush.ms, so that the count holds whole flushes of each lane."""
DISK_WRITES = 60
BUSY_BYTES_PER_S = 1_000_000
Cluster = HoldfastCluster | KafkaCluster


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A cluster, and the settings of the topic that is measured."""

    name: str
    title: str
    open: Callable[[Path], Cluster]
    replication: int
    configs: dict[str, str]
    puts_seconds: float = PUTS_SECONDS


def _holdfast(folder: Path) -> Cluster:
    return HoldfastCluster(
        folder, lanes=PARTITIONS, arguments=["--spool", f"{folder}/spool-{{id}}"]
    )


class OnS3(HoldfastCluster):
    """Three brokers and the S3 server that they share."""

    def __init__(self, folder: Path) -> None:
        self._server = SeaweedFs(folder / "s3")
        super().__init__(
            folder,
            lanes=PARTITIONS,
            store=self._server.url("cluster"),
            variables=self._server.variables,
        )

    def start(self) -> "OnS3":
        self._server.start()
        super().start()
        return self

    def stop(self) -> None:
        super().stop()
        self._server.stop()


def _kafka(folder: Path) -> Cluster:
    return KafkaCluster(folder, jvm_options=KAFKA_DEFAULT_HEAP)


VARIANTS = (
    Variant(
        name="kafka",
        title="three Apache Kafka nodes (KRaft), replication factor 3, acks=all",
        open=_kafka,
        replication=3,
        configs={},
    ),
    Variant(
        name="holdfast-store",
        title="three Holdfast brokers on one directory, acks from the store",
        open=_holdfast,
        replication=1,
        configs={},
    ),
    Variant(
        name="holdfast-disk",
        title="the same with `holdfast.ack=disk`: acks from the broker's local disk",
        open=_holdfast,
        replication=1,
        configs={"holdfast.ack": "disk"},
        puts_seconds=PUTS_SECONDS_BY_DISK,
    ),
    Variant(
        name="holdfast-s3",
        title="three Holdfast brokers on an S3 server (SeaweedFS, on the same cores), acks from the"
        " store. `holdfast serve` gathers records for longer there, since each PUT costs money",
        open=OnS3,
        replication=1,
        configs={},
    ),
)
COMPARED = report.Compared(
    titles={variant.name: variant.title for variant in VARIANTS},
    ratios=(
        ("holdfast-store", "kafka"),
        ("holdfast-disk", "kafka"),
        ("holdfast-s3", "kafka"),
    ),
)
INTRODUCTION = """\
# Benchmarks of hand-offs

How long a producer and a consumer (librdkafka) wait when one of three brokers is stopped cleanly
("planned") or killed ("crash"). `make bench-handoff` writes this page; do not edit it. [How to
run the benchmarks](../how-to/run-the-benchmarks.md#hand-offs) explains each row.

Each cell is the median of the repeats; the lowest and the highest value are in brackets. The
clusters took turns on the same machine and each ran alone; its three brokers and both clients
shared the cores.

- The broker comes back after 12 s. With `holdfast.ack=disk` and no unclean leader election, its
  partitions wait for it: their newest records may be on its disk only.
- Pauses are measured until 18 s after the broker is back. In that time Holdfast hands partitions
  back to it, which is a second hand-off. Kafka does this after five minutes by default, which is
  not measured here.
- PUTs are counted once, for one minute; for four minutes with `holdfast.ack=disk`, where data
  goes to the store after 64 MiB or one minute.
"""
Value = tuple[Metric, str, float]


class Watched:
    """One producer and one consumer on every partition, and when each heard what."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acks: list[list[float]] = [[] for _ in range(PARTITIONS)]
        self.delays: list[tuple[float, float]] = []
        """When a record came, and how long after its creation."""
        self.failed: list[KafkaError] = []
        self._bootstrap = bootstrap
        self._topic = topic
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._produce),
            threading.Thread(target=self._consume),
        ]

    def __enter__(self) -> "Watched":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.acks[message.partition() or 0].append(time.monotonic())

    def _produce(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "linger.ms": 0, "enable.idempotence": True}
        )
        while not self._stopping.is_set():
            for partition in range(PARTITIONS):
                value = repr(time.monotonic()).encode()
                producer.produce(self._topic, value, partition=partition, on_delivery=self._told)
            producer.poll(SEND_EVERY_S)
        producer.flush(60)

    def _consume(self) -> None:
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "none", "fetch.wait.max.ms": 50}
        )
        consumer.assign([TopicPartition(self._topic, n, OFFSET_END) for n in range(PARTITIONS)])
        while not self._stopping.is_set():
            for message in consumer.consume(500, timeout=0.1):
                if message.error() is None:
                    now = time.monotonic()
                    self.delays.append((now, now - float(message.value() or b"0")))
        consumer.close()

    def producer_pause(self, since: float, until: float) -> float:
        """The longest time without an ack, over all partitions."""
        pauses: list[float] = []
        for acks in self.acks:
            later = [*(at for at in acks if since - 1 <= at <= until), until]
            pauses += [after - before for before, after in itertools.pairwise(later)]
        return max(pauses)

    def consumer_pause(self, since: float) -> float:
        return max(delay for at, delay in self.delays if at >= since)


def hand_off(cluster: Cluster, topic: str, how: str) -> list[Value]:
    """Let one broker go that leads something, and say what clients noticed."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    leader = admin.list_topics(topic, timeout=30).topics[topic].partitions[0].leader
    with Watched(cluster.bootstrap, topic) as watched:
        time.sleep(SETTLE_S)
        now = time.monotonic()
        usual = watched.producer_pause(now - SETTLE_S / 2, now)
        begun = time.monotonic()
        broker = cluster.brokers[leader]
        if how == "planned":
            broker.stop()
        else:
            broker.kill()
        time.sleep(RESTART_S)
        broker.start()
        time.sleep(AFTER_S)
        ended = time.monotonic()
    time.sleep(SETTLE_S)
    pause = max(0.0, watched.producer_pause(begun, ended) - usual)
    return [
        (PAUSE, f"{how}, producer", pause * 1000),
        (PAUSE, f"{how}, consumer", watched.consumer_pause(begun) * 1000),
        (FAILED, how, float(len(watched.failed))),
    ]


def ack_latency(cluster: Cluster, topic: str) -> list[Value]:
    """One record after the other, each waited for."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "acks": "all"})
    times: list[float] = []
    payload = b"x" * 1_000
    for number in range(LATENCY_SENDS + 100):
        done = threading.Event()
        begun = time.perf_counter()
        producer.produce(
            topic, payload, partition=number % PARTITIONS, on_delivery=lambda *_, d=done: d.set()
        )
        while not done.is_set():
            producer.poll(0.01)
        if number >= 100:
            times.append((time.perf_counter() - begun) * 1000)
    cuts = statistics.quantiles(times, n=100)
    row = "one record of 1,000 B after the other"
    return [(LATENCY, f"{row}: p50", cuts[49]), (LATENCY, f"{row}: p99", cuts[98])]


def puts(cluster: HoldfastCluster, topic: str, seconds: float) -> list[Value]:
    """Puts to the store of a cluster with nothing to do, and at 1 MB/s; by the hour."""

    def count() -> float:
        return sum(
            broker.metric("holdfast_store_requests_total", operation="create")
            for broker in cluster.brokers.values()
        )

    before = count()
    time.sleep(seconds)
    idle = count() - before
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
    begun, before = time.monotonic(), count()
    sent = 0
    while (elapsed := time.monotonic() - begun) < seconds:
        while sent < elapsed * BUSY_BYTES_PER_S:
            producer.produce(topic, b"x" * 1_000, partition=(sent // 1_000) % PARTITIONS)
            sent += 1_000
        producer.poll(0.005)
    producer.flush(30)
    busy = count() - before
    scale = 3600 / seconds
    return [(PUTS_BY_HOUR, "idle", idle * scale), (PUTS_BY_HOUR, "at 1 MB/s", busy * scale)]


def measure(variant: Variant, folder: Path, number: int) -> list[Value]:
    cluster = variant.open(folder)
    cluster.start()
    try:
        topic = f"measured-{number}"
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        new = NewTopic(topic, PARTITIONS, variant.replication, config=variant.configs)
        admin.create_topics([new])[topic].result(60)
        wait_until(
            lambda: _leaders(admin, topic) == set(cluster.brokers),
            seconds_max=60,
            what="every broker leads a partition",
        )
        found = ack_latency(cluster, topic)
        found += hand_off(cluster, topic, "planned")
        found += hand_off(cluster, topic, "crash")
        if isinstance(cluster, HoldfastCluster) and number == 0:  # a count, not a time
            found += puts(cluster, topic, variant.puts_seconds)
        return found
    finally:
        cluster.stop()


def _leaders(admin: AdminClient, topic: str) -> set[int]:
    partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
    return {partition.leader for partition in partitions.values()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.handoff", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="variants whose name has this in it")
    options = parser.parse_args()
    samples: list[Sample] = []
    chosen = [variant for variant in VARIANTS if options.only in variant.name]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        machine = describe_machine(folder, disk_writes=DISK_WRITES)
        for number in range(options.repeats):
            for variant in chosen:
                try:
                    values = measure(variant, folder / f"{variant.name}-{number}", number)
                except PeerUnavailable as unavailable:
                    print(f"not run: {unavailable}")
                    return 2
                for metric, row, value in values:
                    print(f"{variant.name:16} {value:12.1f} {metric.unit:9} {metric.name}, {row}")
                    samples.append(
                        Sample(metric=metric, row=row, variant=variant.name, value=value)
                    )
                sys.stdout.flush()
    page = report.markdown(INTRODUCTION, machine, samples, [], options.repeats, COMPARED)
    print(page)
    if len(chosen) == len(VARIANTS):
        result = report.as_json(machine, samples, [], options.repeats)
        stem = f"handoff-{machine.date}-{machine.commit}"
        report.keep(machine, "benchmarks-handoff", page, stem, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
