"""Three brokers on one store, with real clients: hand-offs that no client notices."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from tests.peers.holdfast_cluster import LANES, HoldfastCluster
from tests.peers.process import wait_until

PARTITIONS = 12
SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastCluster]:
    cluster = HoldfastCluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture
def topic(partitioned_topic: Callable[[int], str]) -> str:
    return partitioned_topic(PARTITIONS)


def leaders(cluster: HoldfastCluster, topic: str, through: int) -> set[int]:
    admin = AdminClient({"bootstrap.servers": cluster.brokers[through].bootstrap})
    found = admin.list_topics(topic, timeout=20).topics[topic].partitions
    return {partition.leader for partition in found.values()}


def status(cluster: HoldfastCluster) -> dict[int, list[int]]:
    """The lanes of each broker that answers."""
    told = json.loads(holdfast("cluster", "status", "--json", "--bootstrap", cluster.bootstrap))
    return {
        broker["broker_id"]: sorted(map(int, broker["lanes"]))
        for broker in told["brokers"]
        if broker["state"] != "does not answer"
    }


def holdfast(*arguments: str) -> str:
    command = [str(Path(sys.executable).parent / "holdfast"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Load:
    """A producer that never stops, and what was acknowledged to it."""

    def __init__(self, cluster: HoldfastCluster, topic: str, *, is_idempotent: bool = True) -> None:
        self.topic = topic
        self._is_idempotent = is_idempotent
        self.bootstrap = cluster.bootstrap
        self.acked: dict[int, tuple[int, int] | None] = {}
        """By value: partition and offset. None where librdkafka knows the offset no more: a later
        batch of its own was acknowledged while the answer to this one was lost."""
        self.failed: list[KafkaError] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def until_acked(self, more: int) -> None:
        wanted = len(self.acked) + more
        wait_until(
            lambda: len(self.acked) >= wanted,
            seconds_max=SECONDS_MAX,
            what=f"{more} more records are acknowledged",
        )

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        self.acked[int(value)] = None if offset is None else (partition, offset)

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "linger.ms": 2,
                "enable.idempotence": self._is_idempotent,
            }
        )
        number = 0
        while not self._stopping.is_set():
            producer.produce(
                self.topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._told
            )
            number += 1
            producer.poll(0)
            time.sleep(0.001)
        assert producer.flush(SECONDS_MAX) == 0


def read(bootstrap: str, topic: str, wanted: int) -> dict[int, tuple[int, int]]:
    """All records by value, with their places; each is there once."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "not-used"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: dict[int, tuple[int, int]] = {}
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < wanted and time.monotonic() < deadline:
        for message in consumer.consume(1000, timeout=0.5):
            if message.error() is None:
                value = int(message.value() or b"")
                assert value not in found, f"{value} is doubled"
                found[value] = (message.partition() or 0, message.offset() or 0)
    consumer.close()
    return found


def commit(consumer: Consumer, offsets: list[TopicPartition]) -> None:
    """Commit, again where the coordinator has just changed: librdkafka leaves that to its user."""

    def is_committed() -> bool:
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as refused:
            assert refused.args[0].code() == KafkaError.NOT_COORDINATOR, refused
            return False
        return True

    wait_until(is_committed, seconds_max=SECONDS_MAX, what="offsets are committed")


def check(load: Load, bootstrap: str) -> None:
    assert not load.failed
    found = read(bootstrap, load.topic, len(load.acked))
    assert load.acked.keys() <= found.keys()
    placed = {value: place for value, place in load.acked.items() if place is not None}
    assert {value: found[value] for value in placed} == placed


def test_every_broker_leads_some_partitions_and_names_the_same_leaders(
    cluster: HoldfastCluster, topic: str
):
    wait_until(
        lambda: all(leaders(cluster, topic, number) == {1, 2, 3} for number in (1, 2, 3)),
        seconds_max=SECONDS_MAX,
        what="all brokers lead some partitions",
    )
    lanes = [lane for owned in status(cluster).values() for lane in owned]
    assert sorted(lanes) == list(range(LANES + 1))


