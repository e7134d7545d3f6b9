"""Three brokers on one store, with real clients: hand-offs that no client notices."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from tests.peers.holdfast_cluster import LANES, HoldfastCluster
from tests.peers.process import wait_until
from tests.support.load import PARTITIONS, SECONDS_MAX, Load, check, leaders


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
