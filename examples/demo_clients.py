"""The clients of the demo: a steady idempotent producer, readers, a watch on watermarks.

All on confluent-kafka (librdkafka), as any application would use it. Each runs in a thread and
keeps what it saw; none of them judges.
"""

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

FLUSH_SECONDS_MAX = 60.0
READ_SECONDS_MAX = 60.0
PAUSE_S = 0.02
"""Between two questions: the broker shares the machine with Spark."""
QUICK_AND_QUIET = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 200,
    "log_level": 2,  # a refused connection is no news here
}


class Ack(NamedTuple):
    """A record that the broker acknowledged."""

    sequence: int
    partition: int
    offset: int
    at: float


class Produced(NamedTuple):
    """What the producer was told."""

    sent: int
    acks: list[Ack]
    failed: list[str]


class Watched(NamedTuple):
    """What the broker said of its high watermarks."""

    asked: int
    rewound: list[str]


class ReadBack(NamedTuple):
    """What the next fetch after an acknowledgement gave."""

    asked: int
    hidden: list[str]


class Seen(NamedTuple):
    """A record that a consumer read."""

    partition: int
    offset: int
    sequence: int


def order_of(number: int) -> int:
    """Which order a record is about: one in five says again what an earlier one said.

    Half of these come at once, by another partition; the others long after their twin.
    """
    match number % 10:
        case 4:
            return order_of(number - 1)
        case 9:
            return order_of(number // 2)
        case _:
            return number


def value_of(number: int) -> bytes:
    return json.dumps({"id": f"order-{order_of(number)}", "number": number}).encode()


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUICK_AND_QUIET})
    admin.create_topics([NewTopic(topic, num_partitions=partitions)])[topic].result(30)


def leader_of(bootstrap: str, topic: str, partition: int) -> int:
    """Which broker leads a partition now."""
    metadata = AdminClient({"bootstrap.servers": bootstrap, **QUICK_AND_QUIET}).list_topics(
        topic, timeout=30
    )
    return metadata.topics[topic].partitions[partition].leader


class Worker(threading.Thread, ABC):
    """A thread that steps until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            self.step()
        self.finish()

    @abstractmethod
    def step(self) -> None:
        """What is done again and again."""

    def finish(self) -> None:
        """After the last step, in the thread."""

    def stop(self) -> None:
        self._stopping.set()
        if self.is_alive():
            self.join(FLUSH_SECONDS_MAX + 10)


class SteadyProducer(Worker):
    """Sends records 0, 1, 2, ... to the partitions in turn, at a rate that may change."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: int) -> None:
        super().__init__()
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer({**settings, **QUICK_AND_QUIET})
        self._topic, self._partitions, self.rate = topic, partitions, rate
        self._looked_at = time.monotonic()
        self._due = 0.0
        self._sent = 0
        self._acks: list[Ack] = []
        self._failed: list[str] = []

    @property
    def acked_count(self) -> int:
        return len(self._acks)

    def step(self) -> None:
        now = time.monotonic()
        self._due += (now - self._looked_at) * self.rate
        self._looked_at = now
        while self._sent < int(self._due):
            number, self._sent = self._sent, self._sent + 1
            self._producer.produce(
                self._topic,
                value=value_of(number),
                partition=number % self._partitions,
                on_delivery=lambda error, message, n=number: self._delivered(n, error, message),
            )
        self._producer.poll(0.005)

    def finish(self) -> None:
        self._producer.flush(FLUSH_SECONDS_MAX)

    def _delivered(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(f"record {number}: {error}")
        else:
            ack = Ack(number, message.partition(), message.offset(), time.monotonic())
            self._acks.append(ack)

    def newest_ack(self) -> Ack | None:
        return self._acks[-1] if self._acks else None

    def newest_acks(self) -> list[Ack]:
        """The newest of each partition."""
        return list({ack.partition: ack for ack in list(self._acks)}.values())

    def ends(self) -> dict[int, int]:
        """The offset behind the last acknowledged record of each partition."""
        ends = dict.fromkeys(range(self._partitions), 0)
        for ack in self._acks:
            ends[ack.partition] = max(ends[ack.partition], ack.offset + 1)
        return ends

    def report(self) -> Produced:
        return Produced(self._sent, list(self._acks), list(self._failed))


def _unassigned(bootstrap: str, **more: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **QUICK_AND_QUIET,
            **more,
        }
    )


def _consumer(bootstrap: str, topic: str, partitions: int) -> Consumer:
    consumer = _unassigned(bootstrap)
    consumer.assign([TopicPartition(topic, i, OFFSET_BEGINNING) for i in range(partitions)])
    return consumer


def _seen(messages: list[Message]) -> list[Seen]:
    return [
        Seen(message.partition(), message.offset(), json.loads(message.value())["number"])
        for message in messages
        if message.error() is None
    ]


