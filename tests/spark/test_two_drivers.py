"""Two drivers on one checkpoint, of a real Spark, where Spark's own log does not part them.

Drivers that are overtaken in mid-batch are in test_kills.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.chaos.spark_oracle import read_entries
from tests.peers.holdfast import HoldfastBroker
from tests.support.topics import Topics

from holdfast.spark import pipeline
from holdfast.spark.ledger.checkpoint import open_checkpoint
from holdfast.spark.ledger.job import Job
from holdfast.spark.ledger.ledger_sink import LedgerSink

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_an_offset_log_that_another_driver_wrote_over_stops_the_query_before_it_publishes(
    spark: Any, holdfast_broker: HoldfastBroker, topics: Topics, topic: str, tmp_path: Path
):
    """As on an object store, where the second writer of a log wins without a word."""
    topics.create(topic)
    topics.produce(topic, [json.dumps({"id": str(i)}) for i in range(10)])
    checkpoint, lake = tmp_path / "checkpoint", tmp_path / "lake"
    reader = spark.readStream.format("holdfast").option("store", holdfast_broker.store)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    stream = reader.option("maxOffsetsPerTrigger", 5).load()
    wanted = pipeline(stream).dedup(by="value.$.id", buckets=2).to(str(lake), sink_id="orders")
    assert wanted.output is not None
    job = Job(output=wanted.output, operation=wanted.operation)
    sink = LedgerSink(job, open_checkpoint(spark, str(checkpoint)))

    def overwritten(frame: Any, batch_id: int) -> None:
        if batch_id == 1:
            log = checkpoint / "offsets" / "1"
            text = log.read_text()
            (checkpoint / "offsets" / ".1.crc").unlink(missing_ok=True)
            log.write_text(text.replace('"partitions": {"0": 10}', '"partitions": {"0": 12}'))
            assert log.read_text() != text
        sink(frame, batch_id)

    writer = stream.writeStream.foreachBatch(overwritten)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    with pytest.raises(StreamingQueryException, match="Another driver has written over"):
        writer.start().awaitTermination(120)
    assert len(read_entries(lake, "orders")) == 1
