"""One fetch over many partitions of several topics, from real brokers."""

import asyncio
from collections.abc import Callable

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker
from tests.support.async_tests import in_event_loop

from holdfast.client.cluster import Cluster
from holdfast.client.fetch import PartitionFetch, PartitionToFetch, fetch, records_of
from holdfast.client.fetch_many import Unfetched, fetch_many
from holdfast.environment import SystemEnvironment
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition

MIB = 1024 * 1024


def test_partitions_of_several_topics_come_with_one_answer(
    cluster: KafkaBroker | HoldfastBroker,
    partitioned_topic: Callable[[int], str],
    admin: AdminClient,
):
    first = partitioned_topic(4)
    second = f"{first}-second"
    admin.create_topics([NewTopic(second, 2, 1)])[second].result(20)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for topic, count in ((first, 4), (second, 2)):
        for number in range(count):
            for turn in range(3):
                producer.produce(topic, value=b"%d" % turn, partition=number)
    producer.flush(20)

    async def scenario() -> None:
        async with Cluster(cluster.bootstrap, environment=SystemEnvironment()) as client:
            leader = await client.leader(first, 0)
            places = [(first, n, 1) for n in range(3)] + [(first, 3, 99), (second, 1, 0)]
            wanted = [PartitionToFetch(topic, n, offset, MIB) for topic, n, offset in places]
            answers = await fetch_many(client, leader.node_id, wanted, read_committed=True)
            assert answers.keys() == {TopicPartition(topic, n) for topic, n, _ in places}
            refused = answers.pop(TopicPartition(first, 3))
            assert isinstance(refused, Unfetched)
            assert refused.code == ErrorCode.OFFSET_OUT_OF_RANGE
            for where, answer in answers.items():
                assert isinstance(answer, PartitionFetch)
                seen = [record.value for record in records_of(answer, read_committed=True)]
                assert seen == ([b"1", b"2"] if where.topic == first else [b"0", b"1", b"2"])
                assert answer.next_offset == answer.high_watermark == 3

    asyncio.run(scenario())


@in_event_loop
async def test_a_long_poll_does_not_hold_up_what_goes_over_a_sibling(
    cluster: KafkaBroker | HoldfastBroker, partitioned_topic: Callable[[int], str]
):
    topic = partitioned_topic(1)
    async with (
        Cluster(cluster.bootstrap, environment=SystemEnvironment()) as client,
        client.sibling() as sibling,
    ):
        await fetch(client, topic, 0, 0, max_wait_ms=0)
        leader = await client.leader(topic, 0)
        wanted = [PartitionToFetch(topic, 0, 0, MIB)]
        waiting = asyncio.create_task(fetch_many(client, leader.node_id, wanted, max_wait_ms=2000))
        await sibling.refresh([topic])
        assert not waiting.done()
        answers = await waiting
        answer = answers[TopicPartition(topic, 0)]
        assert isinstance(answer, PartitionFetch)
        assert answer.next_offset == 0
