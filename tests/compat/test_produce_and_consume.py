"""Records go in and come out: the same bytes, order, headers and timestamps, by every client."""

import hashlib
import time
from collections.abc import Callable

import pytest
from tests.compat.families.interface import (
    Ability,
    ClientFamily,
    ConsumerSettings,
    ErrorCode,
    ProducerSettings,
    Record,
)

NewTopic = Callable[..., str]
CREATED_MS = int(time.time() - 3_600) * 1_000
"""Not so long ago that retention would take the records in the middle of a test."""


def incompressible(size: int) -> bytes:
    blocks = (hashlib.sha256(number.to_bytes(4)).digest() for number in range(size // 32 + 1))
    return b"".join(blocks)[:size]


def contents(records: list[Record]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records]


def test_each_codec_brings_back_what_was_sent(client: ClientFamily, codec: str, topic: str):
    sent = [
        Record(key=b"key-%d" % number, value=b"value-%d " % number * 50) for number in range(100)
    ]
    deliveries = client.produce(topic, sent, ProducerSettings(compression=codec))
    assert [delivery.offset for delivery in deliveries] == list(range(100))
    consumed = client.consume(topic, 100)
    assert contents(consumed) == contents(sent)
    assert [record.offset for record in consumed] == list(range(100))


def test_null_and_empty_keys_and_values_are_told_apart(client: ClientFamily, topic: str):
    sent = [
        Record(key=None, value=b"no key"),
        Record(key=b"", value=b"empty key"),
        Record(key=b"tombstone", value=None),
        Record(key=b"empty value", value=b""),
    ]
    client.produce(topic, sent)
    assert contents(client.consume(topic, 4)) == contents(sent)


def test_headers_keep_their_order_and_their_doubles(client: ClientFamily, topic: str):
    headers = (("trace", b"1"), ("kind", "grün".encode()), ("trace", b"2"), ("empty", b""))
    client.produce(topic, [Record(value=b"with", headers=headers), Record(value=b"without")])
    with_headers, without_headers = client.consume(topic, 2)
    assert with_headers.headers == headers
    assert without_headers.headers == ()


@pytest.mark.needs(Ability.NULL_HEADER)
def test_a_header_may_have_no_value(client: ClientFamily, topic: str):
    headers = (("nothing", None), ("something", b"x"))
    client.produce(topic, [Record(value=b"v", headers=headers)])
    (record,) = client.consume(topic, 1)
    assert record.headers == headers


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_records_arrive_whatever_acks_the_producer_asks_for(
    client: ClientFamily, topic: str, acks: int
):
    sent = [Record(value=b"%d" % number) for number in range(20)]
    deliveries = client.produce(topic, sent, ProducerSettings(acks=acks))
    assert {delivery.error for delivery in deliveries} == {ErrorCode.NONE}
    if acks != 0:
        assert [delivery.offset for delivery in deliveries] == list(range(20))
    assert contents(client.consume(topic, 20)) == contents(sent)


def test_an_idempotent_producer_keeps_order_over_many_small_batches(
    client: ClientFamily, topic_name: str, new_topic: NewTopic
):
    topic = new_topic(topic_name, partitions=3)
    sent = [Record(value=b"%d" % number, partition=number % 3) for number in range(1500)]
    settings = ProducerSettings(idempotent=True, batch_bytes=500, linger_ms=0)
    deliveries = client.produce(topic, sent, settings)
    assert {delivery.error for delivery in deliveries} == {ErrorCode.NONE}
    consumed = client.consume(topic, 1500, positions={0: 0, 1: 0, 2: 0})
    for partition in range(3):
        values = [record.value for record in consumed if record.partition == partition]
        assert values == [b"%d" % number for number in range(1500) if number % 3 == partition]
        offsets = [record.offset for record in consumed if record.partition == partition]
        assert offsets == list(range(500))


def test_two_idempotent_producers_share_a_partition(client: ClientFamily, topic: str):
    settings = ProducerSettings(idempotent=True)
    first = client.produce(topic, [Record(value=b"first")] * 10, settings)
    second = client.produce(topic, [Record(value=b"second")] * 10, settings)
    assert [delivery.offset for delivery in first + second] == list(range(20))
    values = [record.value for record in client.consume(topic, 20)]
    assert values == [b"first"] * 10 + [b"second"] * 10


def test_a_keyed_record_goes_to_the_partition_of_its_key(
    client: ClientFamily, topic_name: str, new_topic: NewTopic
):
    topic = new_topic(topic_name, partitions=4)
    sent = [
        Record(key=b"key-%d" % (number % 20), value=b"%d" % number, partition=None)
        for number in range(200)
    ]
    client.produce(topic, sent)
    consumed = client.consume(topic, 200, positions=dict.fromkeys(range(4), 0))
    partitions_by_key: dict[bytes | None, set[int | None]] = {}
    for record in consumed:
        partitions_by_key.setdefault(record.key, set()).add(record.partition)
    assert len(consumed) == 200
    assert all(len(partitions) == 1 for partitions in partitions_by_key.values())
    assert len({partition for (partition,) in partitions_by_key.values()}) > 1


def test_the_producers_timestamp_is_kept(client: ClientFamily, topic: str):
    sent = [Record(value=b"v", timestamp_ms=CREATED_MS + number * 7) for number in range(5)]
    client.produce(topic, sent)
    consumed = client.consume(topic, 5)
    assert [r.timestamp_ms for r in consumed] == [CREATED_MS + number * 7 for number in range(5)]
    assert not any(record.append_time for record in consumed)


def test_a_log_append_time_topic_stamps_records_itself(
    client: ClientFamily, topic_name: str, new_topic: NewTopic
):
    topic = new_topic(topic_name, message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    client.produce(topic, [Record(value=b"v", timestamp_ms=CREATED_MS)] * 3)
    after_ms = int(time.time() * 1000)
    consumed = client.consume(topic, 3)
    assert all(record.append_time for record in consumed)
    assert all(before_ms <= (record.timestamp_ms or 0) <= after_ms for record in consumed)


@pytest.mark.needs(Ability.APPEND_TIME_OF_DELIVERY)
def test_a_producer_is_told_the_time_that_a_log_append_time_topic_has_stamped(
    client: ClientFamily, topic_name: str, new_topic: NewTopic
):
    topic = new_topic(topic_name, message_timestamp_type="LogAppendTime")
    deliveries = client.produce(topic, [Record(value=b"v", timestamp_ms=CREATED_MS)] * 3)
    consumed = client.consume(topic, 3)
    assert [d.timestamp_ms for d in deliveries] == [r.timestamp_ms for r in consumed]


def test_a_compressed_batch_on_a_log_append_time_topic_is_stamped_too(
    client: ClientFamily, topic_name: str, new_topic: NewTopic
):
    topic = new_topic(topic_name, message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    settings = ProducerSettings(compression="gzip")
    client.produce(topic, [Record(value=b"v" * 100, timestamp_ms=CREATED_MS)] * 10, settings)
    consumed = client.consume(topic, 10)
    assert all(record.append_time for record in consumed)
    assert all((record.timestamp_ms or 0) >= before_ms for record in consumed)


def test_a_record_close_to_the_size_limit_comes_back_whole(client: ClientFamily, topic: str):
    value = incompressible(1_048_000)
    settings = ProducerSettings(request_bytes_max=2_000_000)
    (delivery,) = client.produce(topic, [Record(value=value)], settings)
    assert delivery.error == ErrorCode.NONE
    (record,) = client.consume(topic, 1)
    assert record.value == value


def test_a_consumer_starts_in_the_middle_of_a_batch(client: ClientFamily, topic: str):
    client.produce(topic, [Record(value=b"%d" % number) for number in range(50)])
    consumed = client.consume(topic, 13, positions={0: 37})
    assert [record.offset for record in consumed] == list(range(37, 50))
    assert consumed[0].value == b"37"


def test_read_committed_sees_records_outside_transactions(client: ClientFamily, topic: str):
    client.produce(topic, [Record(value=b"plain")] * 5, ProducerSettings(idempotent=True))
    settings = ConsumerSettings(isolation="read_committed")
    assert len(client.consume(topic, 5, settings=settings)) == 5


def test_producing_to_an_absent_topic_creates_it(client: ClientFamily, topic_name: str):
    (delivery,) = client.produce(topic_name, [Record(value=b"first", partition=None)])
    assert (delivery.error, delivery.offset) == (ErrorCode.NONE, 0)
    assert topic_name in client.list_topics()
    (record,) = client.consume(topic_name, 1, positions={delivery.partition: 0})
    assert record.value == b"first"