def test_any_broker_takes_administrative_requests(cluster: HoldfastCluster, topic_name: str):
    for number, broker in cluster.brokers.items():
        name = f"{topic_name}-{number}"
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(name, 2, 1)])[name].result(20)
        resource = ConfigResource(ResourceType.TOPIC, name, {"retention.ms": "86400000"})
        admin.alter_configs([resource])[resource].result(20)
        shown = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)])
        (found,) = [future.result(20) for future in shown.values()]
        assert found["retention.ms"].value == "86400000"
        admin.delete_topics([name])[name].result(20)


def test_a_lane_is_moved_and_a_broker_drained_while_records_are_produced(
    cluster: HoldfastCluster, topic: str
):
    with Load(cluster, topic) as load:
        load.until_acked(200)
        for target in (2, 3, 1):
            told = holdfast(
                "cluster", "move", "4", "--to", str(target), "--bootstrap", cluster.bootstrap
            )
            assert told.strip() == f"lane 4 is at broker {target}"
            assert 4 in status(cluster)[target]
            load.until_acked(200)
        there = ("--json", "--bootstrap", cluster.bootstrap)
        told = holdfast("cluster", "move", "4", "--to", "2", *there)
        assert json.loads(told) == {"action": "moved", "lane": 4, "broker": 2}
        told = holdfast("cluster", "move", "4", "--to", "any", *there)
        assert json.loads(told) == {"action": "moved", "lane": 4, "broker": None}
        told = holdfast("cluster", "drain", "1", "--bootstrap", cluster.bootstrap)
        assert told.strip() == "broker 1 has no lanes"
        told = holdfast("cluster", "drain", "1", *there)
        assert json.loads(told) == {"action": "drained", "broker": 1}
        assert leaders(cluster, topic, 2) == {2, 3}
        load.until_acked(200)
        told = holdfast("cluster", "drain", "1", "--end", *there)
        assert json.loads(told) == {"action": "drain_ended", "broker": 1}
        wait_until(
            lambda: len(status(cluster)[1]) >= LANES // 3,
            seconds_max=SECONDS_MAX,
            what="broker 1 has lanes again",
        )
        load.until_acked(200)
    check(load, cluster.bootstrap)


def test_brokers_are_stopped_killed_and_paused_in_turn_and_nothing_is_lost_or_doubled(
    cluster: HoldfastCluster, topic: str
):
    with Load(cluster, topic) as load:
        load.until_acked(500)
        cluster.brokers[1].stop()
        load.until_acked(1000)
        cluster.brokers[1].start()
        load.until_acked(500)
        cluster.brokers[2].kill()
        load.until_acked(1000)
        cluster.brokers[2].start()
        load.until_acked(500)
        cluster.pause(3)
        wait_until(
            lambda: leaders(cluster, topic, 1) <= {1, 2},
            seconds_max=SECONDS_MAX,
            what="the lanes of the paused broker have other owners",
        )
        load.until_acked(1000)
        cluster.resume(3)
        load.until_acked(500)
        wait_until(
            lambda: all(leaders(cluster, topic, number) == {1, 2, 3} for number in (1, 2, 3)),
            seconds_max=SECONDS_MAX,
            what="all brokers lead some partitions again",
        )
    check(load, cluster.bootstrap)


def test_committed_offsets_are_there_when_their_coordinator_has_changed(
    cluster: HoldfastCluster, topic: str
):
    wanted = [TopicPartition(topic, number, 7 + number) for number in range(PARTITIONS)]
    group = f"group-of-{topic}"
    for number in (1, 2, 3):
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
        commit(consumer, wanted)
        holdfast("cluster", "drain", str(number), "--bootstrap", cluster.bootstrap)
        found = consumer.committed(wanted, timeout=30)
        assert [each.offset for each in found] == [each.offset for each in wanted]
        consumer.close()
        holdfast("cluster", "drain", str(number), "--end", "--bootstrap", cluster.bootstrap)
