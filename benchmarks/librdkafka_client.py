"""librdkafka's side, through confluent-kafka: a tight produce loop and consume() in batches."""

import random
import string
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.java_client import ClientFailed

PAYLOADS = 512
RUN_SECONDS_MAX = 240.0
ASK_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    records: int
    seconds: float


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(ASK_SECONDS_MAX)
    deadline = time.monotonic() + ASK_SECONDS_MAX
    while time.monotonic() < deadline:
        shown = admin.list_topics(topic, timeout=ASK_SECONDS_MAX).topics[topic].partitions
        if len(shown) == partitions and all(p.leader >= 0 for p in shown.values()):
            return
        time.sleep(0.05)
    raise ClientFailed(f"topic {topic} has no leaders after {ASK_SECONDS_MAX} s")


def payloads(record_bytes: int) -> list[bytes]:
    """Random capital letters, as Kafka's own tool sends; the same ones in every run."""
    source = random.Random(record_bytes)
    letters = string.ascii_uppercase.encode()
    return [bytes(source.choices(letters, k=record_bytes)) for _ in range(PAYLOADS)]


def produce(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    record_bytes: int,
    codec: str,
    records_max: int,
    seconds_max: float,
) -> Run:
    """Send until either bound is reached, then wait for every answer: that ends the clock."""
    refused: list[KafkaError] = []

    def report(error: KafkaError | None, _: object) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 5,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 262_144,
            "on_delivery": report,
            "log_level": 3,
        }
    )
    producer.list_topics(topic, timeout=ASK_SECONDS_MAX)
    values = payloads(record_bytes)
    begun = time.monotonic()
    sent = 0
    while sent < records_max and time.monotonic() - begun < seconds_max and not refused:
        for number in range(sent, min(sent + 5_000, records_max)):
            try:
                producer.produce(topic, values[number % PAYLOADS], partition=number % partitions)
            except BufferError:
                producer.poll(0.05)
                break
            sent += 1
        producer.poll(0)
    left = producer.flush(RUN_SECONDS_MAX)
    if left or refused:
        raise ClientFailed(
            f"{left} records without an answer, {len(refused)} refused {refused[:1]}"
        )
    return Run(records=sent, seconds=time.monotonic() - begun)


def consume(bootstrap: str, topic: str, *, partitions: int, records: int) -> Run:
    """Read all partitions from the beginning; the clock starts when they are assigned."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "outside-any-group",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": 262_144,
            "fetch.queue.backoff.ms": 5,
        }
    )
    try:
        consumer.list_topics(topic, timeout=ASK_SECONDS_MAX)
        begun = time.monotonic()
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        read = 0
        while read < records:
            batch = consumer.consume(10_000, timeout=0.5)
            read += sum(1 for message in batch if message.error() is None)
            if time.monotonic() - begun > RUN_SECONDS_MAX:
                raise ClientFailed(f"only {read} of {records} records in {RUN_SECONDS_MAX} s")
        return Run(records=read, seconds=time.monotonic() - begun)
    finally:
        consumer.close()


def latest_offsets(bootstrap: str, topic: str, partitions: int) -> int:
    """The sum of the partitions' latest offsets, or -1 while the broker does not answer."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "outside-any-group", "log_level": 0}
    )
    try:
        return sum(
            consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=2.0)[1]
            for index in range(partitions)
        )
    except KafkaException:
        return -1
    finally:
        consumer.close()
