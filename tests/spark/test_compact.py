"""Compaction as a Spark job, beside a pipeline that goes on."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.peers.holdfast import HoldfastBroker
from tests.support.topics import Topics

from holdfast.inspect.output_survey import survey
from holdfast.landing.ledger import Ledger
from holdfast.spark import pipeline
from holdfast.spark.ledger.compact import compact
from holdfast.spark.runtime.worker import worker

pytestmark = pytest.mark.spark


def run(spark: Any, store: str, topic: str, folder: Path) -> None:
    """A dedup with micro-batches of three records."""
    reader = spark.readStream.format("holdfast").option("store", store).option("subscribe", topic)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "3")
    running = (
        pipeline(reader.load())
        .dedup(by="value.$.id", buckets=4)
        .to(str(folder / "lake"), sink_id="orders")
        .start(str(folder / "checkpoint"), trigger={"availableNow": True})
    )
    assert running.query.awaitTermination(120)


def ids(spark: Any, folder: Path) -> Counter[str]:
    found = spark.read.format("holdfast-landed").option("store", str(folder / "lake"))
    rows = found.option("sinkId", "orders").load().selectExpr("string(value) v").collect()
    return Counter(json.loads(row.v)["id"] for row in rows)


def values(*names: str) -> list[str]:
    return [json.dumps({"id": name}) for name in names]


def test_compacted_files_hold_the_same_rows_and_the_pipeline_goes_on_with_its_state(
    spark: Any, holdfast_broker: HoldfastBroker, topics: Topics, topic: str, tmp_path: Path
):
    topics.create(topic, 1)
    topics.produce(topic, values(*[f"r{i}" for i in range(9)]))
    run(spark, holdfast_broker.store, topic, tmp_path)
    before = ids(spark, tmp_path)
    assert before == Counter([f"r{i}" for i in range(9)])
    lake = str(tmp_path / "lake")
    done = compact(spark, lake, "orders")
    assert done.files_after == 1 < done.files_before
    assert ids(spark, tmp_path) == before
    topics.produce(topic, values("r1", "r5", "new"))
    run(spark, holdfast_broker.store, topic, tmp_path)
    assert ids(spark, tmp_path) == before + Counter(["new"])
    assert compact(spark, lake, "orders").files_after == 1
    here = worker()
    report = here.run(survey(here.store(lake), environment=here.environment, verify=True))
    assert report.is_whole
    ledger = here.run(Ledger.open(here.store(lake), "orders", environment=here.environment))
    assert ledger.head is not None
    left = {row.key for row in here.run(here.store(lake).list("state/orders/"))}
    assert left
    assert all(name.encode() in ledger.head.state for name in left)
