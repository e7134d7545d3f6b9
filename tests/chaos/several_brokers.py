"""Consume, transform, produce over three brokers: exactly once while they are killed, drained and
stopped.

`python -m tests.chaos.several_brokers --rounds 5` prints figures and every record that is missing
from the output, or twice in it; its exit code says whether there was one. Workers share the
partitions of one topic in a group, and write another one in transactions that carry the group's
offsets; lanes, groups and transactional ids are spread over the brokers.
"""

import argparse
import dataclasses
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast import HoldfastBroker
from tests.peers.holdfast_cluster import LANES_COME_BACK_AT_ONCE
from tests.peers.process import wait_until

BROKERS = 3
LANES = 6
PARTITIONS = 6
WORKERS = 3
INPUT, OUTPUT, GROUP = "input", "output", "workers"
BATCH_RECORDS = 100
REST_SECONDS = 2.0
STOPPED_SECONDS = 9.0
"""Long enough for its lanes to be taken over."""
CATCH_UP_SECONDS_MAX = 90.0
TRANSACTION_MS_MAX = 30_000
FAULTS = ("killed", "drained", "stopped")


@dataclasses.dataclass(slots=True, kw_only=True)
class Figures:
    """What a run did, and what it found."""

    faults: dict[str, int] = dataclasses.field(default_factory=dict[str, int])
    records: int = 0
    output_read: int = 0
    transactions: int = 0
    aborted: int = 0
    given_up: list[str] = dataclasses.field(default_factory=list[str])
    """Errors after which a worker began anew, as a supervisor would start it."""
    seconds: float = 0.0
    problems: list[str] = dataclasses.field(default_factory=list[str])


class Worker:
    """One transactional id, in a thread."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.name = name
        self.transactions = 0
        self.aborted = 0
        self.given_up: list[str] = []
        self._bootstrap = bootstrap
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._work()
            except KafkaException as failed:
                error: KafkaError = failed.args[0]
                self.given_up.append(f"{self.name}: {error.name()} {error.str()}")

    def _work(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self.name,
                "transaction.timeout.ms": TRANSACTION_MS_MAX,
                "linger.ms": 1,
                # With a new bootstrap it waits for ever for a group coordinator that it has dropped
                # (librdkafka issue 5511).
                "metadata.recovery.strategy": "none",
            }
        )
        producer.init_transactions(30)
        while not self._stopping.is_set():
            self._consume(producer)

    def _consume(self, producer: Producer) -> None:
        """Until a transaction is aborted: then the next consumer begins at what is committed."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
            }
        )
        consumer.subscribe([INPUT])
        try:
            while not self._stopping.is_set():
                taken = [m for m in consumer.consume(BATCH_RECORDS, 0.5) if m.error() is None]
                if taken and not self._transform(producer, consumer, taken):
                    return
        finally:
            consumer.close()

    def _transform(self, producer: Producer, consumer: Consumer, taken: list[Message]) -> bool:
        producer.begin_transaction()
        try:
            for message in taken:
                value = message.value()
                producer.produce(OUTPUT, value=value, partition=int(value or b"0") % PARTITIONS)
            positions = consumer.position(consumer.assignment())
            moved = [position for position in positions if position.offset >= 0]
            producer.send_offsets_to_transaction(moved, consumer.consumer_group_metadata(), 30)
            _patiently(producer.commit_transaction)
        except KafkaException as failed:
            error: KafkaError = failed.args[0]
            if error.fatal():
                raise
            _patiently(producer.abort_transaction)
            self.aborted += 1
            return False
        self.transactions += 1
        return True


def _patiently(end: Callable[[float], None]) -> None:
    """Commit or abort; what may be tried again is."""
    while True:
        try:
            end(30)
            return
        except KafkaException as failed:
            error: KafkaError = failed.args[0]
            if not error.retriable():
                raise


