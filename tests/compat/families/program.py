"""Families whose client is a program of its own: Java and franz-go, one JSON line each way."""

import base64
import json
import subprocess
import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

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
from tests.peers.jars import QUICK_START, go_program, java_command, program_class_path

Answer = dict[str, Any]


def to_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def to_bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def code_of(answer: Answer) -> ErrorCode:
    return ErrorCode(answer.get("error", 0))


class AnsweringProgram:
    """The process, and the threads that wait for its answers."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Answer]] = {}
        self._requests = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(
        self, operation: str, *, seconds_max: float = REQUEST_SECONDS_MAX + 10, **fields: Any
    ) -> Answer:
        answer: Future[Answer] = Future()
        stdin = self._process.stdin
        assert stdin is not None
        with self._lock:
            self._requests += 1
            self._waiting[self._requests] = answer
            request = {"id": self._requests, "operation": operation, **fields}
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
        return answer.result(seconds_max)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(10)
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            self._waiting.pop(answer["id"]).set_result(answer)
        for waiting in self._waiting.values():
            waiting.set_exception(RuntimeError("the client program has ended"))


class ProgramConsumer(Consumer):
    def __init__(self, program: AnsweringProgram, consumer: int) -> None:
        self._program = program
        self._consumer = consumer

    def poll(self, seconds_max: float) -> list[Record]:
        answer = self._program.ask(
            "consumer_poll",
            consumer=self._consumer,
            timeout_ms=int(seconds_max * 1000),
            seconds_max=seconds_max + REQUEST_SECONDS_MAX,
        )
        if answer.get("exception") == "LogTruncationException":
            raise LogTruncated(answer["message"])
        if "error" in answer:
            raise Refusal(code_of(answer))
        return [
            Record(
                partition=record["partition"],
                offset=record["offset"],
                key=to_bytes(record["key"]),
                value=to_bytes(record["value"]),
                headers=tuple((name, to_bytes(value)) for name, value in record["headers"]),
                timestamp_ms=record["timestamp_ms"],
                append_time=record["append_time"],
            )
            for record in answer["records"]
        ]

    def close(self) -> None:
        self._program.ask("consumer_close", consumer=self._consumer)


class ProgramFamily(ClientFamily):
    """A family by its program; the settings in requests have Kafka's names."""

    codecs = ("none", "gzip", "snappy", "lz4", "zstd")

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._program = AnsweringProgram(self.command(bootstrap))

    @staticmethod
    @abstractmethod
    def command(bootstrap: str) -> Sequence[str]: ...

    def close(self) -> None:
        self._program.close()

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        settings: ProducerSettings = ProducerSettings(),  # noqa: B008
    ) -> list[Delivery]:
        answer = self._program.ask(
            "produce",
            topic=topic,
            settings={
                "acks": settings.acks,
                "enable.idempotence": settings.idempotent,
                "compression.type": settings.compression,
                "linger.ms": settings.linger_ms,
                "batch.size": settings.batch_bytes,
                "max.request.size": settings.request_bytes_max,
                "request.timeout.ms": 10_000,
                "delivery.timeout.ms": int(REQUEST_SECONDS_MAX * 1000),
                "max.block.ms": int(REQUEST_SECONDS_MAX * 1000),
            },
            records=[
                {
                    "partition": record.partition,
                    "timestamp_ms": record.timestamp_ms,
                    "key": to_text(record.key),
                    "value": to_text(record.value),
                    "headers": [[name, to_text(value)] for name, value in record.headers],
                }
                for record in records
            ],
        )
        assert "error" not in answer, answer
        return [
            Delivery(error=code_of(delivery)) if "error" in delivery else Delivery(**delivery)
            for delivery in answer["deliveries"]
        ]

    def open_consumer(
        self,
        topic: str,
        positions: Mapping[int, int],
        settings: ConsumerSettings = ConsumerSettings(),  # noqa: B008
        *,
        leader_epoch: int | None = None,
    ) -> Consumer:
        epoch = -1 if leader_epoch is None else leader_epoch
        answer = self._program.ask(
            "consumer_open",
            topic=topic,
            positions=[[index, offset, epoch] for index, offset in positions.items()],
            settings={
                "enable.auto.commit": False,
                "auto.offset.reset": settings.reset,
                "fetch.min.bytes": settings.fetch_bytes_min,
                "fetch.max.bytes": settings.fetch_bytes_max,
                "max.partition.fetch.bytes": settings.partition_fetch_bytes_max,
                "fetch.max.wait.ms": settings.fetch_wait_ms,
                "isolation.level": settings.isolation,
                "allow.auto.create.topics": False,
            },
        )
        assert "error" not in answer, answer
        return ProgramConsumer(self._program, answer["consumer"])

    def list_offset(self, topic: str, partition: int, spec: OffsetSpec | int) -> FoundOffset:
        asked = spec.value if isinstance(spec, OffsetSpec) else str(spec)
        answer = self._program.ask("list_offsets", topic=topic, partition=partition, spec=asked)
        assert "error" not in answer, answer
        return FoundOffset(offset=answer["offset"], timestamp_ms=answer["timestamp_ms"])

    def create_topic(
        self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> ErrorCode:
        return code_of(
            self._program.ask(
                "create_topic",
                topic=topic,
                partitions=partitions,
                replication_factor=-1,
                configs=dict(configs or {}),
            )
        )

    def delete_topic(self, topic: str) -> ErrorCode:
        return code_of(self._program.ask("delete_topic", topic=topic))

    def list_topics(self) -> list[str]:
        return self._program.ask("list_topics")["topics"]

    def describe_topic(self, topic: str) -> Topic | ErrorCode:
        answer = self._program.ask("describe_topic", topic=topic)
        if "error" in answer:
            return code_of(answer)
        return Topic(
            topic_id=answer["topic_id"],
            partitions=tuple(
                Partition(
                    index=partition["partition"],
                    leader=partition["leader"],
                    replicas=tuple(partition["replicas"]),
                    isr=tuple(partition["isr"]),
                )
                for partition in answer["partitions"]
            ),
        )

    def create_partitions(self, topic: str, total: int) -> ErrorCode:
        return code_of(self._program.ask("create_partitions", topic=topic, total=total))

    def delete_records(self, topic: str, partition: int, before: int) -> int | ErrorCode:
        answer = self._program.ask(
            "delete_records", topic=topic, partition=partition, before=before
        )
        return code_of(answer) if "error" in answer else answer["low_watermark"]

    def describe_configs(self, topic: str) -> dict[str, Config] | ErrorCode:
        answer = self._program.ask("describe_configs", topic=topic)
        if "error" in answer:
            return code_of(answer)
        return {
            name: Config(
                value=config["value"],
                set_on_topic=config["source"] == "DYNAMIC_TOPIC_CONFIG",
                read_only=config["read_only"],
                sensitive=config["sensitive"],
            )
            for name, config in answer["configs"].items()
        }

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> ErrorCode:
        return code_of(self._program.ask("alter_configs", topic=topic, configs=dict(configs)))

    def incremental_alter_configs(
        self, topic: str, changes: Sequence[tuple[str, str, str]]
    ) -> ErrorCode:
        return code_of(
            self._program.ask("incremental_alter_configs", topic=topic, changes=list(changes))
        )

    def describe_cluster(self) -> Cluster:
        answer = self._program.ask("describe_cluster")
        return Cluster(
            cluster_id=answer["cluster_id"],
            controller=answer["controller"],
            brokers=tuple((broker[0], broker[1], broker[2]) for broker in answer["brokers"]),
        )


class Java(ProgramFamily):
    """AlterConfigs is gone from this client since 4.0."""

    name = "java"
    abilities = frozenset(
        {
            Ability.APPEND_TIME_OF_DELIVERY,
            Ability.TOPIC_ID,
            Ability.MAX_TIMESTAMP,
            Ability.INCREMENTAL_ALTER_CONFIGS,
            Ability.POSITION_WITH_LEADER_EPOCH,
            Ability.NULL_HEADER,
            Ability.INVALID_RECORD,
        }
    )

    @staticmethod
    def command(bootstrap: str) -> Sequence[str]:
        options = ("-Xmx256m", *QUICK_START, "-cp", program_class_path())
        return (java_command(), *options, "CompatClient", bootstrap)


class FranzGo(ProgramFamily):
    name = "franz-go"
    abilities = frozenset(
        {
            Ability.TOPIC_ID,
            Ability.MAX_TIMESTAMP,
            Ability.INCREMENTAL_ALTER_CONFIGS,
            Ability.ALTER_CONFIGS,
            Ability.POSITION_WITH_LEADER_EPOCH,
            Ability.NULL_HEADER,
            Ability.INVALID_RECORD,
        }
    )

    @staticmethod
    def command(bootstrap: str) -> Sequence[str]:
        be = {"role": "compat", "bootstrap": bootstrap}
        return (str(go_program()), json.dumps(be))
