"""Topic administration: create, describe, add partitions, delete, create again; the cluster."""

from collections.abc import Callable

import pytest
from tests.compat.families.interface import (
    Ability,
    ClientFamily,
    ErrorCode,
    OffsetSpec,
    Record,
    Topic,
)
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker
from tests.peers.process import wait_until

NewTopic = Callable[..., str]


def described(client: ClientFamily, topic: str) -> Topic:
    answer = client.describe_topic(topic)
    assert isinstance(answer, Topic)
    return answer


def test_a_new_topic_is_listed_with_its_partitions_and_leaders(
    client: ClientFamily, topic_name: str, new_topic: NewTopic
):
    topic = new_topic(topic_name, partitions=3)
    assert topic in client.list_topics()
    partitions = described(client, topic).partitions
    assert [partition.index for partition in partitions] == [0, 1, 2]
    brokers = {broker[0] for broker in client.describe_cluster().brokers}
    for partition in partitions:
        assert partition.leader in brokers
        assert partition.replicas == (partition.leader,)
        assert partition.isr == (partition.leader,)


def test_a_topic_that_exists_is_not_created_again(client: ClientFamily, topic: str):
    assert client.create_topic(topic) == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("name", ["with space", "a/b", "..", "ü", "n" * 250])
def test_a_name_that_kafka_does_not_allow_is_refused(client: ClientFamily, name: str):
    assert client.create_topic(name) == ErrorCode.INVALID_TOPIC


def test_a_topic_needs_at_least_one_partition(client: ClientFamily, topic_name: str):
    assert client.create_topic(topic_name, partitions=0) == ErrorCode.INVALID_PARTITIONS
    assert topic_name not in client.list_topics()


def test_an_absent_topic_is_unknown(client: ClientFamily, topic_name: str):
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.delete_topic(topic_name) == unknown
    assert client.create_partitions(topic_name, 3) == unknown
    assert client.describe_configs(topic_name) == unknown
    assert topic_name not in client.list_topics()


@pytest.mark.needs(Ability.TOPIC_ID)
def test_describing_an_absent_topic_does_not_create_it(client: ClientFamily, topic_name: str):
    assert client.describe_topic(topic_name) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic_name not in client.list_topics()


def test_partitions_can_be_added_and_used(client: ClientFamily, topic: str):
    client.produce(topic, [Record(value=b"before")])
    assert client.create_partitions(topic, 3) == ErrorCode.NONE
    wait_until(
        lambda: len(described(client, topic).partitions) == 3,
        seconds_max=20,
        what="three partitions",
    )
    (delivery,) = client.produce(topic, [Record(value=b"after", partition=2)])
    assert (delivery.partition, delivery.offset) == (2, 0)
    consumed = client.consume(topic, 2, positions={0: 0, 1: 0, 2: 0})
    assert {(record.partition, record.value) for record in consumed} == {
        (0, b"before"),
        (2, b"after"),
    }


@pytest.mark.parametrize("total", [1, 2])
def test_partitions_can_only_grow(
    client: ClientFamily, topic_name: str, new_topic: NewTopic, total: int
):
    topic = new_topic(topic_name, partitions=2)
    assert client.create_partitions(topic, total) == ErrorCode.INVALID_PARTITIONS
    assert len(described(client, topic).partitions) == 2


def delete_and_create_again(client: ClientFamily, topic: str) -> None:
    assert client.delete_topic(topic) == ErrorCode.NONE
    wait_until(lambda: topic not in client.list_topics(), seconds_max=20, what="topic is gone")
    assert client.create_topic(topic) == ErrorCode.NONE
    wait_until(
        lambda: (
            isinstance(again := client.describe_topic(topic), Topic)
            and len(again.partitions) == 1
            and again.partitions[0].leader >= 0
        ),
        seconds_max=20,
        what="topic is there again",
    )


def test_a_topic_of_the_same_name_starts_empty(client: ClientFamily, topic: str):
    client.produce(topic, [Record(value=b"old")] * 5)
    delete_and_create_again(client, topic)
    assert client.list_offset(topic, 0, OffsetSpec.LATEST).offset == 0
    (delivery,) = client.produce(topic, [Record(value=b"new")])
    assert delivery.offset == 0
    assert [record.value for record in client.consume(topic, 1)] == [b"new"]


@pytest.mark.needs(Ability.TOPIC_ID)
def test_a_topic_of_the_same_name_has_another_topic_id(client: ClientFamily, topic: str):
    before = described(client, topic).topic_id
    delete_and_create_again(client, topic)
    after = described(client, topic).topic_id
    assert before and after and before != after


def test_the_cluster_names_its_brokers_and_its_controller(
    client: ClientFamily, cluster: KafkaBroker | HoldfastBroker
):
    described_cluster = client.describe_cluster()
    assert described_cluster.cluster_id
    addresses = {(host, port) for _, host, port in described_cluster.brokers}
    assert addresses == {("127.0.0.1", cluster.port)}
    assert described_cluster.controller in {broker[0] for broker in described_cluster.brokers}
