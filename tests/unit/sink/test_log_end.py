"""`--once`: the end is that of all partitions, also of those that another member has."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker

from holdfast.client.cluster import Cluster
from holdfast.client.groups import commit_offsets
from holdfast.client.membership.interface import MemberSettings
from holdfast.environment import SystemEnvironment
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.sink.log_end import LogEnd
from holdfast.sink.settings import OutputSettings, SinkSettings


def test_the_end_is_reached_when_the_group_has_committed_it_in_each_partition(
    holdfast_broker: HoldfastBroker, tmp_path: Path
):
    bootstrap = holdfast_broker.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("log-end", 3, 1)])["log-end"].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in (0, 0, 2):
        producer.produce("log-end", value=b"{}", partition=partition)
    assert producer.flush(30) == 0
    settings = SinkSettings(
        bootstrap=bootstrap,
        member=MemberSettings(group_id="log-end", pattern="log-en."),
        output=OutputSettings(store=str(tmp_path)),
    )
    first, third = TopicPartition("log-end", 0), TopicPartition("log-end", 2)

    async def main() -> None:
        async with Cluster(bootstrap, environment=SystemEnvironment()) as cluster:
            end = LogEnd(cluster, settings)
            assert await end.goals() == {first: 2, third: 1}
            assert not await end.is_committed([first, third])
            await commit_offsets(cluster, "log-end", {first: 2})
            assert await end.is_committed([first])
            assert not await end.is_committed([first, third])
            producer.produce("log-end", value=b"{}", partition=0)
            producer.flush(30)
            await commit_offsets(cluster, "log-end", {third: 1})
            assert await end.is_committed([first, third])

    asyncio.run(main())


@pytest.mark.peer
def test_a_pattern_waits_for_no_internal_topic(kafka_broker: KafkaBroker, tmp_path: Path):
    """With ".*" on Apache Kafka `--once` waited for the end of __consumer_offsets, for ever."""
    bootstrap = kafka_broker.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("log-end-of-all", 1, 1)])["log-end-of-all"].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("log-end-of-all", value=b"{}")
    assert producer.flush(30) == 0
    settings = SinkSettings(
        bootstrap=bootstrap,
        member=MemberSettings(group_id="log-end-of-all", pattern=".*"),
        output=OutputSettings(store=str(tmp_path)),
    )
    where = TopicPartition("log-end-of-all", 0)

    async def main() -> None:
        async with Cluster(bootstrap, environment=SystemEnvironment()) as cluster:
            await commit_offsets(cluster, "log-end-of-all", {where: 1})
            topics = {topic.name for topic in (await cluster.refresh(None)).topics}
            assert "__consumer_offsets" in topics
            goals = await LogEnd(cluster, settings).goals()
            assert goals[where] == 1
            assert not [found for found in goals if found.topic.startswith("__")]

    asyncio.run(main())
