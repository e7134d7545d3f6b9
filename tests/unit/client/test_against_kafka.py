"""The client against Apache Kafka itself: versions, topics, offsets, produce, fetch, restart."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest
from tests.peers.kafka import KafkaBroker
from tests.support.client_cluster import create_topic, with_client

from holdfast.broker.endpoints import BETWEEN_BROKERS
from holdfast.client import admin
from holdfast.client.cluster import Cluster
from holdfast.client.connection import BrokerConnection
from holdfast.client.fetch import fetch, records_of
from holdfast.client.produce import IdempotentProducer
from holdfast.client.refusals import RefusedForNow, RequestRefused
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.schemas import SCHEMAS
from holdfast.records.compression import Codec
from holdfast.records.record import Record

pytestmark = pytest.mark.peer
NUMBERS = itertools.count()


def run(broker: KafkaBroker, body: Callable[[Cluster], Awaitable[None]]) -> None:
    with_client(broker.bootstrap, body)


async def new_topic(cluster: Cluster, *, partitions: int = 1, **configs: str) -> str:
    return await create_topic(cluster, f"client-{next(NUMBERS)}", partitions, **configs)


async def refusal_of(cluster: Cluster, topic: str) -> ErrorCode:
    """Ask until the broker has heard that the topic is gone; `run` bounds the wait."""
    while True:
        try:
            await cluster.describe(topic)
        except RefusedForNow as refused:
            return refused.code


def record(value: bytes, *, timestamp: int = 1_000) -> Record:
    return Record(0, timestamp, b"k", value, (("h", b"x"),))


def test_kafka_serves_the_newest_version_that_we_know_of_each_api(kafka_broker: KafkaBroker):
    async def body(cluster: Cluster) -> None:
        connection: BrokerConnection = await cluster.any_connection()
        for api_key, (request, _) in SCHEMAS.items():
            if api_key in BETWEEN_BROKERS:
                continue
            assert connection.version_for(request) in request.VERSIONS

    run(kafka_broker, body)


def test_topics_are_created_described_and_deleted(kafka_broker: KafkaBroker):
    async def body(cluster: Cluster) -> None:
        name = await new_topic(cluster, partitions=3, **{"max.message.bytes": "2000"})
        described = await admin.describe_topic(cluster, name)
        assert sorted(described.leaders) == [0, 1, 2]
        assert name in [topic.name for topic in await admin.describe_topics(cluster)]
        with pytest.raises(RequestRefused) as again:
            await admin.create_topics(cluster, [admin.NewTopic(name, 1, 1)])
        assert again.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        await admin.delete_topics(cluster, [name])
        assert await refusal_of(cluster, name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(kafka_broker, body)


@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_produced_is_fetched_with_its_offsets(kafka_broker: KafkaBroker, codec: Codec):
    async def body(cluster: Cluster) -> None:
        topic = await new_topic(cluster)
        producer = IdempotentProducer(cluster, codec=codec)
        sent = [[record(b"%d-%d" % (n, i) * 50) for i in range(n + 1)] for n in range(4)]
        offsets = [(await producer.send(topic, 0, records)).base_offset for records in sent]
        assert offsets == [0, 1, 3, 6]
        got = await fetch(cluster, topic, 0, 2)
        assert (got.high_watermark, got.log_start_offset, got.next_offset) == (10, 0, 10)
        expected = [
            item._replace(offset=offset)
            for offset, item in enumerate(item for records in sent for item in records)
        ]
        assert list(records_of(got)) == expected[2:]

    run(kafka_broker, body)


def test_offsets_are_listed_by_place_and_by_time(kafka_broker: KafkaBroker):
    async def body(cluster: Cluster) -> None:
        topic = await new_topic(cluster)
        producer = IdempotentProducer(cluster)
        for timestamp in (1_000, 3_000, 2_000):
            await producer.send(topic, 0, [record(b"v", timestamp=timestamp)])
        found = {
            at: (await admin.list_offset(cluster, topic, 0, at=at)).offset
            for at in (admin.EARLIEST, admin.LATEST, admin.MAX_TIMESTAMP, 1_500, 9_000)
        }
        assert found == {
            admin.EARLIEST: 0,
            admin.LATEST: 3,
            admin.MAX_TIMESTAMP: 1,
            1_500: 1,
            9_000: -1,
        }

    run(kafka_broker, body)


def test_a_fetch_past_the_end_is_refused_for_good(kafka_broker: KafkaBroker):
    async def body(cluster: Cluster) -> None:
        topic = await new_topic(cluster)
        with pytest.raises(RequestRefused) as refused:
            await fetch(cluster, topic, 0, 7)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    run(kafka_broker, body)


def test_a_batch_that_is_too_large_is_surely_refused_and_the_next_one_lands(
    kafka_broker: KafkaBroker,
):
    async def body(cluster: Cluster) -> None:
        topic = await new_topic(cluster, **{"max.message.bytes": "500"})
        producer = IdempotentProducer(cluster)
        assert (await producer.send(topic, 0, [record(b"small")])).base_offset == 0
        before = producer.producer_id
        with pytest.raises(RequestRefused) as refused:
            await producer.send(topic, 0, [record(bytes(1_000))])
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert (await producer.send(topic, 0, [record(b"small")])).base_offset == 1
        assert producer.producer_id == before

    run(kafka_broker, body)


def test_requests_of_many_tasks_share_one_connection(kafka_broker: KafkaBroker):
    async def body(cluster: Cluster) -> None:
        topic = await new_topic(cluster, partitions=4)
        producer = IdempotentProducer(cluster)
        answers = await asyncio.gather(
            *(producer.send(topic, n % 4, [record(b"%d" % n)]) for n in range(200))
        )
        for partition in range(4):
            assert [a.base_offset for a in answers[partition::4]] == list(range(50))

    run(kafka_broker, body)


@pytest.mark.slow
def test_a_restart_of_the_broker_is_waited_out_without_a_double(
    kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
):
    del kafka_broker  # where it is skipped, so is this
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka-restarted")).start()

    async def body(cluster: Cluster) -> None:
        topic = await new_topic(cluster)
        producer = IdempotentProducer(cluster, deadline_ms=50_000)
        await producer.send(topic, 0, [record(b"before")])
        await asyncio.to_thread(broker.kill)
        restart = asyncio.create_task(asyncio.to_thread(broker.start))
        produced = await producer.send(topic, 0, [record(b"during")])
        await restart
        assert produced.base_offset == 1
        assert produced.tries >= 1
        got = await fetch(cluster, topic, 0, 0)
        assert [item.value for item in records_of(got)] == [b"before", b"during"]

    try:
        run(broker, body)
    finally:
        broker.stop()
