"""Dedup into files through a real Spark: offsets, state and output become visible together."""

import json
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from tests.peers.holdfast import HoldfastBroker
from tests.support.topics import Topics

from holdfast.landing.ledger_entry import Entry, FileRole, decode_entry
from holdfast.spark import pipeline

pytestmark = pytest.mark.spark


@dataclass
class Deduplicated:
    """A dedup of one topic into a folder, that can be run again and again."""

    spark: Any
    store: str
    topic: str
    folder: Path
    within: str | None = None
    late: Any = "keep"
    rows: str = "records"
    starting: str = "earliest"

    @property
    def output(self) -> Path:
        return self.folder / "lake"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def run(self, **options: str) -> Any:
        reader = self.spark.readStream.format("holdfast").option("store", self.store)
        reader = reader.option("subscribe", self.topic).option("rows", self.rows)
        reader = reader.option("startingOffsets", self.starting).options(**options)
        running = (
            pipeline(reader.load())
            .dedup(
                by="value.$.id",
                within=self.within,
                event_time="timestamp" if self.within else None,
                late=self.late,
                buckets=4,
            )
            .to(str(self.output), sink_id="orders")
            .start(str(self.checkpoint), trigger={"availableNow": True})
        )
        assert running.query.awaitTermination(120)
        return running.sink

    def forget_commits_from(self, batch_id: int) -> None:
        """Leave the checkpoint as it is after a crash before Spark's own commit."""
        for path in (self.checkpoint / "commits").iterdir():
            if int(path.name.removeprefix(".").removesuffix(".crc")) >= batch_id:
                path.unlink()

    def entries(self) -> list[Entry]:
        paths = sorted((self.output / "ledger" / "orders").glob("[0-9]*"))
        return [
            decode_entry(path.read_bytes(), sink_id="orders", n=int(path.name)).entry
            for path in paths
            if path.name.isdigit()
        ]

    def landed(self, role: FileRole = FileRole.ROWS) -> list[dict[str, Any]]:
        """The rows that readers see: those of files that the ledger names."""
        found: list[dict[str, Any]] = []
        for entry in self.entries():
            for file in entry.files:
                if file.role is role:
                    values = pq.read_table(self.output / file.path).column("value").to_pylist()
                    assert len(values) == file.rows
                    found += [json.loads(value) for value in values]
        return found

    def ids(self) -> Counter[str]:
        return Counter(row["id"] for row in self.landed())


@pytest.fixture
def job(
    spark: Any, holdfast_broker: HoldfastBroker, topics: Topics, topic: str, tmp_path: Path
) -> Deduplicated:
    topics.create(topic, 2)
    return Deduplicated(spark, holdfast_broker.store, topic, tmp_path)


def orders(*ids: str) -> list[bytes]:
    return [json.dumps({"id": name}).encode() for name in ids]


def once(*ids: str) -> Counter[str]:
    return Counter(dict.fromkeys(ids, 1))


@pytest.mark.parametrize("rows", ["records", "ranges"])
def test_each_id_comes_out_once_over_micro_batches_partitions_and_restarts(
    job: Deduplicated, topics: Topics, rows: str
):
    job.rows = rows
    topics.produce(job.topic, orders("a", "b", "a", "c"), partition=0)
    topics.produce(job.topic, orders("b", "d", "d"), partition=1)
    sink = job.run(maxOffsetsPerTrigger="3")
    assert job.ids() == once("a", "b", "c", "d")
    assert (sink.totals["rows"], sink.totals["kept"], sink.totals["duplicates"]) == (7, 4, 3)
    topics.produce(job.topic, orders("a", "e"), partition=1)
    job.run()
    assert job.ids() == once("a", "b", "c", "d", "e")


def test_a_micro_batch_that_spark_does_not_know_to_be_committed_is_not_committed_twice(
    job: Deduplicated, topics: Topics
):
    topics.produce(job.topic, orders("a", "b"))
    job.run()
    before = job.entries()
    # As after a SIGKILL between the ledger's entry and Spark's commit log.
    job.forget_commits_from(before[-1].batch_id)
    topics.produce(job.topic, orders("b", "c"))
    job.run()
    assert job.entries()[: len(before)] == before
    assert job.ids() == once("a", "b", "c")


