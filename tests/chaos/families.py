"""Idempotent producers of three client families, and consumers that follow, each in a thread.

Owns their pace and their windows. Each tells the ledger what it sent and what it was told. Must
never retry by itself: how a family gets a record over a kill is what is being tried.
"""

import asyncio
import contextlib
import ctypes
import json
import logging
import threading
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from typing import Any

from tests.chaos.ledger import Ledger, identity_of, value_of
from tests.support.librdkafka import SILENT, silenced

TOPIC = "families"
DELIVERY_MS = 180_000
WINDOW = 400
FAST_WINDOW = 4000
DRAIN_SECONDS_MAX = 120.0
ALARMS_MAX = 50
WEDGED_SECONDS = 60.0
"""Without statistics, which a librdkafka that lives gives every five."""
WEDGED_MAX = 20
LOGGED_MAX = 20
EPOCH_LOOK_MS = 2_000
METADATA_MS = 500
"""So soon a producer hears of a new leader, while what it sent to the old one is under way."""
SHOWN_OF_A_PARTITION = (
    *("fetch_state", "broker", "leader", "leader_epoch", "next_offset", "app_offset"),
    *("query_offset", "hi_offset", "fetchq_cnt", "fetchq_size"),
)
SHOWN_OF_A_BROKER = (
    *("nodeid", "state", "stateage", "outbuf_cnt", "waitresp_cnt", "connects", "disconnects"),
    *("req_timeouts", "toppars"),
)
SEQUENCE_ERRORS = ("OutOfOrderSequence", "OUT_OF_ORDER", "UnknownProducer", "UNKNOWN_PRODUCER")


