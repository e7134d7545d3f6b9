"""Records that a broker must refuse, and what the producer is told."""

import time
from collections.abc import Callable

import pytest
from tests.compat.families.interface import (
    Ability,
    ClientFamily,
    ErrorCode,
    OffsetSpec,
    ProducerSettings,
    Record,
)

NewTopic = Callable[..., str]
ROOMY = ProducerSettings(request_bytes_max=10_000_000)
DAY_MS = 24 * 60 * 60 * 1000


def test_a_record_above_the_default_limit_is_too_large(client: ClientFamily, topic: str):
    (delivery,) = client.produce(topic, [Record(value=b"x" * 1_500_000)], ROOMY)
    assert delivery.error == ErrorCode.MESSAGE_TOO_LARGE
    assert client.list_offset(topic, 0, OffsetSpec.LATEST).offset == 0


def test_a_topic_sets_its_own_limit(client: ClientFamily, topic_name: str, new_topic: NewTopic):
    topic = new_topic(topic_name, max_message_bytes="10000")
    (too_large,) = client.produce(topic, [Record(value=b"x" * 20_000)], ROOMY)
    assert too_large.error == ErrorCode.MESSAGE_TOO_LARGE
    (small,) = client.produce(topic, [Record(value=b"x" * 5_000)], ROOMY)
    assert (small.error, small.offset) == (ErrorCode.NONE, 0)


def test_a_topic_may_allow_more_than_the_default(
    client: ClientFamily, topic_name: str, new_topic: NewTopic
):
    topic = new_topic(topic_name, max_message_bytes="3000000")
    (delivery,) = client.produce(topic, [Record(value=b"x" * 2_000_000)], ROOMY)
    assert (delivery.error, delivery.offset) == (ErrorCode.NONE, 0)
    (record,) = client.consume(topic, 1)
    assert len(record.value or b"") == 2_000_000


def test_a_timestamp_days_ahead_is_refused(client: ClientFamily, topic: str):
    ahead_ms = int(time.time() * 1000) + 2 * DAY_MS
    (delivery,) = client.produce(topic, [Record(value=b"v", timestamp_ms=ahead_ms)])
    assert delivery.error == ErrorCode.INVALID_TIMESTAMP
    assert client.list_offset(topic, 0, OffsetSpec.LATEST).offset == 0


@pytest.mark.needs(Ability.INVALID_RECORD)
def test_a_compacted_topic_refuses_a_record_without_a_key(
    client: ClientFamily, topic_name: str, new_topic: NewTopic
):
    topic = new_topic(topic_name, cleanup_policy="compact")
    (refused,) = client.produce(topic, [Record(value=b"no key")])
    assert refused.error == ErrorCode.INVALID_RECORD
    (taken,) = client.produce(topic, [Record(key=b"k", value=b"v")])
    assert (taken.error, taken.offset) == (ErrorCode.NONE, 0)
