"""Streaming queries through a real Spark: nothing lost, nothing twice, and nothing goes back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker
from tests.peers.process import wait_until
from tests.spark.lying import LyingSource
from tests.support.topics import Topics, offset_log

pytestmark = pytest.mark.spark

WAIT_S = 90.0


class Query:
    """A query that keeps what it reads, and can be run again from its checkpoint."""

    def __init__(self, spark: Any, folder: Path, source: str = "holdfast", **options: str) -> None:
        self.spark = spark
        self.checkpoint = folder / "checkpoint"
        self.source = source
        self.options = {"startingOffsets": "earliest", **options}
        self.batches: list[list[tuple[int, int, str]]] = []

    def start(self, *, available_now: bool = False) -> Any:
        frame = self.spark.readStream.format(self.source).options(**self.options).load()
        columns = frame.selectExpr("partition", "offset", "cast(value as string) value")
        writer = columns.writeStream.foreachBatch(self._keep)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def _keep(self, batch: Any, _: int) -> None:
        self.batches.append(sorted(tuple(row) for row in batch.collect()))

    def run(self) -> None:
        """Read everything that is there now."""
        assert self.start(available_now=True).awaitTermination(120)

    def rows(self) -> list[tuple[int, int, str]]:
        return sorted(row for batch in self.batches for row in batch)

    def values(self) -> list[str]:
        return [value for *_, value in self.rows()]

    def wait_for(self, count: int, query: Any) -> None:
        def is_there() -> bool:
            assert query.exception() is None, query.exception()
            return len(self.rows()) >= count

        wait_until(is_there, seconds_max=WAIT_S, what=f"{count} rows were read")


@pytest.fixture(params=["store", "broker"])
def where(request: pytest.FixtureRequest, holdfast_broker: HoldfastBroker) -> dict[str, str]:
    if request.param == "store":
        return {"store": holdfast_broker.store}
    return {"kafka.bootstrap.servers": holdfast_broker.bootstrap}


@pytest.fixture
def new_query(
    spark: Any, tmp_path: Path, where: dict[str, str], topic: str
) -> Callable[..., Query]:
    return lambda **options: Query(spark, tmp_path, **{**where, "subscribe": topic, **options})


def test_available_now_ends_with_all_within_its_limit_and_goes_on_from_the_checkpoint(
    new_query: Callable[..., Query], topics: Topics, topic: str
) -> None:
    topics.create(topic, 2)
    topics.produce(topic, [f"a{i}" for i in range(60)], partition=0)
    topics.produce(topic, [f"b{i}" for i in range(30)], partition=1)
    query = new_query(maxOffsetsPerTrigger="40")
    query.run()
    sizes = [len(batch) for batch in query.batches if batch]
    assert sizes == [40, 40, 10]
    first = [*((0, i, f"a{i}") for i in range(60)), *((1, i, f"b{i}") for i in range(30))]
    assert query.rows() == first
    topics.produce(topic, ["later"], partition=1)
    query.run()
    assert query.rows() == [*first, (1, 30, "later")]
    query.run()
    assert len(query.rows()) == 91


def test_a_query_that_waits_runs_no_empty_micro_batches_and_sees_new_partitions(
    new_query: Callable[..., Query], topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.produce(topic, ["a", "b"])
    query = new_query()
    running = query.start()
    try:
        query.wait_for(2, running)
        topics.grow(topic, 3)
        topics.produce(topic, ["c", "d"], partition=2)
        query.wait_for(4, running)
        topics.produce(topic, ["e"], partition=1)
        query.wait_for(5, running)
    finally:
        running.stop()
    assert query.rows() == [
        (0, 0, "a"),
        (0, 1, "b"),
        (1, 0, "e"),
        (2, 0, "c"),
        (2, 1, "d"),
    ]
    # One for each of the three produces, and one for each partition that may have come in alone.
    assert len(offset_log(query.checkpoint)) <= 5
    newest = offset_log(query.checkpoint)[max(offset_log(query.checkpoint))]
    assert newest["topics"][topic]["partitions"] == {"0": 2, "1": 1, "2": 2}


def test_a_batch_zero_that_ran_and_was_not_committed_runs_again_with_the_same_records(
    new_query: Callable[..., Query], topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.produce(topic, ["before"])
    query = new_query(startingOffsets="latest")
    running = query.start()
    try:
        wait_until(
            lambda: (query.checkpoint / "commits" / "0").exists(),
            seconds_max=WAIT_S,
            what="the query has begun",
        )
        topics.produce(topic, ["first", "second"])
        query.wait_for(2, running)
    finally:
        running.stop()
    forget(query.checkpoint, "commits", since=0)
    forget(query.checkpoint, "offsets", since=1)
    topics.produce(topic, ["third"])
    again = new_query(startingOffsets="latest")
    again.run()
    assert again.values() == ["first", "second", "third"]


def forget(checkpoint: Path, log: str, *, since: int) -> None:
    """Take entries out of one of Spark's logs, as if it had stopped before it wrote them."""
    for path in (checkpoint / log).iterdir():
        number = path.name.strip(".").removesuffix(".crc")
        if number.isdigit() and int(number) >= since:
            path.unlink()


