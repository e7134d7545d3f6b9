"""The aiokafka family: its event loop runs in one thread, the tests call in from theirs."""

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka import errors as aiokafka_errors
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from tests.compat.families.interface import (
    REQUEST_SECONDS_MAX,
    Ability,
    ClientFamily,
    Cluster,
    Config,
    Consumer,
    ConsumerSettings,
    Delivery,
    ErrorCode,
    FoundOffset,
    OffsetSpec,
    Partition,
    ProducerSettings,
    Record,
    Refusal,
    Topic,
)

APPEND_TIME = 1
DYNAMIC_TOPIC_CONFIG = 1
Result = TypeVar("Result")


def code_of(error: BaseException) -> ErrorCode:
    if isinstance(error, aiokafka_errors.OffsetOutOfRangeError):
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return ErrorCode(getattr(error, "errno", -1))


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(
        self,
        task: Coroutine[Any, Any, Result],
        *,
        seconds_max: float = REQUEST_SECONDS_MAX + 20,
    ) -> Result:
        return asyncio.run_coroutine_threadsafe(task, self._loop).result(seconds_max)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class AiokafkaConsumer(Consumer):
    def __init__(self, loop: Loop, consumer: AIOKafkaConsumer) -> None:
        self._loop = loop
        self._consumer = consumer

    def poll(self, seconds_max: float) -> list[Record]:
        asked = self._consumer.getmany(timeout_ms=int(seconds_max * 1000))
        try:
            polled = self._loop.run(asked, seconds_max=seconds_max + REQUEST_SECONDS_MAX)
        except aiokafka_errors.KafkaError as refused:
            raise Refusal(code_of(refused)) from refused
        return [
            Record(
                partition=record.partition,
                offset=record.offset,
                key=record.key,
                value=record.value,
                headers=tuple(record.headers),
                timestamp_ms=record.timestamp,
                append_time=record.timestamp_type == APPEND_TIME,
            )
            for records in polled.values()
            for record in records
        ]

    def close(self) -> None:
        self._loop.run(self._consumer.stop())


