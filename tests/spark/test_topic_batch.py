"""`df.write.format("holdfast")` on a real Spark, into a real Holdfast: all of it, or nothing."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.peers.holdfast import HoldfastBroker
from tests.support.topics import Topics

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]


def read(spark: Any, broker: HoldfastBroker, topic: str) -> Any:
    reader = spark.read.format("holdfast").option("kafka.bootstrap.servers", broker.bootstrap)
    reader = reader.option("subscribe", topic).option("includeHeaders", "true")
    return reader.option("kafka.isolation.level", "read_committed").load()


def writer(frame: Any, broker: HoldfastBroker, **options: str) -> Any:
    made = frame.write.format("holdfast").mode("append")
    return made.option("kafka.bootstrap.servers", broker.bootstrap).options(**options)


def test_rows_go_to_their_topics_with_key_partition_and_headers(
    spark: Any, holdfast_broker: HoldfastBroker, topics: Topics, topic: str
):
    topics.create(topic, 3)
    frame = spark.range(300).selectExpr(
        "string(id) key",
        "concat('v', id) value",
        f"'{topic}' topic",
        "int(id % 3) partition",
        "array(named_struct('key', 'n', 'value', cast(string(id) as binary))) headers",
        "id other",
    )
    writer(frame.repartition(3), holdfast_broker).save()
    rows = read(spark, holdfast_broker, topic).collect()
    assert Counter(bytes(row.value) for row in rows) == Counter(b"v%d" % i for i in range(300))
    for row in rows:
        number = int(row.key)
        assert (row.partition, row.headers[0].value) == (number % 3, b"%d" % number)


def test_a_task_that_fails_in_the_middle_leaves_nothing_and_the_next_write_is_there_once(
    spark: Any, holdfast_broker: HoldfastBroker, topics: Topics, topic: str
):
    topics.create(topic, 2)
    frame = spark.range(0, 400, 1, 4).selectExpr("string(id) value")
    failing = spark.range(0, 400, 1, 4).selectExpr(
        "if(id = 399, raise_error('the last task'), string(id)) value"
    )
    with pytest.raises(Exception, match="the last task"):
        writer(failing, holdfast_broker, topic=topic).save()
    assert read(spark, holdfast_broker, topic).count() == 0
    writer(frame, holdfast_broker, topic=topic, sinkId="orders").save()
    found = Counter(int(row.value) for row in read(spark, holdfast_broker, topic).collect())
    assert found == Counter(range(400))


def test_a_write_that_is_refused_in_the_middle_is_aborted_whole(
    spark: Any, holdfast_broker: HoldfastBroker, topics: Topics, topic: str
):
    """The second topic takes no batch of this size, after the first has taken its part."""
    small = f"{topic}-small"
    topics.create(topic, 1)
    topics.create(small, 1)
    topics.set_config(small, "max.message.bytes", "200")
    frame = spark.createDataFrame(
        [(topic, "fits"), (small, "x" * 5_000)], "topic string, value string"
    )
    options = {"kafka.compression.type": "none"}
    with pytest.raises(Exception, match="MESSAGE_TOO_LARGE"):
        writer(frame, holdfast_broker, **options).save()
    assert read(spark, holdfast_broker, topic).count() == 0
    topics.produce(topic, ["after"])
    (row,) = read(spark, holdfast_broker, topic).collect()
    assert bytes(row.value) == b"after"


def test_what_a_batch_cannot_do_is_told_with_the_remedy(
    spark: Any, holdfast_broker: HoldfastBroker, tmp_path: Path
):
    frame = spark.range(1).selectExpr("string(id) value")
    with pytest.raises(Exception, match="would replace what is in a topic"):
        writer(frame, holdfast_broker, topic="t").mode("overwrite").save()
    with pytest.raises(Exception, match="checkpointLocation is for streams"):
        writer(frame, holdfast_broker, topic="t", checkpointLocation=str(tmp_path)).save()
    with pytest.raises(Exception, match="say which topic"):
        writer(frame, holdfast_broker).save()
