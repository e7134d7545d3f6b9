"""The options of the sink: what they mean, and what is refused with which remedy."""

import pytest

from holdfast.errors import ConfigurationError
from holdfast.records.compression import Codec
from holdfast.spark.topic.options import TopicOptions, parse_topic_options

LEAST = {"kafka.bootstrap.servers": "localhost:9092", "sinkId": "orders", "topic": "out"}


def parsed(**more: str) -> TopicOptions:
    return parse_topic_options({**LEAST, **{n.replace("__", "."): v for n, v in more.items()}})


def test_three_options_are_enough():
    found = parsed()
    assert (found.topic, found.position_topic) == ("out", "out")
    assert found.transactional_id == found.group_id == "holdfast-sink-orders"
    assert found.codec is Codec.LZ4
    assert found.client.bootstrap == "localhost:9092"
    assert found.committed_batch is None


def test_names_do_not_depend_on_case_and_a_producers_options_are_known():
    found = parsed(
        CHECKPOINTLOCATION="/tmp/c",
        kafka__Compression__Type="zstd",
        kafka__acks="all",
        kafka__linger__ms="5",
        kafka__transaction__timeout__ms="9000",
        kafka__client__id="me",
        committedBatch="7",
    )
    assert found.checkpoint == "/tmp/c"
    assert (found.codec, found.transaction_timeout_ms) == (Codec.ZSTD, 9000)
    assert (found.client.client_id, found.committed_batch) == ("me", 7)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"sinkId": ""}, "sinkId is missing"),
        ({"sinkId": "a/b"}, "sinkId"),
        ({"topic": "a b"}, "topic: "),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers"),
        ({"kafka.acks": "1"}, "would lose or double"),
        ({"kafka.enable.idempotence": "false"}, "would lose or double"),
        ({"kafka.transactional.id": "x"}, "made of sinkId"),
        ({"kafka.compression.type": "brotli"}, "lz4"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "no SASL"),
        ({"sinkid2": "x"}, "did you mean 'sinkId'"),
        ({"committedBatch": "-2"}, "whole number"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(more: dict[str, str], said: str):
    with pytest.raises(ConfigurationError, match=said):
        parse_topic_options({**LEAST, **more})


def test_rows_that_name_their_topics_need_a_place_for_the_position():
    without = {name: value for name, value in LEAST.items() if name != "topic"}
    with pytest.raises(ConfigurationError, match="positionTopic"):
        parse_topic_options(without)
    found = parse_topic_options({**without, "positionTopic": "first"})
    assert (found.topic, found.position_topic) == (None, "first")
