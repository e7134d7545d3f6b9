"""The rows of the coordinators' benchmark: rebalances, offset commits, transactions."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from benchmarks.group_members import SETTINGS, Members
from benchmarks.java_client import ClientFailed
from benchmarks.librdkafka_client import create_topic, payloads
from benchmarks.samples import COMMITS, CPU_EACH, REBALANCE, TRANSACTIONS, Metric, Sample
from benchmarks.session import WARM_UP, Row
from benchmarks.variants import Broker, Variant

TRANSACTION_RECORDS = 100
RECORD_BYTES = 100
PARTITIONS = 6
TRANSACTION_SECONDS_MAX = 30.0
VALUES = payloads(RECORD_BYTES)[:TRANSACTION_RECORDS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much work a run does."""

    members: int
    seconds: float
    producers: int
    rebalances: int


FULL = Sizes(members=50, seconds=5.0, producers=10, rebalances=3)
QUICK = Sizes(members=10, seconds=1.0, producers=3, rebalances=1)


class Workload:
    """All rows of one variant in one repeat, on one running broker."""

    def __init__(self, variant: Variant, broker: Broker, sizes: Sizes) -> None:
        self._variant = variant
        self._broker = broker
        self._sizes = sizes
        self._bootstrap = broker.bootstrap

    def rows(self) -> list[tuple[str, Row]]:
        """Each row by name; the first warms the broker up and measures nothing."""
        named: list[tuple[str, Row]] = [(WARM_UP, self._warm_up)]
        for producers in (1, self._sizes.producers):
            named.append((f"transactions {producers}", lambda n=producers: self._transactions(n)))
        named.append(("transactions with offsets", self._transactions_with_offsets))
        for protocol in SETTINGS:
            named.append((f"groups {protocol}", lambda p=protocol: self._groups(p)))
        named.append(("commits of one member", self._commits_of_one))
        return named

    def _sample(self, metric: Metric, row: str, value: float) -> Sample:
        return Sample(metric=metric, row=row, variant=self._variant.name, value=value)

    def _warm_up(self) -> Iterator[Sample]:
        create_topic(self._bootstrap, "warm-up", PARTITIONS)
        self._run_transactions("warm-up", producers=2, with_offsets=True)
        with Members(self._bootstrap, "warm-up", "eager", "warm-up") as members:
            members.timed(lambda: members.join(2), PARTITIONS)
            members.commit_for(self._sizes.seconds, "warm-up")
        return iter(())

    def _transactions(self, producers: int) -> Iterator[Sample]:
        noun = "producer" if producers == 1 else "producers"
        yield from self._measured_transactions(f"{producers} {noun}", producers)

    def _transactions_with_offsets(self) -> Iterator[Sample]:
        row = "1 producer, with offsets of a group"
        yield from self._measured_transactions(row, 1, with_offsets=True)

    def _measured_transactions(
        self, row: str, producers: int, *, with_offsets: bool = False
    ) -> Iterator[Sample]:
        row = f"{TRANSACTION_RECORDS} records of {RECORD_BYTES} B, {row}"
        topic = f"transactions-{producers}-{with_offsets}"
        create_topic(self._bootstrap, topic, PARTITIONS)
        cpu_seconds = self._broker.process.cpu_seconds()
        count, seconds = self._run_transactions(topic, producers, with_offsets=with_offsets)
        cpu_seconds = self._broker.process.cpu_seconds() - cpu_seconds
        yield self._sample(TRANSACTIONS, row, count / seconds)
        yield self._sample(CPU_EACH, f"transaction: {row}", 1000 * cpu_seconds / count)

    def _run_transactions(
        self, topic: str, producers: int, *, with_offsets: bool
    ) -> tuple[int, float]:
        """How many were committed, in which time."""
        opened = [_producer(self._bootstrap, f"{topic}-{n}") for n in range(producers)]
        group = _group(self._bootstrap, f"{topic}-group") if with_offsets else None
        counts = [0] * producers
        failures: list[KafkaException] = []
        begun = time.monotonic()
        deadline = begun + self._sizes.seconds

        def work(number: int) -> None:
            try:
                while time.monotonic() < deadline:
                    _transaction(opened[number], topic, group, counts[number])
                    counts[number] += 1
            except KafkaException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(producers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - begun
        if group is not None:
            group.close()
        if failures:
            raise ClientFailed(f"a transaction failed: {failures[0]}")
        return sum(counts), seconds

    def _groups(self, protocol: str) -> Iterator[Sample]:
        topic = f"groups-{protocol}"
        count = self._sizes.members
        partitions = 2 * count
        create_topic(self._bootstrap, topic, partitions)
        with Members(self._bootstrap, topic, protocol, topic) as members:
            row = f"{protocol}, {count} members"
            seconds = members.timed(lambda: members.join(count), partitions)
            yield self._sample(REBALANCE, f"{row}: all start", seconds)
            for _ in range(self._sizes.rebalances):
                seconds = members.timed(members.leave, partitions)
                yield self._sample(REBALANCE, f"{row}: one leaves", seconds)
                seconds = members.timed(lambda: members.join(1), partitions)
                yield self._sample(REBALANCE, f"{row}: one joins", seconds)
            yield from self._commits(members, topic, f"{protocol}, {count} members at once")

    def _commits_of_one(self) -> Iterator[Sample]:
        topic = "commits"
        create_topic(self._bootstrap, topic, PARTITIONS)
        with Members(self._bootstrap, topic, "eager", topic) as members:
            members.timed(lambda: members.join(1), PARTITIONS)
            yield from self._commits(members, topic, "one member, one commit after the other")

    def _commits(self, members: Members, topic: str, row: str) -> Iterator[Sample]:
        cpu_seconds = self._broker.process.cpu_seconds()
        count = members.commit_for(self._sizes.seconds, topic)
        cpu_seconds = self._broker.process.cpu_seconds() - cpu_seconds
        yield self._sample(COMMITS, row, count / self._sizes.seconds)
        yield self._sample(CPU_EACH, f"commit: {row}", 1000 * cpu_seconds / count)


def _producer(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(TRANSACTION_SECONDS_MAX)
    return producer


def _group(bootstrap: str, group_id: str) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group_id, "log_level": 0})


def _transaction(producer: Producer, topic: str, group: Consumer | None, number: int) -> None:
    producer.begin_transaction()
    for index, value in enumerate(VALUES):
        producer.produce(topic, value, partition=index % PARTITIONS)
    if group is not None:
        offsets = [TopicPartition(topic, index, number) for index in range(PARTITIONS)]
        producer.send_offsets_to_transaction(
            offsets, group.consumer_group_metadata(), TRANSACTION_SECONDS_MAX
        )
    producer.commit_transaction(TRANSACTION_SECONDS_MAX)