class Aiokafka(ClientFamily):
    name = "aiokafka"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    abilities = frozenset({Ability.ALTER_CONFIGS, Ability.APPEND_TIME_OF_DELIVERY})

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._loop = Loop()
        self._admin = self._loop.run(self._open_admin())

    async def _open_admin(self) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        return admin

    def close(self) -> None:
        self._loop.run(self._admin.close())
        self._loop.close()

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        settings: ProducerSettings = ProducerSettings(),  # noqa: B008
    ) -> list[Delivery]:
        return self._loop.run(self._produce(topic, records, settings))

    async def _produce(
        self, topic: str, records: Sequence[Record], settings: ProducerSettings
    ) -> list[Delivery]:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks=settings.acks,
            enable_idempotence=settings.idempotent,
            compression_type=None if settings.compression == "none" else settings.compression,
            linger_ms=settings.linger_ms,
            max_batch_size=settings.batch_bytes,
            max_request_size=settings.request_bytes_max,
            request_timeout_ms=10_000,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            return [await self._delivery(future) for future in sent]
        finally:
            await producer.stop()

    @staticmethod
    async def _delivery(future: Any) -> Delivery:
        try:
            metadata = await future
        except aiokafka_errors.KafkaError as refused:
            return Delivery(error=code_of(refused))
        # With acks=0 there is no answer.
        if metadata is None:
            return Delivery()
        return Delivery(
            partition=metadata.partition, offset=metadata.offset, timestamp_ms=metadata.timestamp
        )

    def open_consumer(
        self,
        topic: str,
        positions: Mapping[int, int],
        settings: ConsumerSettings = ConsumerSettings(),  # noqa: B008
        *,
        leader_epoch: int | None = None,
    ) -> Consumer:
        assert leader_epoch is None
        return self._loop.run(self._open_consumer(topic, positions, settings))

    async def _open_consumer(
        self, topic: str, positions: Mapping[int, int], settings: ConsumerSettings
    ) -> Consumer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset=settings.reset,
            fetch_min_bytes=settings.fetch_bytes_min,
            fetch_max_bytes=settings.fetch_bytes_max,
            max_partition_fetch_bytes=settings.partition_fetch_bytes_max,
            fetch_max_wait_ms=settings.fetch_wait_ms,
            isolation_level=settings.isolation,
        )
        await consumer.start()
        consumer.assign([TopicPartition(topic, index) for index in positions])
        for index, offset in positions.items():
            consumer.seek(TopicPartition(topic, index), offset)
        return AiokafkaConsumer(self._loop, consumer)

    def list_offset(self, topic: str, partition: int, spec: OffsetSpec | int) -> FoundOffset:
        return self._loop.run(self._list_offset(TopicPartition(topic, partition), spec))

    async def _list_offset(self, where: TopicPartition, spec: OffsetSpec | int) -> FoundOffset:
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, group_id=None)
        await consumer.start()
        try:
            match spec:
                case OffsetSpec.EARLIEST:
                    found = await consumer.beginning_offsets([where])
                    return FoundOffset(offset=found[where], timestamp_ms=None)
                case OffsetSpec.LATEST:
                    found = await consumer.end_offsets([where])
                    return FoundOffset(offset=found[where], timestamp_ms=None)
                case OffsetSpec.MAX_TIMESTAMP:
                    raise NotImplementedError("aiokafka does not ask by maximum timestamp")
                case timestamp_ms:
                    at = (await consumer.offsets_for_times({where: timestamp_ms}))[where]
                    if at is None:
                        return FoundOffset(offset=-1, timestamp_ms=-1)
                    return FoundOffset(offset=at.offset, timestamp_ms=at.timestamp)
        finally:
            await consumer.stop()

    def create_topic(
        self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> ErrorCode:
        # This client cannot leave the replication factor to the broker.
        new = NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))
        answer = self._loop.run(self._admin.create_topics([new]))
        return ErrorCode(answer.topic_errors[0][1])

    def delete_topic(self, topic: str) -> ErrorCode:
        answer = self._loop.run(self._admin.delete_topics([topic]))
        return ErrorCode(answer.topic_error_codes[0][1])

    def list_topics(self) -> list[str]:
        return self._loop.run(self._admin.list_topics())

    def describe_topic(self, topic: str) -> Topic | ErrorCode:
        (described,) = self._loop.run(self._admin.describe_topics([topic]))
        if described["error_code"]:
            return ErrorCode(described["error_code"])
        partitions = sorted(described["partitions"], key=lambda p: p["partition"])
        return Topic(
            topic_id=None,
            partitions=tuple(
                Partition(
                    index=partition["partition"],
                    leader=partition["leader"],
                    replicas=tuple(partition["replicas"]),
                    isr=tuple(partition["isr"]),
                )
                for partition in partitions
            ),
        )

    def create_partitions(self, topic: str, total: int) -> ErrorCode:
        try:
            self._loop.run(self._admin.create_partitions({topic: NewPartitions(total)}))
        except aiokafka_errors.KafkaError as refused:
            return code_of(refused)
        return ErrorCode.NONE

    def delete_records(self, topic: str, partition: int, before: int) -> int | ErrorCode:
        where = TopicPartition(topic, partition)
        wanted = {where: RecordsToDelete(before_offset=before)}
        try:
            return self._loop.run(self._admin.delete_records(wanted))[where]
        except aiokafka_errors.KafkaError as refused:
            return code_of(refused)

    def describe_configs(self, topic: str) -> dict[str, Config] | ErrorCode:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = self._loop.run(self._admin.describe_configs([resource]))
        (described,) = answer.to_object()["resources"]
        if described["error_code"]:
            return ErrorCode(described["error_code"])
        return {
            config["config_names"]: Config(
                value=config["config_value"],
                set_on_topic=config["config_source"] == DYNAMIC_TOPIC_CONFIG,
                read_only=config["read_only"],
                sensitive=config["is_sensitive"],
            )
            for config in described["config_entries"]
        }

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> ErrorCode:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        (answer,) = self._loop.run(self._admin.alter_configs([resource]))
        return ErrorCode(answer.to_object()["resources"][0]["error_code"])

    def incremental_alter_configs(
        self, topic: str, changes: Sequence[tuple[str, str, str]]
    ) -> ErrorCode:
        raise NotImplementedError("aiokafka has no IncrementalAlterConfigs")

    def describe_cluster(self) -> Cluster:
        described = self._loop.run(self._admin.describe_cluster())
        return Cluster(
            cluster_id=described["cluster_id"],
            controller=described["controller_id"],
            brokers=tuple(
                (broker["node_id"], broker["host"], broker["port"])
                for broker in described["brokers"]
            ),
        )