def test_leftover_state_and_output_that_were_never_committed_do_not_swallow_a_redelivered_id(
    job: Deduplicated, topics: Topics
):
    """Seed 002: uncommitted state on disk, an id that comes again, and it must come out once."""
    topics.produce(job.topic, orders("a"))
    job.run()
    topics.produce(job.topic, orders("redelivered"))
    job.run()
    # The crash: the entry of the last micro-batch never came to be, its state and files did.
    newest = max((job.output / "ledger" / "orders").glob("[0-9]*"))
    uncommitted = decode_entry(newest.read_bytes(), sink_id="orders", n=int(newest.name)).entry
    newest.unlink()
    job.forget_commits_from(uncommitted.batch_id)
    leftover = list((job.output / "state").rglob(f"{uncommitted.n:020d}-*"))
    assert leftover, "there is state of the micro-batch that crashed"
    job.run()
    assert job.ids() == once("a", "redelivered")


def test_a_checkpoint_from_an_old_copy_stops_the_query_and_the_message_says_what_to_do(
    job: Deduplicated, topics: Topics
):
    topics.produce(job.topic, orders("a"))
    job.run()
    copy = job.folder / "copy"
    shutil.copytree(job.checkpoint, copy)
    topics.produce(job.topic, orders("b"))
    job.run()
    topics.produce(job.topic, orders("c"))
    job.run()
    shutil.rmtree(job.checkpoint)
    shutil.copytree(copy, job.checkpoint)
    topics.produce(job.topic, orders("d"))
    with pytest.raises(StreamingQueryException, match="restored from an old copy"):
        job.run()
    assert job.ids() == once("a", "b", "c")


def test_a_deleted_checkpoint_stops_the_query_and_one_that_starts_at_the_ledger_goes_on(
    job: Deduplicated, topics: Topics
):
    topics.produce(job.topic, orders("a", "b"))
    job.run()
    shutil.rmtree(job.checkpoint)
    topics.produce(job.topic, orders("b", "c"))
    with pytest.raises(StreamingQueryException, match="startingOffsets to the ledger's position"):
        job.run()
    assert job.ids() == once("a", "b")
    from holdfast.spark.positions import starting_offsets

    job.starting = starting_offsets(job.entries()[-1].sources[0].end)
    shutil.rmtree(job.checkpoint)
    job.run()
    assert job.ids() == once("a", "b", "c")


def test_a_pipeline_that_was_changed_is_refused_before_it_can_use_foreign_state(
    job: Deduplicated, topics: Topics
):
    topics.produce(job.topic, orders("a"))
    job.run()
    job.within = "1 hour"
    topics.produce(job.topic, orders("b"))
    with pytest.raises(StreamingQueryException, match="within_ms was None and is now 3600000"):
        job.run()
    assert job.ids() == once("a")


def test_records_later_than_the_window_are_diverted_and_counted_never_dropped(
    job: Deduplicated, topics: Topics
):
    job.within, job.late = "1 minute", "divert"
    now_ms = 1_700_000_000_000
    topics.produce(job.topic, orders("a"), timestamp_ms=now_ms)
    job.run()
    topics.produce(job.topic, orders("late"), timestamp_ms=now_ms - 3_600_000)
    topics.produce(job.topic, orders("a", "b"), timestamp_ms=now_ms + 1)
    sink = job.run()
    assert job.ids() == once("a", "b")
    assert [row["id"] for row in job.landed(FileRole.LATE)] == ["late"]
    assert (sink.totals["late"], sink.totals["diverted"], sink.totals["duplicates"]) == (1, 1, 1)


def test_records_without_a_key_are_all_kept(job: Deduplicated, topics: Topics):
    topics.produce(job.topic, [b'{"id": "a"}', b'{"name": 1}', b'{"name": 1}'])
    sink = job.run()
    assert sink.totals["kept"] == 3
    assert sink.totals["keyless"] == 2
