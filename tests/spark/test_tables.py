"""A pipeline with tables behind it, end to end through a real Spark."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyiceberg.catalog import load_catalog
from tests.peers.holdfast import HoldfastBroker
from tests.support.topics import Topics

from holdfast.spark.ledger.checkpoint import open_checkpoint
from holdfast.spark.ledger.compact import compact
from holdfast.spark.ledger.job import Job, Output
from holdfast.spark.ledger.ledger_sink import LedgerSink
from holdfast.spark.tables import DeltaTable, IcebergTable

pytestmark = pytest.mark.spark


class Lake:
    """A sink of one topic, with a Delta and an Iceberg table."""

    def __init__(self, spark: Any, store: str, topic: str, folder: Path) -> None:
        self.spark = spark
        self.store = store
        self.topic = topic
        self.folder = folder
        self.lake = folder / "lake"
        columns = ("topic", "partition")
        self.output = Output(store=str(self.lake), sink_id="orders", partition_by=columns)
        (folder / "warehouse").mkdir()
        self.catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder / 'catalog.db'}",
            "warehouse": f"file://{folder / 'warehouse'}",
        }

    def run(self, *, with_tables: bool = True) -> None:
        """One query until all is read; each start is a new driver to the tables."""
        reader = self.spark.readStream.format("holdfast").option("store", self.store)
        reader = reader.option("subscribe", self.topic).option("startingOffsets", "earliest")
        frame = reader.option("maxOffsetsPerTrigger", "3").load()
        checkpoint = str(self.folder / "checkpoint")
        tables = (
            DeltaTable(),
            IcebergTable("lake.orders", catalog="tests", properties=self.catalog),
        )
        sink = LedgerSink(
            Job(output=self.output),
            open_checkpoint(self.spark, checkpoint),
            followers=tables if with_tables else (),
        )
        query = (
            frame.writeStream.foreachBatch(sink)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    def landed(self) -> Counter[str]:
        found = self.spark.read.format("holdfast-landed").option("store", str(self.lake))
        rows = found.option("sinkId", "orders").load().selectExpr("string(value) v").collect()
        return Counter(json.loads(row.v)["id"] for row in rows)

    def delta(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(str(self.lake / "data" / "orders"))

    def tables(self) -> list[Counter[str]]:
        """The ids in Delta, in Iceberg, and in Delta's files as Spark's own Parquet reads them."""
        table = load_catalog("tests", **self.catalog).load_table("lake.orders")
        values = [
            self.delta().to_pyarrow_table()["value"].to_pylist(),
            table.scan().to_arrow()["value"].to_pylist(),
            [
                bytes(row.value)
                for row in self.spark.read.parquet(*self.delta().file_uris()).collect()
            ],
        ]
        return [Counter(json.loads(value)["id"] for value in column) for column in values]


def test_tables_equal_the_ledger_over_restarts_lag_and_compaction(
    spark: Any, holdfast_broker: HoldfastBroker, topics: Topics, topic: str, tmp_path: Path
):
    lake = Lake(spark, holdfast_broker.store, topic, tmp_path)
    topics.create(topic, 2)

    def produce(*names: str) -> None:
        for partition in range(2):
            found = [json.dumps({"id": f"{partition}{name}"}) for name in names]
            topics.produce(topic, found, partition=partition)

    def check(rows: int) -> None:
        landed = lake.landed()
        assert sum(landed.values()) == len(landed) == rows
        assert lake.tables() == [landed] * 3

    produce("a", "b", "c", "d")
    lake.run()
    check(8)
    produce("e", "f")
    # As where the driver dies between the ledger and the tables, for some micro-batches on end.
    lake.run(with_tables=False)
    produce("g")
    lake.run()
    check(14)
    done = compact(spark, str(lake.lake), "orders")
    assert done.files_after == 2
    produce("h")
    lake.run()
    check(16)
    assert len(lake.delta().file_uris()) == 4
    assert lake.delta().metadata().partition_columns == ["topic", "partition"]
