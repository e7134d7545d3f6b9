"""How a fetch waits and how much it brings: long poll, minimum and maximum bytes, sessions."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.compat.families.interface import (
    ClientFamily,
    ConsumerSettings,
    ProducerSettings,
    Record,
)

NewTopic = Callable[..., str]
LONG_WAIT = ConsumerSettings(fetch_wait_ms=25_000)


def test_a_waiting_fetch_returns_when_a_record_arrives(client: ClientFamily, topic: str):
    client.produce(topic, [Record(value=b"before")])
    with client.consumer(topic, {0: 0}, LONG_WAIT) as consumer, ThreadPoolExecutor(1) as threads:
        assert [record.value for record in consumer.take(1)] == [b"before"]
        # Less than the fetch would wait if the record did not end it.
        waiting = threads.submit(consumer.take, 1, seconds_max=24)
        client.produce(topic, [Record(value=b"after")])
        (record,) = waiting.result(60)
        assert record.value == b"after"


def test_a_fetch_waits_for_its_minimum_bytes_but_not_longer_than_it_said(
    client: ClientFamily, topic: str
):
    client.produce(topic, [Record(value=b"small")])
    settings = ConsumerSettings(fetch_bytes_min=1_000_000, fetch_wait_ms=1500)
    begun = time.monotonic()
    with client.consumer(topic, {0: 0}, settings) as consumer:
        (record,) = consumer.take(1)
    assert record.value == b"small"
    assert time.monotonic() - begun > 1.4


def test_enough_bytes_end_the_wait_at_once(client: ClientFamily, topic: str):
    client.produce(topic, [Record(value=b"x" * 2000)] * 10)
    settings = ConsumerSettings(fetch_bytes_min=10_000, fetch_wait_ms=25_000)
    with client.consumer(topic, {0: 0}, settings) as consumer:
        begun = time.monotonic()
        assert len(consumer.take(10)) == 10
        assert time.monotonic() - begun < 20  # or it waited for the 25 s that it may


def test_a_small_byte_limit_cuts_fetches_but_loses_nothing(client: ClientFamily, topic: str):
    sent = [Record(value=b"%04d" % number + b"x" * 996) for number in range(100)]
    client.produce(topic, sent, ProducerSettings(batch_bytes=4000))
    settings = ConsumerSettings(fetch_bytes_max=10_000, partition_fetch_bytes_max=6000)
    consumed = client.consume(topic, 100, settings=settings)
    assert [record.offset for record in consumed] == list(range(100))
    assert [record.value for record in consumed] == [record.value for record in sent]


def test_a_batch_larger_than_the_byte_limit_is_still_delivered(client: ClientFamily, topic: str):
    large = Record(value=b"x" * 200_000)
    client.produce(topic, [large, large], ProducerSettings(batch_bytes=1000))
    settings = ConsumerSettings(fetch_bytes_max=1000, partition_fetch_bytes_max=1000)
    consumed = client.consume(topic, 2, settings=settings)
    assert [record.value for record in consumed] == [large.value, large.value]


def test_fifty_partitions_are_fetched_in_one_session(
    client: ClientFamily, topic_name: str, new_topic: NewTopic
):
    topic = new_topic(topic_name, partitions=50)
    sent = [Record(value=b"%d" % number, partition=number % 50) for number in range(500)]
    client.produce(topic, sent)
    with client.consumer(topic, dict.fromkeys(range(50), 0)) as consumer:
        consumed = consumer.take(500)
        assert {record.value for record in consumed} == {record.value for record in sent}
        assert len(consumed) == 500
        # Later rounds of an incremental session name only what has changed.
        for partition in (7, 49, 7):
            client.produce(topic, [Record(value=b"later", partition=partition)])
            (later,) = consumer.take(1)
            assert (later.partition, later.value) == (partition, b"later")


def test_a_consumer_at_the_end_sees_only_what_comes_later(client: ClientFamily, topic: str):
    client.produce(topic, [Record(value=b"old")] * 3)
    with client.consumer(topic, {0: 3}) as consumer:
        client.produce(topic, [Record(value=b"new")] * 2)
        assert [(r.offset, r.value) for r in consumer.take(2)] == [(3, b"new"), (4, b"new")]


def test_two_consumers_read_the_same_partition_apart(client: ClientFamily, topic: str):
    client.produce(topic, [Record(value=b"%d" % number) for number in range(30)])
    with client.consumer(topic, {0: 0}) as first, client.consumer(topic, {0: 20}) as second:
        assert [record.offset for record in second.take(10)] == list(range(20, 30))
        assert [record.offset for record in first.take(30)] == list(range(30))
