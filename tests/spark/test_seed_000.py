"""Seed 000 with a real Spark: its own Kafka source, failOnDataLoss=true, three brokers with
disks. `make chaos-handoff` also runs it without the protection, and must see it aborted."""

from pathlib import Path

import pytest
from tests.chaos import seed_000
from tests.peers.jars import PeerUnavailable, spark_kafka_jars

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def has_sparks_source() -> None:
    try:
        spark_kafka_jars()
    except PeerUnavailable as unavailable:
        pytest.skip(str(unavailable))


def test_a_query_sees_no_hand_off_of_a_primary_whose_records_are_on_its_disk_alone(tmp_path: Path):
    figures = seed_000.run(tmp_path, hand_offs=3)
    assert figures.problems == []
    assert figures.landed == figures.acked > 0
    assert figures.hand_offs == {"drain": 1, "kill": 1, "pause": 1}
