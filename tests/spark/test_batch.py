"""Batch queries through a real Spark, on a directory store and on its broker: the same rows."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker
from tests.support.topics import Topics

from holdfast.spark.source.inputs import read_range

pytestmark = pytest.mark.spark

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def read(spark: Any, where: dict[str, str], topic: str, /, **options: str) -> Any:
    reader = spark.read.format("holdfast").options(**where).option("subscribe", topic)
    return reader.options(**options).load()


def rows(frame: Any) -> list[Any]:
    return sorted(tuple(row) for row in frame.collect())


@pytest.fixture(params=["store", "broker"])
def where(request: pytest.FixtureRequest, holdfast_broker: HoldfastBroker) -> dict[str, str]:
    if request.param == "store":
        return {"store": holdfast_broker.store}
    return {"kafka.bootstrap.servers": holdfast_broker.bootstrap}


def test_store_and_broker_give_identical_rows(
    spark: Any, holdfast_broker: HoldfastBroker, topics: Topics, topic: str
) -> None:
    topics.create(topic, 2)
    topics.produce(topic, [b"a", None, b"", "\u00e9".encode()], partition=0)
    topics.produce(
        topic, [f"v{i}" for i in range(1000)], partition=1, timestamp_ms=1_700_000_000_000
    )
    by_store = read(spark, {"store": holdfast_broker.store}, topic)
    by_broker = read(spark, {"kafka.bootstrap.servers": holdfast_broker.bootstrap}, topic)
    assert by_store.columns == COLUMNS
    found = rows(by_store.selectExpr("partition", "offset", "key", "value", "topic", "timestamp"))
    assert [(p, o) for p, o, *_ in found] == [
        *((0, i) for i in range(4)),
        *((1, i) for i in range(1000)),
    ]
    assert [bytes(v) if v is not None else None for _, _, _, v, *_ in found[:4]] == [
        b"a",
        None,
        b"",
        "\u00e9".encode(),
    ]
    assert found[4][5].timestamp() == 1_700_000_000
    columns = ["partition", "offset", "key", "value", "topic", "timestamp", "timestampType"]
    assert rows(by_store.select(columns)) == rows(by_broker.select(columns))


def test_headers_come_where_they_are_asked_for(
    spark: Any, where: dict[str, str], topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.produce(topic, ["v"], headers=[("trace", b"1"), ("empty", None), ("trace", b"")])
    topics.produce(topic, ["w"])
    frame = read(spark, where, topic, includeHeaders="true")
    assert frame.columns == [*COLUMNS, "headers"]
    first, second = frame.orderBy("offset").collect()
    assert [(h["key"], h["value"]) for h in first["headers"]] == [
        ("trace", b"1"),
        ("empty", None),
        ("trace", b""),
    ]
    assert not second["headers"]


def test_a_filter_hides_no_row_from_a_later_use_of_the_same_frame(
    spark: Any, where: dict[str, str], topics: Topics, topic: str
) -> None:
    """Spark would keep a plan that a pushed filter narrowed; so none is taken, on any setting."""
    topics.create(topic, 2)
    topics.produce(topic, [f"a{i}" for i in range(4)], partition=0)
    topics.produce(topic, [f"b{i}" for i in range(3)], partition=1)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("holdfast").options(**where).option("subscribe", topic).load()
        assert frame.where("partition = 1").count() == 3
        assert frame.count() == 7
        halves = frame.where("offset < 2").union(frame.where("offset >= 2"))
        assert halves.count() == 7
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


MOMENT_MS = 1_700_000_000_000
"""2023-11-14 22:13:20 in UTC."""


def fill_with_times_up_and_down(topics: Topics, topic: str) -> None:
    topics.create(topic, 3)
    for partition in range(3):
        for since_ms in (0, 60_000, 10_000, 50_000):
            values = [f"{partition}-{since_ms}-{i}" for i in range(25)]
            at_ms = MOMENT_MS + since_ms
            topics.produce(topic, values, partition=partition, timestamp_ms=at_ms)


def test_the_option_where_gives_the_rows_of_the_filter_from_less_that_is_read(
    spark: Any, where: dict[str, str], topics: Topics, topic: str
) -> None:
    fill_with_times_up_and_down(topics, topic)
    every = read(spark, where, topic)
    for text, count in (
        ("timestamp >= '2023-11-14 22:13:30' AND partition IN (0, 2) AND offset < 60", 70),
        ("timestamp BETWEEN TIMESTAMP '2023-11-14 22:13:20.020' AND '2023-11-14 22:13:30.004'", 30),
        (f"offset IN (3, 30, 99) AND partition > 0 AND topic = '{topic}'", 6),
        ("timestamp > '2023-11-14 22:14:20.024'", 0),
        ("partition = 7", 0),
    ):
        expected = rows(every.where(text))
        assert len(expected) == count
        assert rows(read(spark, where, topic, where=text)) == expected

    text = "timestamp >= '2023-11-14T22:14:10Z' AND partition IN (0, 2)"
    planned = read(spark, where, topic, where=text, rows="ranges").collect()
    ranges = [pickle.loads(row["range"]) for row in planned]
    assert sorted((r.partition, r.start_offset, r.end_offset) for r in ranges) == [
        (0, 25, 100),
        (2, 25, 100),
    ]
    whole = read(spark, where, topic, rows="ranges").collect()
    all_bytes = sum(pickle.loads(row["range"]).size_bytes for row in whole)
    assert sum(r.size_bytes for r in ranges) <= all_bytes * 0.4


def test_the_option_where_stays_with_its_frame_and_hides_nothing_else_from_it(
    spark: Any, where: dict[str, str], topics: Topics, topic: str
) -> None:
    fill_with_times_up_and_down(topics, topic)
    frame = read(spark, where, topic, where="partition IN (0, 1) AND offset < 80")
    assert frame.where("offset < 10").count() == 20
    assert frame.count() == 160
    assert frame.where("partition = 1 AND offset >= 50").count() == 30
    assert frame.where("partition = 2").count() == 0
    first, second = frame.where("partition = 0"), frame.where("partition = 1")
    assert first.join(second, "offset").count() == 80
    assert read(spark, where, topic).count() == 300


def test_a_where_that_is_not_understood_is_refused_in_load(
    spark: Any, where: dict[str, str]
) -> None:
    with pytest.raises(PySparkException, match=r"OR at character 12.*use DataFrame\.where"):
        read(spark, where, "any", where="offset = 3 OR offset = 4")


def test_a_stream_refuses_where_and_says_what_instead(
    spark: Any, where: dict[str, str], tmp_path: Path
) -> None:
    frame = spark.readStream.format("holdfast").options(**where).option("subscribe", "any")
    with pytest.raises(PySparkException, match=r"where is for batch queries.*DataFrame\.where"):
        writer = frame.option("where", "offset < 5").load().writeStream.format("noop")
        writer.option("checkpointLocation", str(tmp_path)).start().processAllAvailable()


def test_bounds_by_offset_and_by_time(
    spark: Any, where: dict[str, str], topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.produce(topic, [str(i) for i in range(20)], timestamp_ms=1_700_000_000_000)

    def read_offsets(**options: str) -> list[int]:
        frame = read(spark, where, topic, **options).select("offset")
        return [row[0] for row in rows(frame)]

    assert read_offsets(
        startingOffsets=f'{{"{topic}":{{"0":5}}}}', endingOffsets=f'{{"{topic}":{{"0":8}}}}'
    ) == [5, 6, 7]
    assert read_offsets(startingTimestamp="1700000000003", endingTimestamp="1700000000006") == [
        3,
        4,
        5,
    ]
    assert read_offsets(startingTimestamp="1700000000018") == [18, 19]


def test_an_empty_topic_gives_no_rows(
    spark: Any, where: dict[str, str], topics: Topics, topic: str
) -> None:
    topics.create(topic, 2)
    assert read(spark, where, topic).count() == 0


def test_a_row_for_each_range_carries_what_a_task_needs(
    spark: Any, where: dict[str, str], topics: Topics, topic: str
) -> None:
    topics.create(topic, 2)
    topics.produce(topic, ["a", "b"], partition=0)
    topics.produce(topic, ["c"], partition=1)
    frame = read(spark, where, topic, rows="ranges")
    assert frame.columns == ["range"]
    ranges = [pickle.loads(row["range"]) for row in frame.collect()]
    assert sorted((r.partition, r.start_offset, r.end_offset) for r in ranges) == [
        (0, 0, 2),
        (1, 0, 1),
    ]
    values = [row["value"] for r in ranges for batch in read_range(r) for row in batch.to_pylist()]
    assert sorted(values) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"startingOffsets": "latest"}, "cannot be latest"),
        ({"kafka.group.id": "g"}, "no consumer group"),
    ],
)
def test_wrong_options_reach_the_user_as_they_are_written(
    spark: Any, where: dict[str, str], options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        read(spark, where, "any", **options).count()


def test_a_topic_that_is_not_there_is_named(spark: Any, where: dict[str, str]) -> None:
    with pytest.raises(PySparkException, match="there is no 'nowhere'"):
        read(spark, where, "nowhere").count()


def test_a_schema_of_the_users_own_is_refused(spark: Any, where: dict[str, str]) -> None:
    frame = spark.read.format("holdfast").options(**where).option("subscribe", "t")
    with pytest.raises(PySparkException, match="fixed"):
        frame.schema("id int").load().count()


def test_apache_kafka_gives_the_rows_that_were_produced(
    spark: Any, kafka_broker: KafkaBroker, topic: str
) -> None:
    peer = Topics(kafka_broker.bootstrap)
    peer.create(topic, 2)
    peer.produce(topic, [f"v{i}" for i in range(500)], partition=1, headers=[("h", b"x")])
    where = {"kafka.bootstrap.servers": kafka_broker.bootstrap}
    frame = read(spark, where, topic, includeHeaders="true")
    found = rows(frame.selectExpr("offset", "cast(value as string)", "partition", "headers[0].key"))
    assert found == [(i, f"v{i}", 1, "h") for i in range(500)]
