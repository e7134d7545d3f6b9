"""A batch write into topics against a real broker: all of it is seen, or nothing."""

from collections.abc import Mapping

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql.types import StringType, StructField, StructType
from tests.peers.holdfast import HoldfastBroker
from tests.support.librdkafka import committed_values

from holdfast.client.refusals import RequestRefused
from holdfast.errors import ConfigurationError
from holdfast.spark.topic.batch import TopicBatchWriter
from holdfast.spark.topic.sink import topic_options

SCHEMA = StructType([StructField("topic", StringType()), StructField("value", StringType())])


def create(broker: HoldfastBroker, name: str, **config: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    told = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, 1, 1, config=told)])[name].result(30)
    return name


def writer(broker: HoldfastBroker, **options: str) -> TopicBatchWriter:
    given: Mapping[str, str] = {"kafka.bootstrap.servers": broker.bootstrap, **options}
    return TopicBatchWriter(topic_options(given, SCHEMA, overwrite=False, is_batch=True))


def rows(*pairs: tuple[str, str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"topic": t, "value": v} for t, v in pairs])


def values(broker: HoldfastBroker, topic: str) -> list[bytes]:
    return sorted(committed_values(broker.bootstrap, topic, 0))


def test_nothing_is_seen_before_the_commit_and_all_tasks_after_it(
    holdfast_broker: HoldfastBroker,
):
    topic = create(holdfast_broker, "topic-batch-all")
    mine = writer(holdfast_broker)
    told = [mine.write(iter([rows(*((topic, f"{task}-{i}") for i in range(3)))])) for task in "ab"]
    assert values(holdfast_broker, topic) == []
    mine.commit(told)
    assert values(holdfast_broker, topic) == [b"a-0", b"a-1", b"a-2", b"b-0", b"b-1", b"b-2"]


def test_a_write_that_is_refused_in_the_middle_is_aborted_whole(holdfast_broker: HoldfastBroker):
    topic = create(holdfast_broker, "topic-batch-fits")
    small = create(holdfast_broker, "topic-batch-small", max_message_bytes="200")
    mine = writer(holdfast_broker, **{"kafka.compression.type": "none"})
    told = [mine.write(iter([rows((topic, "fits"), (small, "x" * 5_000))]))]
    with pytest.raises(RequestRefused, match="MESSAGE_TOO_LARGE"):
        mine.commit(told)
    again = writer(holdfast_broker)
    again.commit([again.write(iter([rows((topic, "after"))]))])
    assert values(holdfast_broker, topic) == [b"after"]


def test_what_a_batch_cannot_do_is_told_with_the_remedy(holdfast_broker: HoldfastBroker):
    with pytest.raises(ConfigurationError, match="checkpointLocation is for streams"):
        writer(holdfast_broker, checkpointLocation="/tmp/none")
    given = {"kafka.bootstrap.servers": holdfast_broker.bootstrap}
    with pytest.raises(ConfigurationError, match="would replace what is in a topic"):
        topic_options(given, SCHEMA, overwrite=True, is_batch=True)
