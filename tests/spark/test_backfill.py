"""`holdfast backfill` with a real Spark: killed in the middle and run again, it equals the log."""

from pathlib import Path
from typing import Any

import pytest
from tests.peers.holdfast import HoldfastBroker
from tests.spark.commands import RUN_S_MAX, holdfast, holdfast_json, landed, rows, started
from tests.support.topics import Topics

from holdfast.spark.ledger.backfill import Backfill, BackfillProgress
from holdfast.spark.ledger.backfill_plan import BackfillRequest
from holdfast.spark.ledger.job import Output
from holdfast.spark.pipelines.preflight import open_source
from holdfast.spark.source.options import parse_options

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RECORDS = 6_000
SMALL = ("--master", "local[2]", "--conf", "spark.driver.memory=1g")


@pytest.fixture
def filled(topics: Topics, topic: str) -> dict[tuple[int, int], bytes]:
    """A topic of two partitions, and what it holds."""
    topics.create(topic, 2)
    log: dict[tuple[int, int], bytes] = {}
    for partition in (0, 1):
        values = [b"%d-%d" % (partition, i) for i in range(RECORDS)]
        topics.produce(topic, values, partition=partition)
        log |= {(partition, i): value for i, value in enumerate(values)}
    return log


def entries(lake: Path) -> int:
    folder = lake / "ledger" / "old"
    return len([p for p in folder.glob("*") if p.name.isdigit()]) if folder.exists() else 0


def test_a_backfill_that_was_killed_goes_on_and_equals_the_log(
    holdfast_broker: HoldfastBroker,
    topics: Topics,
    topic: str,
    filled: dict[tuple[int, int], bytes],
    tmp_path: Path,
):
    lake = tmp_path / "lake"
    command = ["backfill", "--store", holdfast_broker.store, "--topic", topic, "--to", str(lake)]
    command += ["--sink-id", "old", "--slice-records", "1000", *SMALL]
    process = started(*command, log=tmp_path / "killed.log")
    process.wait_until(lambda: entries(lake) >= 2, seconds_max=RUN_S_MAX, what="some slices")
    process.kill()
    before = entries(lake)
    assert before < 12, "it was killed in the middle"
    topics.produce(topic, ["later"])
    events, said = holdfast_json(*command)
    assert f"continuing at {before / 12:.1%}" in said
    assert [event["event"] for event in events[:-1]] == ["progress"] * (len(events) - 1)
    done = sorted({event["records_done"] for event in events[:-1]})
    assert set(range((before + 1) * 1000, 12_001, 1000)) <= set(done)
    assert done == [event["records_done"] for event in events[:-1]], "each step once, in order"
    last = events[-1]
    assert (last["event"], last["ended"], last["entries"]) == ("summary", "complete", 12)
    assert last["records_total"] == last["records_done"] == 12_000
    assert last["rows"] == 12_000 - before * 1000
    found = [((row["partition"], row["offset"]), row["value"]) for row in rows(lake)]
    assert len(found) == len(filled)
    assert dict(found) == filled
    assert landed(lake)["sinks"][0]["entries"] == 12
    again = holdfast(*command)
    assert "complete: 12,000 records" in again
    assert "continuing" not in again


def test_a_range_by_offsets_through_a_broker_is_exactly_that_range(
    spark: Any,
    holdfast_broker: HoldfastBroker,
    topic: str,
    filled: dict[tuple[int, int], bytes],
    tmp_path: Path,
):
    lake = tmp_path / "lake"
    asked = BackfillRequest(topic=topic, from_offset=100, to_offset=400)
    output = Output(store=str(lake), sink_id="part", partition_by=("partition",))
    servers = {"kafka.bootstrap.servers": holdfast_broker.bootstrap, "subscribe": topic}
    source = open_source(parse_options(servers, streaming=False))
    told: list[BackfillProgress] = []
    backfill = Backfill(asked, output, source)
    backfill.run(spark, watch=lambda standing, *_: told.append(standing), slice_records=250)
    assert backfill.is_done()
    assert {standing.done for standing in told} - {0} == {250, 500, 600}
    assert sorted(row["offset"] for row in rows(lake)) == sorted(2 * list(range(100, 400)))
    assert Backfill(asked, output, source).is_done()
