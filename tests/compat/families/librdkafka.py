"""The librdkafka family, through confluent-kafka."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
)
from confluent_kafka.admin import OffsetSpec as RdOffsetSpec
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
    LogTruncated,
    OffsetSpec,
    Partition,
    ProducerSettings,
    Record,
    Refusal,
    Topic,
)

# librdkafka has local codes, below zero, for what it concludes itself.
LOCAL_CODES = {
    KafkaError._UNKNOWN_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    KafkaError._UNKNOWN_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    KafkaError._AUTO_OFFSET_RESET: ErrorCode.OFFSET_OUT_OF_RANGE,
    KafkaError._MSG_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
}


def error_code(error: KafkaError) -> ErrorCode:
    return LOCAL_CODES.get(error.code()) or ErrorCode(error.code())


def refused_or(call: Callable[[], Any]) -> Any:
    """The call's result, or the code it was refused with."""
    try:
        return call()
    except KafkaException as refused:
        return error_code(refused.args[0])


def only(futures: Mapping[Any, Future[Any]]) -> Any:
    (future,) = futures.values()
    return future.result(REQUEST_SECONDS_MAX)


class LibrdkafkaConsumer(Consumer):
    def __init__(self, consumer: confluent_kafka.Consumer) -> None:
        self._consumer = consumer

    def poll(self, seconds_max: float) -> list[Record]:
        first = self._consumer.poll(seconds_max)
        rest = self._consumer.consume(10_000, timeout=0) if first is not None else []
        return [self._record(message) for message in [first, *rest] if message is not None]

    def _record(self, message: Any) -> Record:
        if message.error() is not None:
            # With no reset policy a truncation is told as a failed reset, by its text alone.
            if "truncat" in message.error().str().lower():
                raise LogTruncated(message.error().str())
            raise Refusal(error_code(message.error()))
        timestamp_type, timestamp_ms = message.timestamp()
        return Record(
            partition=message.partition(),
            offset=message.offset(),
            key=message.key(),
            value=message.value(),
            headers=tuple(message.headers() or ()),
            timestamp_ms=timestamp_ms,
            append_time=timestamp_type == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME,
        )

    def close(self) -> None:
        self._consumer.close()


