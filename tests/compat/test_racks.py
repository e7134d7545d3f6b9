"""Three brokers in three racks, and a consumer in one of them (KIP-392), by librdkafka: it reads
from the broker of its rack, only what is durable, and goes on where that broker dies."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast_cluster import HoldfastCluster
from tests.peers.process import wait_until
from tests.support.load import PARTITIONS, SECONDS_MAX, Load, check, leaders, read

NEAR = 2
STATISTICS_MS = 200
NEAR_TRIES_MAX = 5


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[HoldfastCluster]:
    arguments = ["--rack", "rack-{id}", "--claim-valid-ms", "2000"]
    cluster = HoldfastCluster(tmp_path, arguments=arguments)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


class NearReader:
    """A consumer in a rack, in a thread: what it has read, and from whom."""

    def __init__(self, cluster: HoldfastCluster, topic: str, rack: str) -> None:
        self.seen: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        """Values by partition, in the order of their coming."""
        self.gaps: list[str] = []
        self.asked: dict[int, int] = {}
        """Fetches, by the broker."""
        self.read_from: set[int] = set()
        """The brokers that partitions are read from now."""
        self._topic = topic
        self._stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "not-used",
                "client.rack": rack,
                "fetch.wait.max.ms": 100,
                "statistics.interval.ms": STATISTICS_MS,
                "stats_cb": self._told,
            }
        )
        self._thread = threading.Thread(target=self._run)

    @property
    def count(self) -> int:
        return sum(map(len, self.seen.values()))

    def __enter__(self) -> "NearReader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def until_read(self, more: int) -> None:
        wanted = self.count + more
        wait_until(
            lambda: self.count >= wanted,
            seconds_max=SECONDS_MAX,
            what=f"{more} more records are read, of {self.count}; from {self.read_from}",
        )

    def until_read_near(self, more: int) -> None:
        """More records are read while no other broker is asked. A lane may still move at first,
        and librdkafka asks a new leader once where to read."""
        for _ in range(NEAR_TRIES_MAX):
            before = dict(self.asked)
            self.until_read(more)
            wait_until(
                lambda before=before: self.asked[NEAR] > before[NEAR] + 5,
                seconds_max=SECONDS_MAX,
                what="the broker of the rack is asked",
            )
            others = {each: self.asked[each] - before[each] for each in before if each != NEAR}
            if not any(others.values()):
                return
        pytest.fail(f"brokers of other racks were asked: {others}")

    def _told(self, statistics: str) -> None:
        told: dict[str, Any] = json.loads(statistics)
        self.asked = {
            broker["nodeid"]: broker["req"].get("Fetch", 0)
            for broker in told["brokers"].values()
            if broker["nodeid"] > 0
        }
        partitions = told["topics"].get(self._topic, {}).get("partitions", {})
        self.read_from = {part["broker"] for number, part in partitions.items() if number != "-1"}

    def _run(self) -> None:
        self._consumer.assign([TopicPartition(self._topic, n, 0) for n in range(PARTITIONS)])
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, timeout=0.1):
                if message.error() is not None:
                    continue
                values = self.seen[message.partition() or 0]
                if message.offset() != len(values):
                    self.gaps.append(f"{message.partition()}: {message.offset()}, {len(values)}")
                values.append(int(message.value() or b""))
        self._consumer.close()


def test_a_consumer_reads_from_the_broker_of_its_rack_what_is_durable_and_goes_on_without_it(
    cluster: HoldfastCluster, topic_name: str
):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic_name, PARTITIONS, 1)])[topic_name].result(20)
    wait_until(
        lambda: leaders(cluster, topic_name, 1) == {1, 2, 3},
        seconds_max=SECONDS_MAX,
        what="all brokers lead some partitions",
    )
    reader = NearReader(cluster, topic_name, f"rack-{NEAR}")
    with Load(cluster, topic_name) as load, reader:
        wait_until(
            lambda: reader.read_from == {NEAR},
            seconds_max=SECONDS_MAX,
            what="all partitions are read in the rack of the reader",
        )
        reader.until_read_near(1000)
        cluster.brokers[NEAR].kill()
        reader.until_read(1000)
        wait_until(
            lambda: NEAR not in reader.read_from,
            seconds_max=SECONDS_MAX,
            what="the others are read from",
        )
        for number in (1, 3):
            cluster.brokers[number].kill()
        reader.stop()
        for broker in cluster.brokers.values():
            broker.start()
        load.until_acked(100)
    assert reader.gaps == []
    check(load, cluster.bootstrap)
    found = read(cluster.bootstrap, topic_name, len(load.acked))
    for partition, values in reader.seen.items():
        assert [found[value] for value in values] == [(partition, i) for i in range(len(values))]
