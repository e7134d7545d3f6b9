"""Micro-batches from a directory while a real broker writes it, rewrites it and deletes objects."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.warm_broker import ChaosBroker, eager_broker_on

from holdfast.spark.source.inputs import PlanOptions, read_range
from holdfast.spark.source.store_input import StoreInput

RECORDS = 30_000
STEP = 300
PARTITIONS = 2


@pytest.fixture
def eager_broker(tmp_path: Path) -> Iterator[ChaosBroker]:
    with eager_broker_on(tmp_path) as broker:
        yield broker


def test_each_record_is_read_once_whatever_is_rewritten_between_plan_and_read(
    eager_broker: ChaosBroker, tmp_path: Path
):
    bootstrap = {"bootstrap.servers": f"127.0.0.1:{eager_broker.port}"}
    made = NewTopic("t", PARTITIONS, 1)
    admin = AdminClient(bootstrap)
    admin.create_topics([made])["t"].result(30)
    producer = Producer({**bootstrap, "linger.ms": 2, "batch.num.messages": 50})
    source = StoreInput(str(tmp_path / "store"))
    partitions = source.topics()["t"].all_partitions()
    position = dict.fromkeys(partitions, 0)
    values: dict[int, list[bytes]] = {p.partition: [] for p in partitions}
    planned = []
    produced = 0
    while sum(map(len, values.values())) < RECORDS * PARTITIONS:
        for _ in range(STEP if produced < RECORDS else 0):
            for partition in range(PARTITIONS):
                producer.produce("t", b"%d-%d" % (partition, produced), partition=partition)
            produced += 1
        producer.flush(30)
        source.topics()
        latest = source.latest(partitions)
        assert all(latest[p] >= position[p] for p in partitions)
        planned += source.plan(position, latest, PlanOptions(min_partitions=3))
        position = latest
        # Read late: some of what was planned is in other objects by now, or soon will be.
        is_last = produced >= RECORDS
        while len(planned) > (0 if is_last else 20):
            one = pickle.loads(pickle.dumps(planned.pop(0)))
            assert len(values[one.partition]) == one.start_offset
            for batch in read_range(one):
                values[one.partition].extend(batch.column("value").to_pylist())
            assert len(values[one.partition]) == one.end_offset
    for partition, found in values.items():
        assert found == [b"%d-%d" % (partition, i) for i in range(RECORDS)]
