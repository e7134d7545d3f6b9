"""What the compat tests ask of a client family, in Kafka's words.

An adapter turns a client's own types and errors into these; it must never soften an answer: no
retry of a refusal, no default in place of a missing value.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, IntEnum

REQUEST_SECONDS_MAX = 20.0


class ErrorCode(IntEnum):
    """Kafka's error codes that the tests expect; another one fails in the adapter, by number."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    INVALID_TOPIC = 17
    INVALID_TIMESTAMP = 32
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_CONFIG = 40
    INVALID_RECORD = 87


class LogTruncated(Exception):
    """The client found, by OffsetForLeaderEpoch, that its position is not in the leader's log."""


class Refusal(Exception):
    """A consumer was refused, with Kafka's error code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class OffsetSpec(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    MAX_TIMESTAMP = "max_timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record to produce, or one that was consumed (then offset and timestamp are there)."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = 0
    offset: int | None = None
    timestamp_ms: int | None = None
    append_time: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What a producer was told of one record."""

    error: ErrorCode = ErrorCode.NONE
    partition: int = -1
    offset: int = -1
    timestamp_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    acks: int = -1
    idempotent: bool = False
    compression: str = "none"
    linger_ms: int = 5
    batch_bytes: int = 16_384
    request_bytes_max: int = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    fetch_bytes_min: int = 1
    fetch_bytes_max: int = 52_428_800
    partition_fetch_bytes_max: int = 1_048_576
    fetch_wait_ms: int = 500
    reset: str = "none"
    isolation: str = "read_uncommitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundOffset:
    """An answer of ListOffsets; offset -1 when there is none."""

    offset: int
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    index: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    partitions: tuple[Partition, ...]
    topic_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    value: str | None
    set_on_topic: bool
    read_only: bool
    sensitive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    cluster_id: str
    controller: int
    brokers: tuple[tuple[int, str, int], ...]


class Ability(Enum):
    """What not every family can ask for."""

    TOPIC_ID = "topic id"
    MAX_TIMESTAMP = "ListOffsets by maximum timestamp"
    INCREMENTAL_ALTER_CONFIGS = "IncrementalAlterConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    POSITION_WITH_LEADER_EPOCH = "OffsetForLeaderEpoch"
    NULL_HEADER = "a header without a value"
    INVALID_RECORD = "an error code for a record that the topic does not take"
    APPEND_TIME_OF_DELIVERY = "the broker's timestamp in the answer to a produce"


class Consumer(ABC):
    """A consumer with assigned partitions and given positions, outside any group."""

    @abstractmethod
    def poll(self, seconds_max: float) -> list[Record]:
        """Records in partition order; empty when none came in time. Refusal is raised."""

    @abstractmethod
    def close(self) -> None: ...

    def take(self, count: int, *, seconds_max: float = REQUEST_SECONDS_MAX) -> list[Record]:
        """Poll until this many records are here, or the time is up: then what there is."""
        deadline = time.monotonic() + seconds_max
        records: list[Record] = []
        while len(records) < count and (left := deadline - time.monotonic()) > 0:
            records += self.poll(min(left, 1.0))
        return records


class ClientFamily(ABC):
    """One client library, talking to one cluster."""

    name: str
    abilities: frozenset[Ability]
    codecs: tuple[str, ...]

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def produce(
        self, topic: str, records: Sequence[Record], settings: ProducerSettings = ...
    ) -> list[Delivery]:
        """A fresh producer sends all of them, in order, and waits for every answer."""

    @abstractmethod
    def open_consumer(
        self,
        topic: str,
        positions: Mapping[int, int],
        settings: ConsumerSettings = ...,
        *,
        leader_epoch: int | None = None,
    ) -> Consumer: ...

    @abstractmethod
    def list_offset(self, topic: str, partition: int, spec: OffsetSpec | int) -> FoundOffset:
        """An int asks by time: the first record whose timestamp is at least this."""

    @abstractmethod
    def create_topic(
        self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> ErrorCode:
        """Returns when the cluster has answered; the metadata may follow a moment later."""

    @abstractmethod
    def delete_topic(self, topic: str) -> ErrorCode: ...

    @abstractmethod
    def list_topics(self) -> list[str]: ...

    @abstractmethod
    def describe_topic(self, topic: str) -> Topic | ErrorCode: ...

    @abstractmethod
    def create_partitions(self, topic: str, total: int) -> ErrorCode: ...

    @abstractmethod
    def delete_records(self, topic: str, partition: int, before: int) -> int | ErrorCode:
        """The low watermark afterwards; an ErrorCode is a refusal (tell them apart by type)."""

    @abstractmethod
    def describe_configs(self, topic: str) -> dict[str, Config] | ErrorCode: ...

    @abstractmethod
    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> ErrorCode:
        """AlterConfigs: these configs replace all that were set."""

    @abstractmethod
    def incremental_alter_configs(
        self, topic: str, changes: Sequence[tuple[str, str, str]]
    ) -> ErrorCode:
        """IncrementalAlterConfigs: (SET | DELETE | APPEND | SUBTRACT, name, value)."""

    @abstractmethod
    def describe_cluster(self) -> Cluster: ...

    @contextmanager
    def consumer(
        self,
        topic: str,
        positions: Mapping[int, int],
        settings: ConsumerSettings | None = None,
        *,
        leader_epoch: int | None = None,
    ) -> Iterator[Consumer]:
        opened = self.open_consumer(
            topic, positions, settings or ConsumerSettings(), leader_epoch=leader_epoch
        )
        try:
            yield opened
        finally:
            opened.close()

    def consume(
        self,
        topic: str,
        count: int,
        *,
        positions: Mapping[int, int] | None = None,
        settings: ConsumerSettings | None = None,
    ) -> list[Record]:
        """Up to this many records from the given positions (by default partition 0 from 0)."""
        with self.consumer(topic, positions or {0: 0}, settings) as opened:
            return opened.take(count)
