"""Batch queries through a real Spark, on a directory store and on its broker: the same rows."""

from typing import Any

import pytest
from tests.peers.holdfast import HoldfastBroker
from tests.spark.topics import Topics

pytestmark = pytest.mark.xdist_group("spark")

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def read(spark: Any, where: dict[str, str], topic: str, **options: str) -> Any:
    reader = spark.read.format("holdfast").options(**where).option("subscribe", topic)
    return reader.options(**options).load()


def rows(frame: Any) -> list[Any]:
    return sorted(tuple(row) for row in frame.collect())


@pytest.fixture(params=["store", "broker"])
def where(request: pytest.FixtureRequest, holdfast_broker: HoldfastBroker) -> dict[str, str]:
    if request.param == "store":
        return {"store": holdfast_broker.store}
    return {"kafka.bootstrap.servers": holdfast_broker.bootstrap}


def test_store_and_broker_give_identical_rows(
    spark: Any, holdfast_broker: HoldfastBroker, topics: Topics, topic: str
) -> None:
    topics.create(topic, 2)
    topics.produce(topic, [b"a", None, b"", "\u00e9".encode()], partition=0)
    topics.produce(
        topic, [f"v{i}" for i in range(1000)], partition=1, timestamp_ms=1_700_000_000_000
    )
    by_store = read(spark, {"store": holdfast_broker.store}, topic)
    by_broker = read(spark, {"kafka.bootstrap.servers": holdfast_broker.bootstrap}, topic)
    assert by_store.columns == COLUMNS
    found = rows(by_store.selectExpr("partition", "offset", "key", "value", "topic", "timestamp"))
    assert [(p, o) for p, o, *_ in found] == [
        *((0, i) for i in range(4)),
        *((1, i) for i in range(1000)),
    ]
    assert [bytes(v) if v is not None else None for _, _, _, v, *_ in found[:4]] == [
        b"a",
        None,
        b"",
        "\u00e9".encode(),
    ]
    assert found[4][5].timestamp() == 1_700_000_000
    columns = ["partition", "offset", "key", "value", "topic", "timestamp", "timestampType"]
    assert rows(by_store.select(columns)) == rows(by_broker.select(columns))
