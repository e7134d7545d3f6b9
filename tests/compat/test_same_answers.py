"""Requests that are sent as they are to Holdfast and to Apache Kafka: both give the same answer."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.asking import ask
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker
from tests.peers.process import wait_until
from tests.support.hostile_bytes import batch, record

from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from holdfast.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from holdfast.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from holdfast.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from holdfast.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from holdfast.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from holdfast.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from holdfast.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

Cluster = KafkaBroker | HoldfastBroker
PRODUCE_VERSION = 11
NOW_MS = int(time.time() * 1_000)
"""Old records would be taken by retention in the middle of a test."""


def produce(
    cluster: Cluster, topic: str, records: bytes, *, version: int = PRODUCE_VERSION
) -> PartitionProduceResponse:
    data = PartitionProduceData(index=0, records=memoryview(records))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    answer = ask(cluster.bootstrap, request, ProduceResponse, version=version)
    return answer.responses[0].partition_responses[0]


def new_producer_id(cluster: Cluster) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    known: list[int] = []

    def is_given() -> bool:
        answer = ask(cluster.bootstrap, request, InitProducerIdResponse, version=4)
        known.append(answer.producer_id)
        return answer.error_code == ErrorCode.NONE

    wait_until(is_given, seconds_max=30, what="a producer id")
    return known[-1]


def test_a_batch_with_a_known_sequence_range_is_a_duplicate_whatever_its_bytes(
    cluster: Cluster, partitioned_topic: Callable[[int], str]
):
    topic = partitioned_topic(1)
    producer_id = new_producer_id(cluster)

    def send(*values: bytes, sequence: int, timestamp: int) -> tuple[int, int]:
        told = produce(
            cluster,
            topic,
            batch(
                *values,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                base_timestamp=timestamp,
            ),
        )
        return told.error_code, told.base_offset

    assert send(b"a", b"b", sequence=0, timestamp=NOW_MS) == (ErrorCode.NONE, 0)
    assert send(b"a", b"b", sequence=0, timestamp=NOW_MS + 777) == (ErrorCode.NONE, 0)
    assert send(b"other", b"b", sequence=0, timestamp=NOW_MS + 777) == (ErrorCode.NONE, 0)
    assert send(b"c", sequence=2, timestamp=NOW_MS + 777) == (ErrorCode.NONE, 2)
    part_of_it, _ = send(b"b", sequence=1, timestamp=NOW_MS + 777)
    assert part_of_it == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def keyed(count: int, *, without: set[int]) -> bytes:
    """A batch of which some records have no key."""
    body = b"".join(record(b"v", delta=i, key=None if i in without else b"k") for i in range(count))
    return batch(body=body, count=count)


def test_a_compacted_topic_names_the_records_that_have_no_key(
    cluster: Cluster, topic_name: str, admin: AdminClient
):
    compacted = NewTopic(topic_name, 1, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([compacted])[topic_name].result(20)
    told = produce(cluster, topic_name, keyed(10, without={2, 5}))
    assert (told.error_code, told.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert [each.batch_index for each in told.record_errors] == [2, 5]
    assert all(each.batch_index_error_message for each in told.record_errors)
    assert told.error_message
    before_kip_467 = produce(cluster, topic_name, keyed(10, without={2, 5}), version=7)
    assert (before_kip_467.error_code, before_kip_467.record_errors) == (87, [])
    assert produce(cluster, topic_name, keyed(10, without=set())).base_offset == 0


def test_a_producer_is_told_which_of_its_records_was_wrong_and_which_only_came_along(
    cluster: Cluster, topic_name: str, admin: AdminClient
):
    compacted = NewTopic(topic_name, 1, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([compacted])[topic_name].result(20)
    told: dict[int, str] = {}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 1000})
    for i in range(10):

        def delivered(error: KafkaError, _: object, i: int = i) -> None:
            told[i] = error.name()

        key = None if i in (2, 5) else b"k"
        producer.produce(topic_name, b"v", key=key, partition=0, on_delivery=delivered)
    assert producer.flush(60) == 0
    wrong = {i for i, name in told.items() if name == "INVALID_RECORD"}
    assert (len(told), wrong) == (10, {2, 5})
    assert {name for i, name in told.items() if i not in wrong} == {"_INVALID_DIFFERENT_RECORD"}


def test_a_record_of_tomorrow_is_named(cluster: Cluster, partitioned_topic: Callable[[int], str]):
    topic = partitioned_topic(1)
    body = b"".join(
        record(b"v", delta=i, timestamp_delta=10**12 if i == 1 else 0) for i in range(3)
    )
    newest = 1_700_000_000_000 + 10**12
    told = produce(cluster, topic, batch(body=body, count=3, max_timestamp=newest))
    assert told.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in told.record_errors] == [1]


WRONG_INSIDE = {
    "junk": batch(body=b"\x01" * 40, count=3),
    "more records than are there": batch(body=record(b"x") + record(b"x", delta=1), count=3),
    "fewer records than are there": batch(body=record(b"x") + record(b"x", delta=1), count=1),
    "a length that is too short": batch(body=b"\x02" + record(b"x")[1:], count=1),
    "a byte after the last record": batch(body=record(b"x") + b"\x00", count=1),
}


@pytest.mark.parametrize("name", WRONG_INSIDE)
def test_a_batch_that_cannot_be_read_is_refused_where_records_are_checked(
    cluster: Cluster, topic_name: str, admin: AdminClient, name: str
):
    """Kafka always checks; Holdfast with holdfast.validate.records."""
    is_ours = isinstance(cluster, HoldfastBroker)
    configs = {"holdfast.validate.records": "true"} if is_ours else {}
    admin.create_topics([NewTopic(topic_name, 1, 1, config=configs)])[topic_name].result(20)
    assert produce(cluster, topic_name, WRONG_INSIDE[name]).error_code == ErrorCode.INVALID_RECORD
    assert produce(cluster, topic_name, batch(b"good")).base_offset == 0


def test_records_are_deleted_even_with_a_timeout_of_zero(
    cluster: Cluster, partitioned_topic: Callable[[int], str]
):
    topic = partitioned_topic(1)
    assert produce(cluster, topic, batch(b"a", b"b", b"c")).error_code == ErrorCode.NONE
    wanted = DeleteRecordsPartition(partition_index=0, offset=2)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=0
    )
    answer = ask(cluster.bootstrap, request, DeleteRecordsResponse, version=2)
    told = answer.topics[0].partitions[0]
    assert (told.error_code, told.low_watermark) == (ErrorCode.NONE, 2)


NOT_ASKED = -(2**31)
TOPIC_OPERATIONS, CLUSTER_OPERATIONS, GROUP_OPERATIONS = 3576, 8096, 3400


@pytest.mark.parametrize("is_asked", [True, False])
def test_without_an_authorizer_all_operations_on_topics_and_cluster_are_told_if_asked_for(
    cluster: Cluster, partitioned_topic: Callable[[int], str], is_asked: bool
):
    names = [partitioned_topic(1), "nobody-made-it"]
    metadata = ask(
        cluster.bootstrap,
        MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=is_asked,
            include_cluster_authorized_operations=is_asked,
        ),
        MetadataResponse,
        version=10,
    )
    topics = {each.topic_authorized_operations for each in metadata.topics}
    assert topics == {TOPIC_OPERATIONS if is_asked else NOT_ASKED}
    described = ask(
        cluster.bootstrap,
        DescribeClusterRequest(include_cluster_authorized_operations=is_asked),
        DescribeClusterResponse,
        version=1,
    )
    expected = CLUSTER_OPERATIONS if is_asked else NOT_ASKED
    assert metadata.cluster_authorized_operations == expected
    assert described.cluster_authorized_operations == expected


@pytest.mark.parametrize("is_asked", [True, False])
def test_without_an_authorizer_all_operations_on_groups_are_told_if_asked_for(
    cluster: Cluster, topic_name: str, admin: AdminClient, is_asked: bool
):
    admin.create_topics([NewTopic(topic_name, 1, 1)])[topic_name].result(20)
    members = [
        Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": f"{topic_name}-{protocol}"}
            | {"group.protocol": protocol}
        )
        for protocol in ("classic", "consumer")
    ]
    try:
        for member in members:
            member.subscribe([topic_name])
            wait_until(
                lambda member=member: member.poll(0.2) is None and bool(member.assignment()),
                seconds_max=60,
                what="the member has its partition",
            )
        classic = ask(
            cluster.bootstrap,
            DescribeGroupsRequest(
                groups=[f"{topic_name}-classic"], include_authorized_operations=is_asked
            ),
            DescribeGroupsResponse,
            version=5,
        ).groups[0]
        consumer = ask(
            cluster.bootstrap,
            ConsumerGroupDescribeRequest(
                group_ids=[f"{topic_name}-consumer"], include_authorized_operations=is_asked
            ),
            ConsumerGroupDescribeResponse,
            version=0,
        ).groups[0]
        expected = GROUP_OPERATIONS if is_asked else NOT_ASKED
        assert (classic.error_code, classic.authorized_operations) == (ErrorCode.NONE, expected)
        assert (consumer.error_code, consumer.authorized_operations) == (ErrorCode.NONE, expected)
    finally:
        for member in members:
            member.close()


SYNONYMS = {
    "cleanup.policy": [("log.cleanup.policy", "delete", 5)],
    "compression.type": [("compression.type", "producer", 5)],
    "max.message.bytes": [("message.max.bytes", "1048588", 5)],
    "retention.bytes": [("retention.bytes", "5000", 1), ("log.retention.bytes", "-1", 5)],
    "retention.ms": [],
    "segment.ms": [("segment.ms", "9000", 1)],
    "unclean.leader.election.enable": [("unclean.leader.election.enable", "false", 5)],
}


def test_the_synonyms_of_a_topics_configurations_name_the_brokers_settings(
    cluster: Cluster, topic_name: str, admin: AdminClient
):
    own = {"retention.bytes": "5000", "segment.ms": "9000"}
    admin.create_topics([NewTopic(topic_name, 1, 1, config=own)])[topic_name].result(20)
    resource = DescribeConfigsResource(
        resource_type=2, resource_name=topic_name, configuration_keys=list(SYNONYMS)
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (result,) = ask(cluster.bootstrap, request, DescribeConfigsResponse, version=4).results
    found = {
        config.name: [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms]
        for config in result.configs
    }
    assert found == SYNONYMS