class Librdkafka(ClientFamily):
    name = "librdkafka"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    abilities = frozenset(
        {
            Ability.APPEND_TIME_OF_DELIVERY,
            Ability.TOPIC_ID,
            Ability.MAX_TIMESTAMP,
            Ability.INCREMENTAL_ALTER_CONFIGS,
            Ability.ALTER_CONFIGS,
            Ability.POSITION_WITH_LEADER_EPOCH,
            Ability.NULL_HEADER,
            Ability.INVALID_RECORD,
        }
    )

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def close(self) -> None:
        del self._admin

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        settings: ProducerSettings = ProducerSettings(),  # noqa: B008
    ) -> list[Delivery]:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": settings.acks,
                "enable.idempotence": settings.idempotent,
                "compression.type": settings.compression,
                "linger.ms": settings.linger_ms,
                "batch.size": settings.batch_bytes,
                "message.max.bytes": settings.request_bytes_max,
                "message.timeout.ms": int(REQUEST_SECONDS_MAX * 1000),
            }
        )
        deliveries: list[Delivery | None] = [None] * len(records)

        def report_to(index: int) -> Callable[[Any, Any], None]:
            def report(error: KafkaError | None, message: Any) -> None:
                deliveries[index] = Delivery(
                    error=ErrorCode.NONE if error is None else error_code(error),
                    partition=message.partition(),
                    offset=-1 if message.offset() is None else message.offset(),
                    timestamp_ms=message.timestamp()[1],
                )

            return report

        for index, record in enumerate(records):
            optional: dict[str, Any] = {}
            if record.partition is not None:
                optional["partition"] = record.partition
            if record.timestamp_ms is not None:
                optional["timestamp"] = record.timestamp_ms
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                on_delivery=report_to(index),
                **optional,
            )
        assert producer.flush(REQUEST_SECONDS_MAX + 5) == 0
        return [delivery for delivery in deliveries if delivery is not None]

    def open_consumer(
        self,
        topic: str,
        positions: Mapping[int, int],
        settings: ConsumerSettings = ConsumerSettings(),  # noqa: B008
        *,
        leader_epoch: int | None = None,
    ) -> Consumer:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "outside-any-group",
                "enable.auto.commit": False,
                "auto.offset.reset": "error" if settings.reset == "none" else settings.reset,
                "fetch.min.bytes": settings.fetch_bytes_min,
                "fetch.max.bytes": max(settings.fetch_bytes_max, 1_048_576),
                "message.max.bytes": 1_048_576,
                "max.partition.fetch.bytes": settings.partition_fetch_bytes_max,
                "fetch.wait.max.ms": settings.fetch_wait_ms,
                "isolation.level": settings.isolation,
                "allow.auto.create.topics": False,
            }
        )
        epoch = {} if leader_epoch is None else {"leader_epoch": leader_epoch}
        consumer.assign(
            [TopicPartition(topic, index, offset, **epoch) for index, offset in positions.items()]
        )
        return LibrdkafkaConsumer(consumer)

    def list_offset(self, topic: str, partition: int, spec: OffsetSpec | int) -> FoundOffset:
        match spec:
            case OffsetSpec.EARLIEST:
                asked = RdOffsetSpec.earliest()
            case OffsetSpec.LATEST:
                asked = RdOffsetSpec.latest()
            case OffsetSpec.MAX_TIMESTAMP:
                asked = RdOffsetSpec.max_timestamp()
            case timestamp_ms:
                asked = RdOffsetSpec.for_timestamp(timestamp_ms)
        found = only(self._admin.list_offsets({TopicPartition(topic, partition): asked}))
        return FoundOffset(offset=found.offset, timestamp_ms=found.timestamp)

    def create_topic(
        self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> ErrorCode:
        new = NewTopic(topic, num_partitions=partitions, config=dict(configs or {}))
        return refused_or(lambda: only(self._admin.create_topics([new]))) or ErrorCode.NONE

    def delete_topic(self, topic: str) -> ErrorCode:
        return refused_or(lambda: only(self._admin.delete_topics([topic]))) or ErrorCode.NONE

    def list_topics(self) -> list[str]:
        return list(self._admin.list_topics(timeout=REQUEST_SECONDS_MAX).topics)

    def describe_topic(self, topic: str) -> Topic | ErrorCode:
        described = refused_or(lambda: only(self._admin.describe_topics(TopicCollection([topic]))))
        if isinstance(described, ErrorCode):
            return described
        return Topic(
            topic_id=str(described.topic_id),
            partitions=tuple(
                Partition(
                    index=partition.id,
                    leader=partition.leader.id,
                    replicas=tuple(node.id for node in partition.replicas),
                    isr=tuple(node.id for node in partition.isr),
                )
                for partition in described.partitions
            ),
        )

    def create_partitions(self, topic: str, total: int) -> ErrorCode:
        wanted = [NewPartitions(topic, total)]
        return refused_or(lambda: only(self._admin.create_partitions(wanted))) or ErrorCode.NONE

    def delete_records(self, topic: str, partition: int, before: int) -> int | ErrorCode:
        wanted = [TopicPartition(topic, partition, before)]
        deleted = refused_or(lambda: only(self._admin.delete_records(wanted)))
        return deleted if isinstance(deleted, ErrorCode) else deleted.low_watermark

    def describe_configs(self, topic: str) -> dict[str, Config] | ErrorCode:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        entries = refused_or(lambda: only(self._admin.describe_configs([resource])))
        if isinstance(entries, ErrorCode):
            return entries
        return {
            name: Config(
                value=entry.value,
                set_on_topic=entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
                read_only=entry.is_read_only,
                sensitive=entry.is_sensitive,
            )
            for name, entry in entries.items()
        }

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> ErrorCode:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config=dict(configs))
        return refused_or(lambda: only(self._admin.alter_configs([resource]))) or ErrorCode.NONE

    def incremental_alter_configs(
        self, topic: str, changes: Sequence[tuple[str, str, str]]
    ) -> ErrorCode:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType[operation])
            for operation, name, value in changes
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        return (
            refused_or(lambda: only(self._admin.incremental_alter_configs([resource])))
            or ErrorCode.NONE
        )

    def describe_cluster(self) -> Cluster:
        described = self._admin.describe_cluster().result(REQUEST_SECONDS_MAX)
        return Cluster(
            cluster_id=described.cluster_id,
            controller=described.controller.id,
            brokers=tuple((node.id, node.host, node.port) for node in described.nodes),
        )
