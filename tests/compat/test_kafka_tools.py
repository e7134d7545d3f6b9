"""Apache Kafka's own command line tools on three brokers: they see the whole cluster, whichever
broker they ask."""

import re
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from tests.peers.holdfast_cluster import HoldfastCluster
from tests.peers.jars import PeerUnavailable, java_command, kafka_class_path
from tests.peers.kafka_tools import (
    CONSUMER_GROUPS,
    GET_OFFSETS,
    TOPICS,
    TRANSACTIONS,
    kafka_tool,
)
from tests.peers.process import wait_until

PARTITIONS = 12
RECORDS = 60
POLLS_MAX = 200
SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastCluster]:
    try:
        java_command()
        kafka_class_path()
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    cluster = HoldfastCluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture
def topic(partitioned_topic: Callable[[int], str]) -> str:
    return partitioned_topic(PARTITIONS)


def leaders(admin: AdminClient, topic: str) -> list[tuple[int, int]]:
    found = admin.list_topics(topic, timeout=20).topics[topic].partitions.values()
    return sorted((partition.id, partition.leader) for partition in found)


def test_kafka_topics_shows_the_leader_of_each_partition_through_any_broker(
    cluster: HoldfastCluster, admin: AdminClient, topic: str
):
    wait_until(
        lambda: {leader for _, leader in leaders(admin, topic)} == set(cluster.brokers),
        seconds_max=SECONDS_MAX,
        what="every broker leads a partition",
    )
    expected = leaders(admin, topic)
    for broker in cluster.brokers.values():
        shown = kafka_tool(TOPICS, broker.bootstrap, "--describe", "--topic", topic)
        found = re.findall(r"Partition: (\d+)\tLeader: (\w+)\tReplicas: (\w+)\tIsr: (\w+)", shown)
        assert [(int(p), int(leader)) for p, leader, _, _ in found] == expected
        assert all(leader == replica == isr for _, leader, replica, isr in found)


def test_groups_offsets_and_transactions_are_shown_as_they_are(
    cluster: HoldfastCluster, topic: str
):
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    producer.commit_transaction(30)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        read = 0
        for _ in range(POLLS_MAX):
            message = consumer.poll(0.3)
            read += message is not None and message.error() is None
            if read == RECORDS:
                break
        assert read == RECORDS
        consumer.commit(asynchronous=False)
        shown = kafka_tool(CONSUMER_GROUPS, cluster.bootstrap, "--describe", "--group", topic)
    finally:
        consumer.close()
    rows = [line.split() for line in shown.splitlines() if line.startswith(topic)]
    each = RECORDS // PARTITIONS + 1  # and the marker of the transaction
    assert sorted(int(row[2]) for row in rows) == list(range(PARTITIONS))
    assert {row[4] for row in rows} == {str(each)}
    assert sum(int(row[5]) for row in rows) == sum(each - int(row[3]) for row in rows) <= PARTITIONS
    ends = kafka_tool(GET_OFFSETS, cluster.bootstrap, "--topic", topic)
    assert sorted(ends.split()) == sorted(f"{topic}:{p}:{each}" for p in range(PARTITIONS))
    listed = kafka_tool(TRANSACTIONS, cluster.bootstrap, "list")
    state = [line.split()[-1] for line in listed.splitlines() if line.startswith(topic)]
    assert state == ["CompleteCommit"]
