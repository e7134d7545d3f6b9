"""Classic consumer groups by a real client, librdkafka, on both clusters; and a real SIGKILL."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker

PARTITIONS = 4
RECORDS = 40
WAIT_SECONDS_MAX = 90.0
STRATEGIES = ("range", "cooperative-sticky")


def filled(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for i in range(RECORDS):
        producer.produce(topic, value=b"%d" % i, partition=i % PARTITIONS)
    assert producer.flush(30) == 0


@contextmanager
def member(bootstrap: str, group: str, topic: str, strategy: str) -> Generator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "partition.assignment.strategy": strategy,
        }
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def poll_until(
    members: Sequence[Consumer], is_so: Callable[[], bool], seen: list[int] | None = None
) -> None:
    """Poll all in turn until it is so; `seen` gets the numbers that were read."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, [owned(each) for each in members]
        for each in members:
            message = each.poll(0.05)
            value = message.value() if message is not None and message.error() is None else None
            if seen is not None and value is not None:
                seen.append(int(value))


def owned(consumer: Consumer) -> set[int]:
    return {where.partition for where in consumer.assignment()}


def committed(consumer: Consumer, topic: str) -> list[int]:
    wanted = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    return [where.offset for where in consumer.committed(wanted, timeout=30)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_share_the_partitions_and_who_stays_gets_them_back(
    cluster: KafkaBroker | HoldfastBroker, topic_name: str, strategy: str
):
    filled(cluster.bootstrap, topic_name)
    everything = set(range(PARTITIONS))
    with member(cluster.bootstrap, topic_name, topic_name, strategy) as first:
        poll_until([first], lambda: owned(first) == everything)
        with member(cluster.bootstrap, topic_name, topic_name, strategy) as second:
            poll_until([first, second], lambda: len(owned(first)) == len(owned(second)) == 2)
            assert owned(first) | owned(second) == everything
            mine = [TopicPartition(topic_name, p, 5) for p in owned(second)]
            second.commit(offsets=mine, asynchronous=False)
            kept = {where.partition for where in mine}
        poll_until([first], lambda: owned(first) == everything)
        expected = [5 if p in kept else -1001 for p in range(PARTITIONS)]
        assert committed(first, topic_name) == expected


def test_committed_offsets_and_the_group_survive_sigkill_of_the_broker(tmp_path: Path):
    broker = HoldfastBroker(tmp_path / "killed").start()
    try:
        filled(broker.bootstrap, "t")
        with member(broker.bootstrap, "g", "t", "range") as consumer:
            poll_until([consumer], lambda: len(owned(consumer)) == PARTITIONS)
            offsets = [TopicPartition("t", p, p + 3) for p in range(PARTITIONS)]
            consumer.commit(offsets=offsets, asynchronous=False)
            broker.kill()
            broker.start()
            assert committed(consumer, "t") == [3, 4, 5, 6]
            poll_until([consumer], lambda: commits(consumer, TopicPartition("t", 0, 9)))
        with member(broker.bootstrap, "g", "t", "range") as successor:
            starts = [9, 4, 5, 6]
            wanted = [i for i in range(RECORDS) if i // PARTITIONS >= starts[i % PARTITIONS]]
            seen: list[int] = []
            poll_until([successor], lambda: len(seen) >= len(wanted), seen)
            assert sorted(seen) == wanted
    finally:
        broker.stop()


def commits(consumer: Consumer, offset: TopicPartition) -> bool:
    """Whether the member is in its group again, so that it may commit."""
    try:
        consumer.commit(offsets=[offset], asynchronous=False)
    except KafkaException:
        return False
    return True
