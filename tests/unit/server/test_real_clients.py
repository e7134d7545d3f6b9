"""Three client libraries talk to the edge: versions, metadata, and one produce that is answered."""

import asyncio
from uuid import UUID

import confluent_kafka
from aiokafka import AIOKafkaProducer
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient

from holdfast.broker.endpoints import BETWEEN_BROKERS
from holdfast.protocol.api import ApiKey
from holdfast.protocol.connection import ServedApis
from holdfast.protocol.messages.api_versions import ApiVersionsResponse
from holdfast.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from holdfast.protocol.schemas import SCHEMAS
from holdfast.server.tcp import TcpServer

SERVED = ServedApis(
    {key: pair[0].VERSIONS for key, pair in SCHEMAS.items()}, unlisted=BETWEEN_BROKERS
)
TOPIC_ID = UUID(int=77)


class OneTopicBroker:
    """Has the topic `events`, takes any records and gives them offset 42."""

    def __init__(self) -> None:
        self.port = 0
        self.records = []

    def dispatch(self, request, peer):
        match request.api_key:
            case ApiKey.API_VERSIONS:
                return ApiVersionsResponse(api_keys=SERVED.entries()).encode(request.version)
            case ApiKey.METADATA:
                MetadataRequest.decode(request.body, request.version)
                return self.metadata().encode(request.version)
            case ApiKey.PRODUCE:
                return self.produce(request)
            case other:
                raise AssertionError(f"{other.name} is not part of this test")

    def metadata(self) -> MetadataResponse:
        partition = MetadataResponsePartition(leader_id=1, replica_nodes=[1], isr_nodes=[1])
        topic = MetadataResponseTopic(name="events", topic_id=TOPIC_ID, partitions=[partition])
        broker = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)
        return MetadataResponse(
            brokers=[broker], controller_id=1, cluster_id="test", topics=[topic]
        )

    def produce(self, request):
        asked = ProduceRequest.decode(request.body, request.version)
        answers = []
        for topic in asked.topic_data:
            self.records += [bytes(part.records) for part in topic.partition_data]
            parts = [PartitionProduceResponse(base_offset=42) for _ in topic.partition_data]
            answers.append(
                TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=parts
                )
            )
        return ProduceResponse(responses=answers).encode(request.version)

    def disconnected(self, peer):
        pass


def with_broker(client):
    """Run the blocking `client(address)` beside a server; gives the broker back."""

    async def main():
        broker = OneTopicBroker()
        server = TcpServer(dispatcher=broker, served=SERVED)
        broker.port = await server.listen("127.0.0.1", 0)
        async with asyncio.timeout(30):
            address = f"127.0.0.1:{broker.port}"
            if asyncio.iscoroutinefunction(client):
                await client(address)
            else:
                await asyncio.to_thread(client, address)
        await server.stop(wait_seconds=1)
        return broker

    return asyncio.run(main())


def test_librdkafka_lists_topics_and_produces():
    offsets = []

    def client(address):
        producer = confluent_kafka.Producer({"bootstrap.servers": address})
        assert set(producer.list_topics(timeout=10).topics) == {"events"}
        producer.produce(
            "events", b"from librdkafka", callback=lambda _, m: offsets.append(m.offset())
        )
        assert producer.flush(10) == 0

    broker = with_broker(client)
    assert offsets == [42]
    assert any(b"from librdkafka" in raw for raw in broker.records)


def test_kafka_python_lists_topics_and_produces():
    def client(address):
        admin = KafkaAdminClient(bootstrap_servers=address)
        assert set(admin.list_topics()) == {"events"}
        admin.close()
        producer = KafkaProducer(bootstrap_servers=address, enable_idempotence=False)
        assert producer.send("events", b"from kafka-python").get(10).offset == 42
        producer.close(5)

    broker = with_broker(client)
    assert any(b"from kafka-python" in raw for raw in broker.records)


def test_aiokafka_produces():
    async def client(address):
        producer = AIOKafkaProducer(bootstrap_servers=address)
        await producer.start()
        sent = await producer.send_and_wait("events", b"from aiokafka")
        assert sent.offset == 42
        await producer.stop()

    broker = with_broker(client)
    assert any(b"from aiokafka" in raw for raw in broker.records)
