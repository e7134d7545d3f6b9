"""Offsets that a broker names: earliest, latest, by time, by leader epoch, after DeleteRecords."""

import time
from collections.abc import Callable

import pytest
from tests.compat.families.interface import (
    Ability,
    ClientFamily,
    ConsumerSettings,
    ErrorCode,
    LogTruncated,
    OffsetSpec,
    ProducerSettings,
    Record,
    Refusal,
)

NewTopic = Callable[..., str]
CREATED_MS = int(time.time() - 3_600) * 1_000
"""Not so long ago that retention would take the records in the middle of a test."""


def produce_numbers(client: ClientFamily, topic: str, count: int) -> None:
    sent = [Record(value=b"%d" % n, timestamp_ms=CREATED_MS + n * 1000) for n in range(count)]
    deliveries = client.produce(topic, sent, ProducerSettings(batch_bytes=100, linger_ms=0))
    assert {delivery.error for delivery in deliveries} == {ErrorCode.NONE}


def offset(client: ClientFamily, topic: str, spec: OffsetSpec | int) -> int:
    return client.list_offset(topic, 0, spec).offset


def test_an_empty_partition_begins_and_ends_at_zero(client: ClientFamily, topic: str):
    assert offset(client, topic, OffsetSpec.EARLIEST) == 0
    assert offset(client, topic, OffsetSpec.LATEST) == 0
    assert offset(client, topic, CREATED_MS) == -1


def test_latest_is_one_past_the_last_acknowledged_record(client: ClientFamily, topic: str):
    produce_numbers(client, topic, 7)
    assert offset(client, topic, OffsetSpec.EARLIEST) == 0
    assert offset(client, topic, OffsetSpec.LATEST) == 7
    produce_numbers(client, topic, 3)
    assert offset(client, topic, OffsetSpec.LATEST) == 10


def test_asking_by_time_finds_the_first_record_not_older(client: ClientFamily, topic: str):
    produce_numbers(client, topic, 10)
    found = client.list_offset(topic, 0, CREATED_MS + 4000)
    assert (found.offset, found.timestamp_ms) == (4, CREATED_MS + 4000)
    between = client.list_offset(topic, 0, CREATED_MS + 4001)
    assert (between.offset, between.timestamp_ms) == (5, CREATED_MS + 5000)
    assert offset(client, topic, 0) == 0
    assert offset(client, topic, CREATED_MS + 9001) == -1


def test_asking_by_time_looks_inside_a_compressed_batch(client: ClientFamily, topic: str):
    sent = [Record(value=b"v" * 100, timestamp_ms=CREATED_MS + n) for n in range(50)]
    client.produce(topic, sent, ProducerSettings(compression="gzip", linger_ms=100))
    found = client.list_offset(topic, 0, CREATED_MS + 33)
    assert (found.offset, found.timestamp_ms) == (33, CREATED_MS + 33)


@pytest.mark.needs(Ability.MAX_TIMESTAMP)
def test_the_maximum_timestamp_need_not_be_the_last_record(client: ClientFamily, topic: str):
    times = [CREATED_MS, CREATED_MS + 50, CREATED_MS + 99, CREATED_MS + 7, CREATED_MS + 98]
    for timestamp_ms in times:
        client.produce(topic, [Record(value=b"v", timestamp_ms=timestamp_ms)])
    found = client.list_offset(topic, 0, OffsetSpec.MAX_TIMESTAMP)
    assert (found.offset, found.timestamp_ms) == (2, CREATED_MS + 99)


@pytest.mark.needs(Ability.MAX_TIMESTAMP)
def test_an_empty_partition_has_no_maximum_timestamp(client: ClientFamily, topic: str):
    found = client.list_offset(topic, 0, OffsetSpec.MAX_TIMESTAMP)
    assert (found.offset, found.timestamp_ms) == (-1, -1)


def test_deleted_records_are_behind_the_earliest_offset(client: ClientFamily, topic: str):
    produce_numbers(client, topic, 10)
    assert client.delete_records(topic, 0, 4) == 4
    assert offset(client, topic, OffsetSpec.EARLIEST) == 4
    assert offset(client, topic, OffsetSpec.LATEST) == 10
    assert offset(client, topic, CREATED_MS) == 4
    consumed = client.consume(topic, 6, positions={0: 4})
    assert [record.offset for record in consumed] == [4, 5, 6, 7, 8, 9]


def test_deleting_up_to_the_high_watermark_empties_the_partition(client: ClientFamily, topic: str):
    produce_numbers(client, topic, 10)
    assert client.delete_records(topic, 0, -1) == 10
    assert offset(client, topic, OffsetSpec.EARLIEST) == 10
    produce_numbers(client, topic, 1)
    (record,) = client.consume(topic, 1, positions={0: 10})
    assert record.offset == 10


def test_records_beyond_the_high_watermark_cannot_be_deleted(client: ClientFamily, topic: str):
    produce_numbers(client, topic, 3)
    assert client.delete_records(topic, 0, 4) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert offset(client, topic, OffsetSpec.EARLIEST) == 0


@pytest.mark.parametrize("position", [0, 99])
def test_a_position_outside_the_log_is_refused(client: ClientFamily, topic: str, position: int):
    produce_numbers(client, topic, 5)
    client.delete_records(topic, 0, 2)
    with client.consumer(topic, {0: position}) as consumer, pytest.raises(Refusal) as refused:
        consumer.take(1)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_position_outside_the_log_is_reset_when_the_consumer_wants_that(
    client: ClientFamily, topic: str
):
    produce_numbers(client, topic, 5)
    client.delete_records(topic, 0, 2)
    settings = ConsumerSettings(reset="earliest")
    consumed = client.consume(topic, 3, positions={0: 0}, settings=settings)
    assert [record.offset for record in consumed] == [2, 3, 4]


@pytest.mark.needs(Ability.POSITION_WITH_LEADER_EPOCH)
def test_a_position_with_its_leader_epoch_is_found_valid(client: ClientFamily, topic: str):
    produce_numbers(client, topic, 5)
    with client.consumer(topic, {0: 3}, leader_epoch=0) as consumer:
        assert [record.offset for record in consumer.take(2)] == [3, 4]


@pytest.mark.needs(Ability.POSITION_WITH_LEADER_EPOCH)
def test_a_position_past_the_end_of_its_leader_epoch_is_a_truncation(
    client: ClientFamily, topic: str
):
    produce_numbers(client, topic, 5)
    with (
        client.consumer(topic, {0: 50}, leader_epoch=0) as consumer,
        pytest.raises(LogTruncated),
    ):
        consumer.take(1)
