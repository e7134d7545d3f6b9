"""Kafka Connect, distributed, with the replication factor that it asks for by default (3): on one
broker and on three. A worker that is killed goes on where it was."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from tests.peers.holdfast_cluster import HoldfastCluster
from tests.peers.jars import PeerUnavailable
from tests.peers.kafka_connect import FILE_SOURCE, INTERNAL_TOPICS, ConnectWorker

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(600)]

LINES = 1_000
POLLS_MAX = 240
SECONDS_MAX = 120.0


@pytest.fixture(params=[1, 3], ids=["one broker", "three brokers"])
def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HoldfastCluster]:
    cluster = HoldfastCluster(tmp_path, brokers=request.param)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture
def worker(brokers: HoldfastCluster, tmp_path: Path) -> Iterator[ConnectWorker]:
    try:
        worker = ConnectWorker(tmp_path / "worker", brokers.bootstrap)
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    try:
        yield worker.start()
    finally:
        worker.kill()


@pytest.fixture
def consumer(brokers: HoldfastCluster) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "reader"})
    yield consumer
    consumer.close()


def lines(first: int, end: int) -> list[str]:
    return [f"line {number}" for number in range(first, end)]


def append(file: Path, added: list[str]) -> None:
    with file.open("a") as opened:
        opened.writelines(f"{line}\n" for line in added)


def read(consumer: Consumer, count: int) -> list[str]:
    """The next values; fewer only where no more come."""
    found: list[str] = []
    for _ in range(POLLS_MAX):
        for message in consumer.consume(count - len(found), timeout=0.5):
            assert message.error() is None
            found.append((message.value() or b"").decode())
        if len(found) == count:
            break
    return found


def test_a_file_source_goes_on_where_it_was_after_its_worker_was_killed(
    worker: ConnectWorker, consumer: Consumer, tmp_path: Path
):
    source = tmp_path / "lines.txt"
    append(source, lines(0, LINES))
    worker.put_connector(
        "lines",
        {"connector.class": FILE_SOURCE, "tasks.max": "1", "file": str(source), "topic": "lines"},
    )
    worker.process.wait_until(
        lambda: {*INTERNAL_TOPICS, "lines"} <= set(consumer.list_topics(timeout=20).topics),
        seconds_max=SECONDS_MAX,
        what="the worker has created its topics",
    )
    consumer.assign([TopicPartition("lines", 0, OFFSET_BEGINNING)])
    assert read(consumer, LINES) == lines(0, LINES)
    worker.process.wait_until(
        lambda: worker.source_offsets("lines") == [{"position": source.stat().st_size}],
        seconds_max=SECONDS_MAX,
        what="the worker has stored how far it has come",
    )

    worker.kill()
    append(source, lines(LINES, 2 * LINES))
    worker.start()

    # Not from the first line: what was stored before the kill counts.
    assert read(consumer, LINES) == lines(LINES, 2 * LINES)
    worker.process.wait_until(
        lambda: worker.states("lines") == ["RUNNING", "RUNNING"],
        seconds_max=SECONDS_MAX,
        what="the connector and its task run",
    )
