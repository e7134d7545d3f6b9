"""The records that every variant reads: one Apache Kafka and one Holdfast, filled once, alike.

Owns the records and the two brokers. A record is an order of 100 to 150 bytes of JSON with its id
as the key; one in ten comes a second time, at most REPEAT_DISTANCE records later, in the same
partition (Kafka Streams remembers keys by partition). Event time goes on by 1 ms with each record.
"""

import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaError, Producer
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KAFKA_DEFAULT_HEAP, KafkaBroker

from benchmarks.librdkafka_client import create_topic, latest_offsets

TOPIC = "orders"
PARTITIONS = 6
REPEAT_SHARE = 0.1
REPEAT_DISTANCE = 20_000
AGE_MS = 4 * 3_600_000
"""Event times begin so long before now: none is in the future, none is old to a broker."""
FILL_SECONDS_MAX = 600.0


class Order(NamedTuple):
    """One record."""

    key: bytes
    value: bytes
    partition: int
    timestamp_ms: int


class FillFailed(Exception):
    """A broker did not take all records."""


@dataclass(slots=True)
class Orders:
    """All records in order, the same ones each time; knows afterwards how many ids there are."""

    count: int
    begun_ms: int
    ids: int = 0
    _chance: random.Random = field(default_factory=lambda: random.Random(4))

    def __iter__(self) -> Iterator[Order]:
        chance, recent = self._chance, list[int]()
        letters = "abcdefghijklmnopqrstuvwxyz "
        notes = ["".join(chance.choices(letters, k=20 + i % 48)) for i in range(997)]
        for i in range(self.count):
            again = chance.random() < REPEAT_SHARE and len(recent) == REPEAT_DISTANCE
            number = recent[chance.randrange(REPEAT_DISTANCE)] if again else self.ids
            if not again:
                if len(recent) < REPEAT_DISTANCE:
                    recent.append(number)
                else:
                    recent[number % REPEAT_DISTANCE] = number
                self.ids += 1
            key = b"order-%010d" % number
            text = (
                f'{{"id":"order-{number:010d}","customer":{chance.randrange(10**6)},'
                f'"amount":{i % 9973},"note":"{notes[i % 997]}"}}'
            )
            yield Order(key, text.encode(), number % PARTITIONS, self.begun_ms + i)


@dataclass(slots=True)
class Brokers:
    """Both brokers, running, with the same records in the topic."""

    folder: Path
    kafka: KafkaBroker
    holdfast: HoldfastBroker
    ids: int = 0

    @staticmethod
    def start(folder: Path) -> "Brokers":
        """Both on this folder, and on the ports that they had there before."""
        brokers = Brokers(
            folder,
            KafkaBroker(folder / "kafka", jvm_options=KAFKA_DEFAULT_HEAP),
            HoldfastBroker(folder / "holdfast"),
        )
        if brokers._filled.exists():
            filled = json.loads(brokers._filled.read_text())
            brokers.kafka.port = filled["kafka_port"]
            brokers.ids = filled["ids"]
        try:
            brokers.kafka.start()
            brokers.holdfast.start()
        except BaseException:
            brokers.stop()
            raise
        return brokers

    def stop(self) -> None:
        self.kafka.stop()
        self.holdfast.stop()

    @property
    def _filled(self) -> Path:
        return self.folder / "filled.json"

    def fill(self, count: int) -> None:
        """Have all records in both, from an earlier run where that had as many."""
        if self._filled.exists():
            if json.loads(self._filled.read_text())["records"] != count:
                raise FillFailed(f"{self.folder} holds another number of records than {count}")
            return
        self._write(count)
        filled = {"records": count, "ids": self.ids, "kafka_port": self.kafka.port}
        self._filled.write_text(json.dumps(filled))

    def _write(self, count: int) -> None:
        orders = Orders(count, int(time.time() * 1000) - AGE_MS)
        targets = [_Target(broker.bootstrap) for broker in (self.kafka, self.holdfast)]
        for order in orders:
            for target in targets:
                target.send(order)
        for target in targets:
            target.finish(count)
        self.ids = orders.ids


class _Target:
    """One broker on its way to be filled."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._refused: list[KafkaError] = []
        create_topic(bootstrap, TOPIC, PARTITIONS)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 50,
                "queue.buffering.max.messages": 200_000,
                "on_delivery": self._delivered,
                "log_level": 3,
            }
        )
        self._sent = 0

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._refused.append(error)

    def send(self, order: Order) -> None:
        while True:
            try:
                self._producer.produce(
                    TOPIC,
                    order.value,
                    order.key,
                    partition=order.partition,
                    timestamp=order.timestamp_ms,
                )
                break
            except BufferError:
                self._producer.poll(0.05)
        self._sent += 1
        if self._sent % 10_000 == 0:
            self._producer.poll(0)

    def finish(self, count: int) -> None:
        left = self._producer.flush(FILL_SECONDS_MAX)
        there = latest_offsets(self.bootstrap, TOPIC, PARTITIONS)
        if left or self._refused or there != count:
            raise FillFailed(
                f"{self.bootstrap} has {there} of {count} records, {left} without an answer,"
                f" {self._refused[:1]}"
            )