class LiveReader(Worker):
    """Reads while the producer writes, through the kills."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__()
        self.records: list[Seen] = []
        self._consumer = _consumer(bootstrap, topic, partitions)

    def step(self) -> None:
        self.records.extend(_seen(self._consumer.consume(500, timeout=0.1)))

    def finish(self) -> None:
        self._consumer.close()

    def wait_for(self, ends: dict[int, int]) -> None:
        """Until it has read up to these offsets, or far too long has passed."""
        give_up_at = time.monotonic() + READ_SECONDS_MAX
        wanted = sum(ends.values())
        while len(self.records) < wanted and time.monotonic() < give_up_at:
            time.sleep(0.05)


class NextFetch(Worker):
    """Fetches the newest acknowledged record at once, again and again, through the kills.

    The first answer must hold it: the end of the log, or an offset out of range, means that it was
    hidden. While no broker is there, there is no answer.
    """

    def __init__(self, bootstrap: str, topic: str, producer: SteadyProducer) -> None:
        super().__init__()
        self._consumer = _prober(bootstrap)
        self._topic, self._producer = topic, producer
        self._last: Ack | None = None
        self._asked = 0
        self._hidden: list[str] = []

    def step(self) -> None:
        ack = self._producer.newest_ack()
        if ack is None or ack == self._last:
            self._stopping.wait(PAUSE_S)
            return
        self._last = ack
        is_there = _is_readable(self._consumer, self._topic, ack, self._stopping.is_set)
        if is_there is not None:
            self._asked += 1
            if not is_there:
                self._hidden.append(str(ack))
        self._stopping.wait(PAUSE_S)

    def finish(self) -> None:
        self._consumer.close()

    def report(self) -> ReadBack:
        return ReadBack(self._asked, list(self._hidden))


def read_back(bootstrap: str, topic: str, acks: list[Ack]) -> ReadBack:
    """Fetch these records with a new consumer; one that does not come in time is hidden."""
    consumer = _prober(bootstrap)
    give_up_at = time.monotonic() + READ_SECONDS_MAX
    found = [
        (ack, _is_readable(consumer, topic, ack, lambda: time.monotonic() > give_up_at))
        for ack in acks
    ]
    consumer.close()
    return ReadBack(len(acks), [str(ack) for ack, is_there in found if not is_there])


def _prober(bootstrap: str) -> Consumer:
    return _unassigned(bootstrap, **{"enable.partition.eof": True, "fetch.wait.max.ms": 20})


def _is_readable(
    consumer: Consumer, topic: str, ack: Ack, gives_up: Callable[[], bool]
) -> bool | None:
    """Whether the first answer to a fetch at its offset holds the record; None without one."""
    consumer.assign([TopicPartition(topic, ack.partition, ack.offset)])
    try:
        while not gives_up():
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                return _seen([message]) == [Seen(ack.partition, ack.offset, ack.sequence)]
            if error.code() in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):
                return False
        return None
    finally:
        consumer.unassign()


class WatermarkWatch(Worker):
    """Asks for the high watermark of each partition in turn, all the time."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__()
        self._asked = 0
        self._rewound: list[str] = []
        self._consumer = _consumer(bootstrap, topic, partitions)
        self._consumer.pause([TopicPartition(topic, i) for i in range(partitions)])
        self._topic, self._partitions = topic, partitions
        self._highest = dict.fromkeys(range(partitions), 0)

    def step(self) -> None:
        partition = self._asked % self._partitions
        self._asked += 1
        try:
            asked = TopicPartition(self._topic, partition)
            _, high = self._consumer.get_watermark_offsets(asked, timeout=1.0)
        except KafkaException:
            self._stopping.wait(0.02)
            return
        if high < self._highest[partition]:
            self._rewound.append(f"partition {partition}: {self._highest[partition]} -> {high}")
        self._highest[partition] = max(high, self._highest[partition])
        self._stopping.wait(PAUSE_S)

    def report(self) -> Watched:
        return Watched(self._asked, list(self._rewound))

    def finish(self) -> None:
        self._consumer.close()


def read_all(bootstrap: str, topic: str, partitions: int, ends: dict[int, int]) -> list[Seen]:
    """The whole topic, with a consumer that knows nothing of what came before.

    To the end as the broker has it, and at least to where something was acknowledged.
    """
    consumer = _consumer(bootstrap, topic, partitions)
    for i in range(partitions):
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, i), timeout=30.0)
        ends[i] = max(ends[i], high)
    records: list[Seen] = []
    next_offset = dict.fromkeys(range(partitions), 0)
    give_up_at = time.monotonic() + READ_SECONDS_MAX
    while time.monotonic() < give_up_at and any(next_offset[p] < ends[p] for p in ends):
        for record in _seen(consumer.consume(1000, timeout=0.2)):
            records.append(record)
            next_offset[record.partition] = record.offset + 1
    consumer.close()
    return records
