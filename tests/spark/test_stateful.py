"""Running aggregates and timers through a real Spark, with state that the ledger pins."""

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from tests.peers.holdfast import HoldfastBroker
from tests.peers.process import wait_until
from tests.support.topics import Topics

from holdfast.errors import ConfigurationError
from holdfast.landing.ledger_entry import decode_entry
from holdfast.spark import pipeline
from holdfast.spark.ledger.operations import duration_ms
from holdfast.spark.pipelines.builder import Pipeline

pytestmark = pytest.mark.spark

COLUMNS = (
    "get_json_object(cast(value as string), '$.user') user",
    "cast(get_json_object(cast(value as string), '$.amount') as bigint) amount",
    "timestamp",
)


class Work:
    """A topic of payments, and a sink for what a pipeline makes of them."""

    def __init__(self, spark: Any, store: str, topics: Topics, topic: str, folder: Path) -> None:
        self.spark, self.store, self.topics, self.topic = spark, store, topics, topic
        self.output, self.checkpoint = folder / "lake", folder / "checkpoint"

    def pay(self, *payments: tuple[str, int]) -> None:
        values = [json.dumps({"user": user, "amount": amount}) for user, amount in payments]
        self.topics.produce(self.topic, values)

    def payments(self, **options: str) -> Pipeline:
        reader = self.spark.readStream.format("holdfast").option("store", self.store)
        reader = reader.option("subscribe", self.topic).option("startingOffsets", "earliest")
        return pipeline(reader.options(**options).load().selectExpr(*COLUMNS))

    def run(self, wanted: Pipeline) -> Any:
        started = self.start(wanted, {"availableNow": True})
        assert started.query.awaitTermination(120)
        return started.sink

    def start(self, wanted: Pipeline, trigger: dict[str, Any]) -> Any:
        to = wanted.to(str(self.output), sink_id="users")
        return to.start(str(self.checkpoint), trigger=trigger)

    def rows(self) -> list[dict[str, Any]]:
        tables = []
        for path in sorted((self.output / "ledger" / "users").glob("*")):
            if path.name.isdigit():
                entry = decode_entry(path.read_bytes(), sink_id="users", n=int(path.name)).entry
                tables += [pq.read_table(self.output / file.path) for file in entry.files]
        return pa.concat_tables(tables).to_pylist() if tables else []

    def newest(self) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for row in sorted(self.rows(), key=lambda row: row["_entry"]):
            found[row["user"]] = (row["payments"], row["total"])
        return found


@pytest.fixture
def work(
    spark: Any, holdfast_broker: HoldfastBroker, topics: Topics, topic: str, tmp_path: Path
) -> Work:
    topics.create(topic)
    return Work(spark, holdfast_broker.store, topics, topic, tmp_path)


def totals(payments: Pipeline) -> Pipeline:
    aggregates = {"payments": ("count", None), "total": ("sum", "amount")}
    return payments.aggregate("user", aggregates, buckets=4)


def test_running_totals_go_on_over_micro_batches_and_restarts(work: Work):
    work.pay(("ann", 5), ("bob", 1), ("ann", 7))
    work.run(totals(work.payments(maxOffsetsPerTrigger="2")))
    assert work.newest() == {"ann": (2, 12), "bob": (1, 1)}
    work.pay(("bob", 10))
    sink = work.run(totals(work.payments()))
    assert work.newest() == {"ann": (2, 12), "bob": (2, 11)}
    assert sink.totals["updated"] == 1


def test_an_aggregate_of_a_column_that_is_not_there_is_refused_by_name(work: Work):
    work.pay(("ann", 5))
    wanted = work.payments().aggregate("user", {"most": ("max", "amuont")})
    with pytest.raises(StreamingQueryException, match=r"no column 'amuont'.*user, amount"):
        work.run(wanted)


def test_a_timer_fires_once_for_a_key_that_fell_silent_without_any_record_to_wake_it(work: Work):
    work.pay(("ann", 1), ("bob", 1))
    silent = work.payments(tickInterval="200ms").timers("user", after="2 seconds", buckets=2)
    started = work.start(silent, {"processingTime": "200 milliseconds"})
    try:
        wait_until(lambda: len(work.rows()) >= 2, seconds_max=90, what="both timers fired")
        before = started.sink.last.n
        wait_until(lambda: started.sink.last.n > before + 2, seconds_max=60, what="ticks go on")
    finally:
        started.query.stop()
    assert sorted(row["user"] for row in work.rows()) == ["ann", "bob"]
    assert started.sink.totals["rows"] == 2, "a tick reads no record again"


def test_timer_state_survives_a_restart_and_fires_by_the_wall_clock(work: Work):
    work.pay(("ann", 1))
    work.run(work.payments(tickInterval="100ms").timers("user", after="1 second", buckets=2))
    assert work.rows() == []
    armed_at = time.monotonic()
    wait_until(lambda: time.monotonic() - armed_at > 1.2, seconds_max=5, what="a second passed")
    sink = work.run(work.payments(tickInterval="100ms").timers("user", after="1 second", buckets=2))
    assert [row["user"] for row in work.rows()] == ["ann"]
    assert sink.totals["fired"] == 1


def test_a_second_stateful_step_and_unknown_functions_are_refused_at_once(work: Work):
    with pytest.raises(ConfigurationError, match="one stateful step"):
        totals(work.payments()).timers("user", after="1 minute")
    with pytest.raises(ConfigurationError, match="no 'median': use count, sum"):
        work.payments().aggregate("user", {"m": ("median", "amount")})


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("10 minutes", 600_000), ("24h", 86_400_000), ("1 day 6 hours", 108_000_000), ("1.5s", 1_500)],
)
def test_durations_are_read_in_sparks_words(text: str, milliseconds: int):
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "ten minutes", "10", "10 fortnights", "5 m x"])
def test_what_is_no_duration_is_refused_with_an_example(text: str):
    with pytest.raises(ConfigurationError, match="10 minutes"):
        duration_ms(text)
