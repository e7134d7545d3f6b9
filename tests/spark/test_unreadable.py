"""Spark and record batches that nobody can read: named, counted and left out, or refused."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.peers.holdfast import HoldfastBroker
from tests.peers.junk import bomb_batch, junk_batch, produce_raw
from tests.spark.commands import chain_rows, holdfast, rows
from tests.spark.pipelines import Here, written
from tests.support.topics import Topics

from holdfast.landing.quarantine import QuarantinedBatch
from holdfast.spark.ledger.backfill import Backfill
from holdfast.spark.ledger.backfill_plan import BackfillRequest
from holdfast.spark.ledger.job import Output
from holdfast.spark.pipelines.preflight import open_source
from holdfast.spark.source.inputs import UnreadableBatch
from holdfast.spark.source.options import parse_options

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

READABLE = [(0, 0), (0, 1), (0, 8), (0, 9), (1, 0)]


def unreadable() -> list[bytes]:
    return [junk_batch(records=3), bomb_batch()]


def orders(*names: str) -> list[bytes]:
    return [json.dumps({"id": name}).encode() for name in names]


@pytest.fixture
def source(holdfast_broker: HoldfastBroker, topics: Topics, topic: str) -> str:
    """A topic with junk at offsets 2 to 4 of partition 0, and a compression bomb at 5 to 7."""
    topics.create(topic, 2)
    topics.produce(topic, orders("a", "b"), partition=0)
    produce_raw(holdfast_broker.bootstrap, topic, 0, unreadable())
    topics.produce(topic, orders("c", "a"), partition=0)
    topics.produce(topic, orders("d"), partition=1)
    return f'[source]\nstore = "{holdfast_broker.store}"\nsubscribe = "{topic}"\n'


def test_a_frame_names_the_batch_and_goes_on_without_it_where_it_is_told_to(
    spark: Any, holdfast_broker: HoldfastBroker, source: str, topic: str
):
    for where in ("store", "kafka.bootstrap.servers"):
        address = holdfast_broker.store if where == "store" else holdfast_broker.bootstrap
        reader = spark.read.format("holdfast").option(where, address).option("subscribe", topic)
        with pytest.raises(Exception, match="the record batch at offsets 2 to 4 cannot be read"):
            reader.load().count()
        found = reader.option("unreadable", "quarantine").load()
        assert sorted((row.partition, row.offset) for row in found.collect()) == READABLE


def kept_in(output: Path) -> list[Path]:
    return sorted((output / "_unreadable").rglob("*.json"))


def test_a_frame_keeps_the_batch_whole_where_it_is_given_a_place(
    spark: Any, holdfast_broker: HoldfastBroker, source: str, topic: str, tmp_path: Path
):
    reader = spark.read.format("holdfast").option("store", holdfast_broker.store)
    wanted = {"subscribe": topic, "quarantineStore": str(tmp_path)}
    with pytest.raises(Exception, match='Set unreadable to "quarantine"'):
        reader.options(**wanted).load().count()
    for _ in range(2):
        assert reader.options(**wanted, unreadable="quarantine").load().count() == 5
        for file, first_offset, sent in zip(kept_in(tmp_path), (2, 5), unreadable(), strict=True):
            kept = msgspec.json.decode(file.read_bytes(), type=QuarantinedBatch)
            assert (kept.topic, kept.partition) == (topic, 0)
            assert (kept.first_offset, kept.last_offset) == (first_offset, first_offset + 2)
            assert kept.reason
            # All but what the broker writes into a batch: its base offset and its leader epoch.
            assert kept.batch[16:] == sent[16:]


def test_a_backfill_keeps_the_batch_and_goes_on(
    spark: Any, holdfast_broker: HoldfastBroker, source: str, topic: str, tmp_path: Path
):
    wanted = {"store": holdfast_broker.store, "subscribe": topic}
    records = open_source(parse_options(wanted, streaming=False))
    output = Output(store=str(tmp_path), sink_id="old")
    backfill = Backfill(BackfillRequest(topic=topic), output, records)
    backfill.run(spark, watch=lambda *_: None, slice_records=1_000)
    assert backfill.standing().unreadable == 6
    assert len(rows(tmp_path)) == 5
    assert len(kept_in(tmp_path)) == 2


def test_a_run_counts_what_it_leaves_out_in_each_kind_of_job(
    spark: Any, source: str, tmp_path: Path
):
    jobs = {
        "dedup": '[dedup]\nby = "value.$.id"\nbuckets = 2\n',
        "aggregate": '[aggregate]\nby = "partition"\nbuckets = 2\ncolumns = { n = "count" }\n',
        "plain": "",
    }
    for name, step in jobs.items():
        output = f'[output]\nto = "{name}"\nsink_id = "{name}"\nmode = "ledger"\n'
        done = Here(spark, written(tmp_path, source + step + output, f"{name}.toml")).run()
        assert (done.counts["rows"], done.counts["unreadable"]) == (5, 6), name
    found = Counter(json.loads(row["value"])["id"] for row in rows(tmp_path / "dedup"))
    assert found == Counter({"a": 1, "b": 1, "c": 1, "d": 1})
    chains = Here(spark, written(tmp_path, source + '[output]\nto = "chains"\n')).run()
    assert (chains.counts["rows"], chains.counts["unreadable"]) == (5, 6)
    found_in = [(row["partition"], row["offset"]) for row in chain_rows(tmp_path / "chains")]
    assert found_in == READABLE
    assert "6 left out, unreadable" in (tmp_path / "log").read_text()
    for name in (*jobs, "chains"):
        assert len(kept_in(tmp_path / name)) == 2, name
        shown = holdfast("landed", str(tmp_path / name), "--verify")
        assert "UNREADABLE BATCHES" in shown
        assert "2..4" in shown
        assert "5..7" in shown


def test_a_pipeline_with_a_transform_stops_there_unless_it_is_told_to_leave_the_batch_out(
    spark: Any, source: str, tmp_path: Path
):
    (tmp_path / "steps.py").write_text(
        'def pipeline(frame):\n    return frame.selectExpr("partition", "offset")\n'
    )
    steps = '[transform]\npython = "steps.py"\n[output]\nto = "lake"\nsink_id = "s"\n'
    pipeline = Here(spark, written(tmp_path, source + steps))
    with pytest.raises(UnreadableBatch, match="the record batch at offsets 2 to 4 cannot"):
        pipeline.run()
    assert not kept_in(tmp_path / "lake")
    assert pipeline.run("source.unreadable=quarantine").counts["rows"] == 5
    landed = [(row["partition"], row["offset"]) for row in rows(tmp_path / "lake")]
    assert sorted(landed) == READABLE
    assert len(kept_in(tmp_path / "lake")) == 2
