"""`writeStream.format("holdfast")` on a real Spark, into a real Holdfast and a real Kafka."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker
from tests.support.librdkafka import committed_values
from tests.support.topics import Topics

from holdfast.client.cluster import Cluster
from holdfast.client.groups import committed_offsets
from holdfast.environment import SystemEnvironment

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PARTITIONS = 2
RECORDS = 40


@pytest.fixture(params=["holdfast", pytest.param("kafka", marks=pytest.mark.peer)])
def broker(request: pytest.FixtureRequest) -> HoldfastBroker | KafkaBroker:
    return request.getfixturevalue(f"{request.param}_broker")


class Query:
    """A stream from one topic into another, that is run to its end and begun again."""

    def __init__(
        self, spark: Any, broker: HoldfastBroker | KafkaBroker, name: str, folder: Path
    ) -> None:
        self.spark = spark
        self.broker = broker
        self.source, self.out = f"{name}-in", f"{name}-out"
        self.checkpoint = folder / "checkpoint"
        self.topics = Topics(broker.bootstrap)
        self.topics.create(self.source, PARTITIONS)
        self.topics.create(self.out, 3)
        self.expected: list[bytes] = []

    def produce(self) -> None:
        for partition in range(PARTITIONS):
            values = [f"{partition}-{len(self.expected)}-{i}" for i in range(RECORDS)]
            self.topics.produce(self.source, values, partition=partition)
            self.expected += [value.encode() for value in values]

    def run(self, **options: str) -> None:
        reader = self.spark.readStream.format("holdfast")
        if isinstance(self.broker, HoldfastBroker):
            reader = reader.option("store", self.broker.store)
        reader = reader.option("kafka.bootstrap.servers", self.broker.bootstrap)
        reader = reader.option("commitGroupId", f"{self.source}-lag")
        reader = reader.option("subscribe", self.source).option("startingOffsets", "earliest")
        rows = reader.option("maxOffsetsPerTrigger", RECORDS).load().select("key", "value")
        writer = rows.writeStream.format("holdfast")
        wanted = {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "sinkId": f"sink-{self.out}",
            "topic": self.out,
            "checkpointLocation": str(self.checkpoint),
            **options,
        }
        writer.options(**wanted).trigger(availableNow=True).start().awaitTermination(200)

    def seen(self) -> list[bytes]:
        return [
            value
            for partition in range(3)
            for value in committed_values(self.broker.bootstrap, self.out, partition)
        ]

    def last_batch(self) -> int:
        return max(int(p.name) for p in (self.checkpoint / "commits").iterdir() if p.suffix == "")

    def forget_last_commit(self) -> None:
        """As if the driver had died after the sink's commit and before Spark's own."""
        last = self.last_batch()
        (self.checkpoint / "commits" / str(last)).unlink()
        (self.checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)

    def told(self) -> dict[int, int]:
        async def ask() -> dict[int, int]:
            async with Cluster(self.broker.bootstrap, environment=SystemEnvironment()) as cluster:
                found = await committed_offsets(cluster, f"{self.source}-lag")
                return {where.partition: offset for where, offset in found.items()}

        return asyncio.run(ask())


@pytest.mark.timeout(600)
def test_records_are_in_the_topic_once_through_restarts_and_the_group_knows_how_far(
    spark: Any, broker: HoldfastBroker | KafkaBroker, topic: str, tmp_path: Path
):
    query = Query(spark, broker, topic[-60:], tmp_path)
    query.produce()
    query.run()
    assert sorted(query.seen()) == sorted(query.expected)
    assert query.told() == dict.fromkeys(range(PARTITIONS), RECORDS)

    query.forget_last_commit()
    query.produce()
    query.run()
    assert sorted(query.seen()) == sorted(query.expected)
    assert query.told() == dict.fromkeys(range(PARTITIONS), 2 * RECORDS)

    shutil.rmtree(query.checkpoint)
    with pytest.raises(StreamingQueryException, match=r"(?s)checkpoint folder is new.*sinkId"):
        query.run()
    assert sorted(query.seen()) == sorted(query.expected)


def test_rows_choose_topic_partition_and_headers_and_other_columns_are_left_out(
    spark: Any, holdfast_broker: HoldfastBroker, topic: str, tmp_path: Path
):
    query = Query(spark, holdfast_broker, topic[-60:], tmp_path)
    query.produce()
    stream = spark.readStream.format("holdfast").option("store", holdfast_broker.store)
    stream = stream.option("subscribe", query.source).option("startingOffsets", "earliest").load()
    rows = stream.selectExpr(
        f"'{query.out}' topic",
        "partition + 1 partition",
        "value",
        "offset",
        "array(named_struct('key', 'from', 'value', cast('spark' as binary))) headers",
    )
    writer = rows.writeStream.format("holdfast").option("positionTopic", query.out)
    writer = writer.option("kafka.bootstrap.servers", holdfast_broker.bootstrap)
    writer = writer.option("sinkId", f"sink-{query.out}")
    writer = writer.option("checkpointLocation", str(query.checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination(200)
    reader = spark.read.format("holdfast").option("store", holdfast_broker.store)
    reader = reader.option("subscribe", query.out).option("kafka.isolation.level", "read_committed")
    found = reader.option("includeHeaders", "true").load().collect()
    assert sorted(bytes(row.value) for row in found) == sorted(query.expected)
    assert {row.partition for row in found} == {1, 2}
    for row in found:
        assert bytes(row.value).startswith(str(row.partition - 1).encode())
        assert [(one.key, bytes(one.value)) for one in row.headers] == [("from", b"spark")]


@pytest.mark.parametrize(
    ("select", "options", "said"),
    [
        (["key"], {}, "needs a column `value`"),
        (["offset as value"], {}, "`value` must be string or binary"),
        (["value"], {"sinkId": ""}, "sinkId is missing"),
        (["value"], {"kafka.acks": "0"}, "would lose or double"),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_record_is_read(
    spark: Any,
    holdfast_broker: HoldfastBroker,
    topic: str,
    tmp_path: Path,
    select: list[str],
    options: dict[str, str],
    said: str,
):
    topics = Topics(holdfast_broker.bootstrap)
    topics.create(topic)
    stream = spark.readStream.format("holdfast").option("store", holdfast_broker.store)
    stream = stream.option("subscribe", topic).load().selectExpr(*select)
    wanted = {
        "kafka.bootstrap.servers": holdfast_broker.bootstrap,
        "sinkId": "refused",
        "topic": topic,
        "checkpointLocation": str(tmp_path / "checkpoint"),
        **options,
    }
    with pytest.raises(StreamingQueryException, match=said):
        stream.writeStream.format("holdfast").options(**wanted).trigger(
            availableNow=True
        ).start().awaitTermination(200)