def test_a_topic_that_was_created_again_is_a_clear_error(
    new_query: Callable[..., Query], topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.produce(topic, ["a", "b"])
    query = new_query()
    query.run()
    topics.delete(topic)
    topics.create(topic)
    topics.produce(topic, ["x", "y", "z"])
    with pytest.raises(StreamingQueryException, match=r"created again.*read up to offset 2"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    query.run()
    assert query.values() == ["a", "x", "b", "y", "z"]


def test_a_newest_offset_that_goes_back_never_reaches_the_offset_log(
    spark: Any, holdfast_broker: HoldfastBroker, topics: Topics, topic: str, tmp_path: Path
) -> None:
    spark.dataSource.register(LyingSource)
    lie = tmp_path / "lie"
    topics.create(topic)
    topics.produce(topic, ["a", "b", "c"])
    options = {
        "kafka.bootstrap.servers": holdfast_broker.bootstrap,
        "kafka.client.id": str(lie),
        "subscribe": topic,
    }
    query = Query(spark, tmp_path, "lying", **options)
    query.run()
    lie.write_text("1")
    running = query.start()
    try:
        wait_until((tmp_path / "told").exists, seconds_max=WAIT_S, what="the lie was told")
        topics.produce(topic, ["d"])
        lie.unlink()
        query.wait_for(4, running)
    finally:
        running.stop()
    ends = [
        end["topics"][topic]["partitions"]["0"]
        for _, end in sorted(offset_log(query.checkpoint).items())
    ]
    assert ends == sorted(ends)
    assert min(ends) == 3
    assert query.values() == ["a", "b", "c", "d"]


def test_records_that_are_gone_are_named_exactly_or_skipped(
    new_query: Callable[..., Query], topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.produce(topic, ["a"])
    query = new_query()
    query.run()
    topics.produce(topic, ["b", "c", "d"])
    topics.truncate(topic, 0, before=3)
    with pytest.raises(StreamingQueryException, match=rf"{topic}-0 offsets 1 to 2 \(2 records\)"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    query.run()
    assert query.values() == ["a", "d"]


def test_apache_kafka_as_a_stream_goes_on_from_the_checkpoint(
    spark: Any, kafka_broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    peer = Topics(kafka_broker.bootstrap)
    peer.create(topic, 2)
    peer.produce(topic, [f"v{i}" for i in range(100)], partition=1)
    options = {"kafka.bootstrap.servers": kafka_broker.bootstrap, "subscribe": topic}
    query = Query(spark, tmp_path, **options)
    query.run()
    peer.produce(topic, ["w"], partition=0)
    query.run()
    assert query.rows() == [(0, 0, "w"), *((1, i, f"v{i}") for i in range(100))]


def test_a_stream_of_ranges_carries_no_records_through_the_jvm(
    spark: Any, where: dict[str, str], topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, 2)
    topics.produce(topic, ["a"] * 10, partition=0)
    topics.produce(topic, ["b"], partition=1)
    reader = spark.readStream.format("holdfast").options(**where).option("subscribe", topic)
    frame = reader.options(startingOffsets="earliest", rows="ranges").load()
    counts: list[int] = []
    writer = frame.writeStream.foreachBatch(lambda batch, _: counts.append(batch.count()))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    assert sum(counts) == 2