class Pace:
    """How many records are due at a rate."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._begun = time.monotonic()
        self._taken = 0

    def due(self, most: int) -> int:
        elapsed = time.monotonic() - self._begun
        count = min(most, int(elapsed * self._per_second) - self._taken)
        if count == most:
            self._begun, self._taken = time.monotonic(), 0  # too slow: never catch up in one burst
        else:
            self._taken += max(count, 0)
        return max(count, 0)


UNTOLD = contextlib.suppress(SystemError)
"""The binding of librdkafka now and then raises a text in place of an error (seen once, in 2.16):
what became of that record is unknown, as with any that is not answered."""


class Family(threading.Thread, ABC):
    """One producer on all partitions, until it is told to stop; then it waits for its acks."""

    def __init__(self, ledger: Ledger, producer: int, bootstrap: str, per_second: float) -> None:
        super().__init__(name=ledger.producers[producer], daemon=True)
        self.ledger = ledger
        self.producer = producer
        self.bootstrap = bootstrap
        self.pace = Pace(per_second)
        self.stopping = threading.Event()
        self.in_flight = 0
        self._next = 0

    def run(self) -> None:
        try:
            self.produce()
        except Exception as error:
            self.ledger.problems.append(f"{self.name} ended: {error!r}")

    @abstractmethod
    def produce(self) -> None:
        """Send until told to stop, then wait for what is under way."""

    def next_record(self) -> tuple[int, int, bytes]:
        partition = self._next = (self._next + 1) % self.ledger.partitions
        number = self.ledger.send(self.producer, partition)
        return partition, number, value_of(self.producer, number)

    def failed(self, error: object) -> None:
        self.ledger.failed(self.producer, f"{error}"[:120])
        if any(name in repr(error) + str(error) for name in SEQUENCE_ERRORS):
            self.ledger.problems.append(f"spurious sequence error: {self.name}: {error!r}")

    def fatal(self, error: object) -> None:
        self.ledger.problems.append(f"{self.name}: fatal: {error!r}")


class Librdkafka(Family):
    epoch = 0
    """Of its producer id. It takes a new one where a broker calls a batch out of order, without a
    word, and sends again what was not answered yet: on any partition, also what is in the log."""

    def __init__(self, ledger: Ledger, producer: int, bootstrap: str, per_second: float) -> None:
        super().__init__(ledger, producer, bootstrap, per_second)
        self._reasons = _Reasons()

    def produce(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": DELIVERY_MS,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "error_cb": lambda error: self.fatal(error) if error.fatal() else None,
                "topic.metadata.refresh.interval.ms": METADATA_MS,
                "statistics.interval.ms": EPOCH_LOOK_MS,
                "stats_cb": self._look_at_epoch,
                "debug": "eos",
                "logger": self._reasons.logger(f"tests.chaos.producer-{id(self)}"),
            }
        )
        while not self.stopping.is_set():
            for _ in range(self.pace.due(FAST_WINDOW - len(producer))):
                partition, number, value = self.next_record()
                told = self._delivered(number)
                with UNTOLD:
                    producer.produce(TOPIC, value, partition=partition, on_delivery=told)
            with UNTOLD:
                producer.poll(0.004)
        producer.flush(DRAIN_SECONDS_MAX)
        self.in_flight = len(producer)

    def _look_at_epoch(self, statistics: str) -> None:
        epoch = json.loads(statistics)["eos"]["producer_epoch"]
        if epoch > self.epoch:
            self.epoch = epoch
            self.ledger.problems.append(
                f"spurious sequence error: {self.name} took epoch {epoch}: {self._reasons.found}"
            )

    def _delivered(self, number: int) -> Callable[[object, object], None]:
        def delivered(error, message) -> None:
            if error is not None:
                self.failed(error)
            else:
                self.ledger.acked(self.producer, message.partition(), number, message.offset())

        return delivered


class KafkaPython(Family):
    def produce(self) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            enable_idempotence=True,
            linger_ms=5,
            delivery_timeout_ms=DELIVERY_MS,
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
        )
        while not self.stopping.is_set():
            due = self.pace.due(WINDOW - self.in_flight)
            for _ in range(due):
                self._send(producer)
            if not due:
                self.stopping.wait(0.004)
        try:
            producer.flush(DRAIN_SECONDS_MAX)
        except Exception as error:
            self.ledger.problems.append(f"{self.name}: {error!r}: {_state_of(producer)}")
        producer.close(5)

    def _send(self, producer) -> None:
        partition, number, value = self.next_record()
        self.in_flight += 1

        def delivered(metadata) -> None:
            self.in_flight -= 1
            self.ledger.acked(self.producer, partition, number, metadata.offset)

        def refused(error) -> None:
            self.in_flight -= 1
            self.failed(error)

        future = producer.send(TOPIC, value, partition=partition)
        future.add_callback(delivered)
        future.add_errback(refused)


def _state_of(producer) -> str:
    """What a producer of kafka-python is about, for who has to find out why it stands still."""
    sender = producer._sender
    transactions = sender._transaction_manager
    return (
        f"in flight {sender._client.in_flight_request_count()}, undrained"
        f" {sender._accumulator.has_undrained()}, state {transactions._current_state}, waits for"
        f" {transactions._in_flight_request_correlation_id}, last error"
        f" {transactions.last_error!r}; it had logged {list(LOGGED.found)}"
    )


class Aiokafka(Family):
    def produce(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            enable_idempotence=True,
            linger_ms=5,
            request_timeout_ms=DELIVERY_MS,
            retry_backoff_ms=20,
        )
        await producer.start()
        waiting: set[asyncio.Task[None]] = set()
        while not self.stopping.is_set():
            due = self.pace.due(WINDOW - len(waiting))
            for _ in range(due):
                partition, number, value = self.next_record()
                future = await producer.send(TOPIC, value, partition=partition)
                task = asyncio.ensure_future(self._settle(future, partition, number))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
            await asyncio.sleep(0.004)
        if waiting:
            await asyncio.wait(waiting, timeout=DRAIN_SECONDS_MAX)
        self.in_flight = len(waiting)
        await asyncio.wait_for(producer.stop(), 10)

    async def _settle(self, future, partition: int, number: int) -> None:
        try:
            metadata = await future
        except Exception as error:
            self.failed(error)
        else:
            self.ledger.acked(self.producer, partition, number, metadata.offset)


FAMILIES = {"librdkafka": Librdkafka, "aiokafka": Aiokafka, "kafka-python": KafkaPython}
SHARE = {"librdkafka": 0.7, "aiokafka": 0.15, "kafka-python": 0.15}


class Follower(threading.Thread):
    """A consumer from offset 0 that must see every offset once, in order, across all kills.

    Two faults of librdkafka (2.16) are known here, counted, and gone on after, as whoever restarts
    a consumer would; whether the broker's answers are right is for the observers, and what comes
    must be the next offset.

    - It holds the answer to OffsetForLeaderEpoch against the position that it has then, and not
      against the one that it asked about (rd_kafka_toppar_handle_OffsetForLeaderEpoch): of two
      hand-offs within a second, with a fetch between, it says that the log was truncated.
    - The same function asks for metadata with a partition locked, which needs the lock of the
      client; a thread of a broker that is gone takes the two the other way round
      (rd_kafka_broker_fail, rd_kafka_toppar_forget_leader). Then nothing moves any more, not even
      its statistics.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(name="follower", daemon=True)
        self.bootstrap = bootstrap
        self.topic = topic
        self.seen = [array("q") for _ in range(partitions)]
        self.problems: list[str] = []
        self.alarms = 0
        """How often it was told of a log that is shorter than what it had read."""
        self.wedged = 0
        """How often librdkafka was locked up for ever."""
        self.stopping = threading.Event()
        self._moved_at = [time.monotonic()] * partitions
        self._statistics = "{}"
        self._heard_at = time.monotonic()

    def still_seconds(self) -> float:
        """For how long nothing has come, of one of the partitions."""
        return time.monotonic() - min(self._moved_at)

    def state(self) -> str:
        """What librdkafka says of its partitions and brokers."""
        told = json.loads(self._statistics)
        partitions = told.get("topics", {}).get(self.topic, {}).get("partitions", {})
        shown = {
            "partitions": {
                number: {name: each.get(name) for name in SHOWN_OF_A_PARTITION}
                for number, each in partitions.items()
            },
            "brokers": {
                name: {field: each.get(field) for field in SHOWN_OF_A_BROKER}
                for name, each in told.get("brokers", {}).items()
            },
        }
        return json.dumps(shown)

    def run(self) -> None:
        try:
            while not self._follow() and self.wedged < WEDGED_MAX:
                self.wedged += 1
        except Exception as error:
            self.problems.append(f"the follower ended: {error!r}")

    def _hear(self, statistics: str) -> None:
        self._statistics = statistics
        self._heard_at = time.monotonic()

    def _follow(self) -> bool:
        """False where the consumer is locked up: it cannot even be closed, so it is left behind."""
        from confluent_kafka import Consumer, KafkaError

        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "followers",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "statistics.interval.ms": 5_000,
                "stats_cb": self._hear,
                "logger": SILENT,
            }
        )
        self._begin(consumer)
        self._heard_at = time.monotonic()
        passing = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
        while not self.stopping.is_set():
            alarms = self.alarms
            for message in consumer.consume(2000, timeout=0.05):
                error = message.error()
                if error is None:
                    self._see(message.partition(), message.offset(), message.value())
                elif "log truncation detected" in error.str() and self.alarms < ALARMS_MAX:
                    self.alarms += 1
                elif error.code() not in passing and not error.retriable():
                    self.problems.append(f"the follower was told {error}")
            if self.alarms > alarms:
                self._begin(consumer)
            if time.monotonic() - self._heard_at > WEDGED_SECONDS:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(consumer))  # its end would wait for it
                return False
        consumer.close()
        return True

    def _begin(self, consumer: Any) -> None:
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition(self.topic, p, len(s)) for p, s in enumerate(self.seen)])

    def _see(self, partition: int, offset: int, value: bytes) -> None:
        seen = self.seen[partition]
        if offset != len(seen):
            self.problems.append(f"the follower got {partition}/{offset} instead of {len(seen)}")
            return
        seen.append(identity_of(value))
        self._moved_at[partition] = time.monotonic()


class _Found(logging.Handler):
    """The errors that a library logs, each once: what its sender thread swallows is there alone."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if len(self.found) < LOGGED_MAX:
            self.found[f"{record.getMessage()[:120]}: {error!r}"] = None


class _Reasons(logging.Handler):
    """Why a librdkafka took new epochs, in its own words."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if ("ERRSEQ" in text or "epoch bump" in text) and len(self.found) < LOGGED_MAX:
            self.found.append(text[:400])

    def logger(self, name: str) -> logging.Logger:
        logger = silenced(name)
        logger.setLevel(logging.DEBUG)
        logger.addHandler(self)
        return logger


LOGGED = _Found()
for _library in ("aiokafka", "kafka"):
    silenced(_library).addHandler(LOGGED)
