"""What has landed, read back through a real Spark: sinks and chains, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from tests.peers.holdfast import HoldfastBroker
from tests.support.ledgered import Sink, rows
from tests.support.topics import Topics

from holdfast.landing.ledger_entry import decode_entry
from holdfast.spark import pipeline
from holdfast.spark.ledger.chain_sink import ChainLanding, ChainSink

pytestmark = pytest.mark.spark


def stream(spark: Any, store: str, topic: str, **options: str) -> Any:
    reader = spark.readStream.format("holdfast").option("store", store).option("subscribe", topic)
    return reader.option("startingOffsets", "earliest").options(**options).load()


def landed(spark: Any, store: Path, **options: str) -> Any:
    return spark.read.format("holdfast-landed").options(store=str(store), **options).load()


@pytest.fixture
def filled(
    spark: Any, holdfast_broker: HoldfastBroker, topics: Topics, topic: str, tmp_path: Path
) -> Path:
    """A sink "orders", partitioned by partition, after three micro-batches."""
    topics.create(topic, 2)
    for number in range(2):
        values = [json.dumps({"id": f"{number}-{i}"}) for i in range(5)]
        topics.produce(topic, values, partition=number)
    frame = stream(spark, holdfast_broker.store, topic, maxOffsetsPerTrigger="4")
    running = (
        pipeline(frame)
        .to(str(tmp_path / "lake"), sink_id="orders", partition_by=["partition"])
        .start(str(tmp_path / "checkpoint"), trigger={"availableNow": True})
    )
    assert running.query.awaitTermination(120)
    return tmp_path / "lake"


def test_a_sink_is_read_exactly_as_its_ledger_says(spark: Any, filled: Path, topic: str):
    found = landed(spark, filled, sinkId="orders")
    assert found.columns == [
        "key",
        "value",
        "topic",
        "offset",
        "timestamp",
        "timestampType",
        "partition",
    ]
    assert found.schema["partition"].dataType.simpleString() == "int"
    read = found.selectExpr("partition p", "offset", "string(value) v", "topic").collect()
    assert sorted((row.p, row.offset, row.v) for row in read) == [
        (p, i, json.dumps({"id": f"{p}-{i}"})) for p in range(2) for i in range(5)
    ]
    assert {row.topic for row in read} == {topic}
    newest = max((filled / "ledger" / "orders").glob("[0-9]*"))
    entry = decode_entry(newest.read_bytes(), sink_id="orders", n=int(newest.name)).entry
    orphan = entry.files[0].path.rsplit("-", 3)
    (filled / f"{orphan[0]}-orphan-00000-000.parquet").write_bytes(
        (filled / entry.files[0].path).read_bytes()
    )
    assert found.count() == 10


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    """A sink with two partitions of one file each, written without Spark."""
    made = Sink(tmp_path / "lake")
    fields = [pa.field("shard", pa.int32())]
    files = [
        made.write(0, rows(f"a{shard}", f"b{shard}"), {"shard": str(shard)}, fields=fields)
        for shard in range(2)
    ]
    made.publish(files, 0)
    return made


def test_a_frame_that_is_used_with_several_filters_hides_no_row(spark: Any, sink: Sink):
    """With filter pushdown, Spark 4.3 answers all but one of these from another one's plan."""
    found = landed(spark, sink.folder, sinkId="orders")
    assert found.schema.simpleString() == "struct<id:string,size:bigint,shard:int>"
    first, second = found.where("shard = 0"), found.where("shard = 1")
    assert sorted(row.id for row in first.union(second).collect()) == ["a0", "a1", "b0", "b1"]
    assert [tuple(row) for row in second.where("id > 'a1'").collect()] == [("b1", 2, 1)]
    assert found.count() == 4


def test_partitions_that_were_not_chosen_are_not_read(spark: Any, sink: Sink):
    (sink.folder / sink.files()[0].path).write_bytes(b"harmed")
    kept = landed(spark, sink.folder, sinkId="orders", partitions='{"shard": [1]}')
    assert sorted(row.id for row in kept.collect()) == ["a1", "b1"]
    with pytest.raises(PySparkException, match="shard=0/"):
        landed(spark, sink.folder, sinkId="orders").count()


def test_a_wrong_sink_says_which_ones_there_are(spark: Any, sink: Sink):
    with pytest.raises(PySparkException, match=r"no sink 'order'.*sinks there are orders"):
        landed(spark, sink.folder, sinkId="order").count()


def test_columns_of_older_files_are_not_dropped_in_silence(spark: Any, tmp_path: Path):
    sink = Sink(tmp_path / "lake")
    sink.commit(pa.table({"id": ["a"], "old": [1]}))
    sink.commit(pa.table({"id": ["b"]}))
    with pytest.raises(PySparkException, match="mergeSchema"):
        landed(spark, sink.folder, sinkId="orders").collect()
    merged = landed(spark, sink.folder, sinkId="orders", mergeSchema="true").collect()
    assert sorted((row.id, row.old) for row in merged) == [("a", 1), ("b", None)]
    chosen = spark.read.format("holdfast-landed").schema("id string")
    chosen = chosen.options(store=sink.url, sinkId="orders").load().collect()
    assert sorted(row.id for row in chosen) == ["a", "b"]


@pytest.mark.parametrize("layout", ["parquet", "jsonl.zst/envelope"])
def test_chains_are_read_with_the_columns_of_the_log(
    spark: Any,
    holdfast_broker: HoldfastBroker,
    topics: Topics,
    topic: str,
    tmp_path: Path,
    layout: str,
):
    topics.create(topic, 2)
    for partition in range(2):
        topics.produce(topic, [f"v{partition}-{i}" for i in range(4)], partition=partition)
    frame = stream(spark, holdfast_broker.store, topic, rows="ranges")
    sink = ChainSink(ChainLanding(store=str(tmp_path / "lake"), format=layout))
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    found = landed(spark, tmp_path / "lake", topic=topic)
    source = spark.read.format("holdfast").option("store", holdfast_broker.store)
    log = source.option("subscribe", topic).load()
    assert found.schema == log.schema
    assert sorted(map(tuple, found.collect())) == sorted(map(tuple, log.collect()))
    one = landed(spark, tmp_path / "lake", topic=topic, partitions='{"partition": [1]}')
    assert one.count() == 4
    one = found.where("partition = 1 and offset >= 2")
    assert sorted(bytes(row.value) for row in one.collect()) == [b"v1-2", b"v1-3"]
    with pytest.raises(PySparkException, match="no chain of topic 'nothing'"):
        landed(spark, tmp_path / "lake", topic="nothing").count()
