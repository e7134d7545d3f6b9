"""The kafka-python family."""

from collections.abc import Mapping, Sequence
from typing import Any

import kafka
import kafka.codec
from kafka import TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.admin import OffsetSpec as KpOffsetSpec
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
# The client library brings gzip alone; the others come with packages that may be there.
CODECS = {
    "none": True,
    "gzip": True,
    "snappy": kafka.codec.has_snappy(),
    "lz4": kafka.codec.has_lz4(),
    "zstd": kafka.codec.has_zstd(),
}


def code_of(error: BaseException) -> ErrorCode:
    if isinstance(error, kafka_errors.OffsetOutOfRangeError):
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return ErrorCode(getattr(error, "errno", -1))


def result_code(answers: Sequence[Mapping[str, Any]]) -> ErrorCode:
    (answer,) = answers
    return ErrorCode(answer["error_code"])


class KafkaPythonConsumer(Consumer):
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self, seconds_max: float) -> list[Record]:
        try:
            polled = self._consumer.poll(timeout_ms=int(seconds_max * 1000))
        except kafka_errors.KafkaError as refused:
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
        self._consumer.close(autocommit=False)


class KafkaPython(ClientFamily):
    name = "kafka-python"
    codecs = tuple(codec for codec, there in CODECS.items() if there)
    abilities = frozenset(
        {
            Ability.APPEND_TIME_OF_DELIVERY,
            Ability.TOPIC_ID,
            Ability.MAX_TIMESTAMP,
            Ability.INCREMENTAL_ALTER_CONFIGS,
            Ability.INVALID_RECORD,
        }
    )

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)

    def close(self) -> None:
        self._admin.close()

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        settings: ProducerSettings = ProducerSettings(),  # noqa: B008
    ) -> list[Delivery]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks=settings.acks,
            enable_idempotence=settings.idempotent,
            compression_type=None if settings.compression == "none" else settings.compression,
            linger_ms=settings.linger_ms,
            batch_size=settings.batch_bytes,
            max_request_size=settings.request_bytes_max,
            max_block_ms=int(REQUEST_SECONDS_MAX * 1000),
        )
        try:
            sent = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(REQUEST_SECONDS_MAX)
            return [self._delivery(future) for future in sent]
        finally:
            producer.close(timeout=5)

    @staticmethod
    def _delivery(future: Any) -> Delivery:
        try:
            metadata = future.get(timeout=REQUEST_SECONDS_MAX)
        except kafka_errors.KafkaError as refused:
            return Delivery(error=code_of(refused))
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
        consumer = kafka.KafkaConsumer(
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
        consumer.assign([TopicPartition(topic, index) for index in positions])
        for index, offset in positions.items():
            consumer.seek(TopicPartition(topic, index), offset)
        return KafkaPythonConsumer(consumer)

    def list_offset(self, topic: str, partition: int, spec: OffsetSpec | int) -> FoundOffset:
        where = TopicPartition(topic, partition)
        asked = KpOffsetSpec[spec.name] if isinstance(spec, OffsetSpec) else spec
        found = self._admin.list_partition_offsets({where: asked})[where]
        return FoundOffset(offset=found.offset, timestamp_ms=found.timestamp)

    def create_topic(
        self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> ErrorCode:
        wanted = {topic: {"num_partitions": partitions, "configs": dict(configs or {})}}
        return result_code(self._admin.create_topics(wanted, raise_errors=False)["topics"])

    def delete_topic(self, topic: str) -> ErrorCode:
        return result_code(self._admin.delete_topics([topic], raise_errors=False)["topics"])

    def list_topics(self) -> list[str]:
        return self._admin.list_topics()

    def describe_topic(self, topic: str) -> Topic | ErrorCode:
        (described,) = self._admin.describe_topics([topic])
        if described["error_code"]:
            return ErrorCode(described["error_code"])
        partitions = sorted(described["partitions"], key=lambda p: p["partition_index"])
        return Topic(
            topic_id=str(described["topic_id"]),
            partitions=tuple(
                Partition(
                    index=partition["partition_index"],
                    leader=partition["leader_id"],
                    replicas=tuple(partition["replica_nodes"]),
                    isr=tuple(partition["isr_nodes"]),
                )
                for partition in partitions
            ),
        )

    def create_partitions(self, topic: str, total: int) -> ErrorCode:
        answer = self._admin.create_partitions({topic: total}, raise_errors=False)
        return result_code([result.to_dict() for result in answer.results])

    def delete_records(self, topic: str, partition: int, before: int) -> int | ErrorCode:
        where = TopicPartition(topic, partition)
        try:
            return self._admin.delete_records({where: before})[where]["low_watermark"]
        except kafka_errors.KafkaError as refused:
            return code_of(refused)

    def describe_configs(self, topic: str) -> dict[str, Config] | ErrorCode:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        described = self._admin.describe_configs([resource], config_filter="all")["topic"][topic]
        # This client drops the error code of the resource and keeps its empty list.
        if not described:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {
            name: Config(
                value=config["value"],
                set_on_topic=config["config_source"] == "DYNAMIC_TOPIC_CONFIG",
                read_only=config["read_only"],
                sensitive=config["is_sensitive"],
            )
            for name, config in described.items()
        }

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> ErrorCode:
        raise NotImplementedError("this client adds the configs that the caller left out")

    def incremental_alter_configs(
        self, topic: str, changes: Sequence[tuple[str, str, str]]
    ) -> ErrorCode:
        resource = ConfigResource(
            ConfigResourceType.TOPIC,
            topic,
            {name: (operation, value) for operation, name, value in changes},
        )
        answer = self._admin.alter_configs([resource], raise_on_unknown=False, incremental=True)
        result = answer["topic"][topic]
        if result == "OK":
            return ErrorCode.NONE
        # The answer is text: "[Error 40] InvalidConfigurationError: ...".
        return ErrorCode(int(result.partition("[Error ")[2].partition("]")[0]))

    def describe_cluster(self) -> Cluster:
        described = self._admin.describe_cluster()
        return Cluster(
            cluster_id=described["cluster_id"],
            controller=described["controller_id"],
            brokers=tuple(
                (broker["broker_id"], broker["host"], broker["port"])
                for broker in described["brokers"]
            ),
        )
