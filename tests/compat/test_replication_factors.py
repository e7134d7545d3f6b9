"""Topics that ask for more than one replica, by Kafka's own tool and by librdkafka."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast_cluster import HoldfastCluster
from tests.peers.jars import PeerUnavailable, java_command, kafka_class_path
from tests.peers.kafka_tools import TOPICS, kafka_tool
from tests.support.librdkafka import SILENT

SECONDS_MAX = 60.0
pytestmark = pytest.mark.xdist_group("replication factors")


@pytest.fixture(scope="module", params=[1, 3], ids=["one broker", "three brokers"])
def brokers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HoldfastCluster]:
    cluster = HoldfastCluster(tmp_path_factory.mktemp("cluster"), brokers=request.param)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


def produce_one(bootstrap: str, topic: str) -> None:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "logger": SILENT})
    producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS_MAX) == 0
    assert errors == [None]


@pytest.mark.parametrize("factor", [-1, 1, 3, 10_000])
def test_any_factor_is_accepted_and_a_record_that_wants_all_replicas_is_taken(
    brokers: HoldfastCluster, factor: int
):
    topic = f"factor-{factor}"
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "logger": SILENT})
    wanted = NewTopic(topic, 2, factor, config={"min.insync.replicas": "3"})
    admin.create_topics([wanted])[topic].result(SECONDS_MAX)
    produce_one(brokers.bootstrap, topic)


def test_kafkas_own_tool_creates_a_topic_with_three_replicas_and_is_shown_the_true_one(
    brokers: HoldfastCluster,
):
    try:
        java_command()
        kafka_class_path()
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    create = ["--create", "--topic", "three", "--partitions", "2", "--replication-factor", "3"]
    assert "Created topic three" in kafka_tool(TOPICS, brokers.bootstrap, *create)
    shown = kafka_tool(TOPICS, brokers.bootstrap, "--describe", "--topic", "three")
    assert "PartitionCount: 2\tReplicationFactor: 1" in shown
    problems = ["--describe", "--under-replicated-partitions", "--topic", "three"]
    assert kafka_tool(TOPICS, brokers.bootstrap, *problems).strip() == ""


def test_a_manual_assignment_gives_the_number_of_partitions(brokers: HoldfastCluster):
    ids = sorted(brokers.brokers)
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "logger": SILENT})
    wanted = NewTopic("assigned", 2, replica_assignment=[ids, ids[::-1]])
    admin.create_topics([wanted])["assigned"].result(SECONDS_MAX)
    found = admin.list_topics("assigned", timeout=SECONDS_MAX).topics["assigned"]
    assert len(found.partitions) == 2
    produce_one(brokers.bootstrap, "assigned")
