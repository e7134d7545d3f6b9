"""A producer that never stops, and the check that all it was told is in the log, once."""

import threading
import time

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.peers.holdfast_cluster import HoldfastCluster
from tests.peers.process import wait_until

PARTITIONS = 12
SECONDS_MAX = 60.0


def leaders(cluster: HoldfastCluster, topic: str, through: int) -> set[int]:
    admin = AdminClient({"bootstrap.servers": cluster.brokers[through].bootstrap})
    found = admin.list_topics(topic, timeout=20).topics[topic].partitions
    return {partition.leader for partition in found.values()}


class Load:
    """A producer that never stops, and what was acknowledged to it."""

    def __init__(self, cluster: HoldfastCluster, topic: str, *, is_idempotent: bool = True) -> None:
        self.topic = topic
        self._is_idempotent = is_idempotent
        self.bootstrap = cluster.bootstrap
        self.acked: dict[int, tuple[int, int] | None] = {}
        """By value: partition and offset. None where librdkafka knows the offset no more: a later
        batch of its own was acknowledged while the answer to this one was lost."""
        self.failed: list[KafkaError] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def until_acked(self, more: int) -> None:
        wanted = len(self.acked) + more
        wait_until(
            lambda: len(self.acked) >= wanted,
            seconds_max=SECONDS_MAX,
            what=f"{more} more records are acknowledged",
        )

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        self.acked[int(value)] = None if offset is None else (partition, offset)

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "linger.ms": 2,
                "enable.idempotence": self._is_idempotent,
            }
        )
        number = 0
        while not self._stopping.is_set():
            producer.produce(
                self.topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._told
            )
            number += 1
            producer.poll(0)
            time.sleep(0.001)
        assert producer.flush(SECONDS_MAX) == 0


def read(bootstrap: str, topic: str, wanted: int) -> dict[int, tuple[int, int]]:
    """All records by value, with their places; each is there once."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "not-used"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: dict[int, tuple[int, int]] = {}
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < wanted and time.monotonic() < deadline:
        for message in consumer.consume(1000, timeout=0.5):
            if message.error() is None:
                value = int(message.value() or b"")
                assert value not in found, f"{value} is doubled"
                found[value] = (message.partition() or 0, message.offset() or 0)
    consumer.close()
    return found


def check(load: Load, bootstrap: str) -> None:
    assert not load.failed
    found = read(bootstrap, load.topic, len(load.acked))
    assert load.acked.keys() <= found.keys()
    placed = {value: place for value, place in load.acked.items() if place is not None}
    assert {value: found[value] for value in placed} == placed