class Feed:
    """Numbers into the input, in a thread, until told to stop."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        self.problems: list[str] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.problems.append(f"input {message.value()!r}: {error.str()}")

    def _run(self) -> None:
        while not self._stopping.is_set():
            value, partition = b"%d" % self.sent, self.sent % PARTITIONS
            self._producer.produce(
                INPUT, value=value, partition=partition, on_delivery=self._delivered
            )
            self.sent += 1
            self._producer.poll(0.002)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self._producer.flush(60):
            self.problems.append("not all of the input was acknowledged within a minute")


def harm(broker: HoldfastBroker, fault: str) -> None:
    if fault == "killed":
        broker.kill()
        time.sleep(REST_SECONDS)
        broker.start()
    elif fault == "drained":
        broker.stop()
        broker.start()
    else:
        os.kill(broker.process.pid, signal.SIGSTOP)
        time.sleep(STOPPED_SECONDS)
        os.kill(broker.process.pid, signal.SIGCONT)


def read_output(bootstrap: str, wanted: int) -> Counter[int]:
    """All committed records, until as many different ones as wanted are there, or no more come."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(OUTPUT, p, 0) for p in range(PARTITIONS)])
    found: Counter[int] = Counter()
    deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
    while time.monotonic() < deadline and len(found) < wanted:
        for message in consumer.consume(1000, 0.5):
            if message.error() is None:
                found[int(message.value() or b"-1")] += 1
    for message in consumer.consume(1000, 2.0):  # what is twice may come last
        if message.error() is None:
            found[int(message.value() or b"-1")] += 1
    consumer.close()
    return found


def run(folder: Path, *, rounds: int, seed: int) -> Figures:
    chance = random.Random(seed)
    figures = Figures()
    begun = time.monotonic()
    store = str(folder / "store")
    brokers = [
        HoldfastBroker(
            folder / f"broker-{i}",
            store=store,
            arguments=["--id", str(i), "--lanes", str(LANES), *LANES_COME_BACK_AT_ONCE],
        )
        for i in range(1, BROKERS + 1)
    ]
    try:
        for broker in brokers:
            broker.start()
        bootstrap = ",".join(broker.bootstrap for broker in brokers)
        _run_workers(brokers, bootstrap, rounds, chance, figures)
    finally:
        for broker in brokers:
            broker.stop()
    figures.seconds = round(time.monotonic() - begun, 1)
    return figures


def _run_workers(
    brokers: list[HoldfastBroker],
    bootstrap: str,
    rounds: int,
    chance: random.Random,
    figures: Figures,
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(t, PARTITIONS, 1) for t in (INPUT, OUTPUT)]).values():
        made.result(30)
    feed = Feed(bootstrap)
    workers = [Worker(f"worker-{i}", bootstrap) for i in range(WORKERS)]
    for worker in workers:
        worker.start()
    try:
        wait_until(
            lambda: sum(worker.transactions for worker in workers) > 3 * WORKERS,
            seconds_max=30,
            what="workers have begun",
        )
        for _ in range(rounds):
            victims = chance.sample(brokers, len(FAULTS))
            for fault, victim in zip(FAULTS, victims, strict=True):
                harm(victim, fault)
                figures.faults[fault] = figures.faults.get(fault, 0) + 1
                time.sleep(REST_SECONDS)
        feed.stop()
        found = read_output(bootstrap, feed.sent)
    finally:
        feed.stop()
        for worker in workers:
            worker.stop()
    figures.records = feed.sent
    figures.output_read = sum(found.values())
    figures.transactions = sum(worker.transactions for worker in workers)
    figures.aborted = sum(worker.aborted for worker in workers)
    figures.given_up = [error for worker in workers for error in worker.given_up]
    figures.problems = feed.problems + _judged(found, feed.sent)


def _judged(found: Counter[int], sent: int) -> list[str]:
    missing = [value for value in range(sent) if value not in found]
    twice = [value for value, times in found.items() if times > 1]
    problems = [f"missing: {len(missing)}, such as {missing[:10]}"] if missing else []
    if twice:
        problems.append(f"more than once: {len(twice)}, such as {twice[:10]}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-chaos-") as folder:
        figures = run(Path(folder), rounds=options.rounds, seed=options.seed)
    print(json.dumps(dataclasses.asdict(figures), indent=2))
    return 1 if figures.problems else 0


if __name__ == "__main__":
    sys.exit(main())
