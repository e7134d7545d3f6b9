"""The tables and keys of a sink's file, and the consumer options that it refuses.

Pure. Owns which keys there are, their types, and why an option of another client is refused. Must
never know what a value means.
"""

from typing import Any, Literal

import msgspec

from holdfast.settings_file import FileTables, Renamed

Quantity = int | str
"""A number of bytes or milliseconds, or the text of one."""


def _key(name: str) -> None:
    """Return an optional field with this key in the file."""
    return msgspec.field(name=name, default=None)


class SourceTable(msgspec.Struct, frozen=True, kw_only=True):
    """[source]: a consumer, with the option names of Spark's Kafka source and of pipeline files."""

    bootstrap_servers: str = msgspec.field(name="kafka.bootstrap.servers")
    group_id: str = msgspec.field(name="kafka.group.id")
    subscribe: str | list[str] | None = None
    subscribe_pattern: str | None = _key("subscribePattern")
    group_protocol: str | None = _key("kafka.group.protocol")
    group_instance_id: str | None = _key("kafka.group.instance.id")
    starting_offsets: str | None = _key("startingOffsets")
    fail_on_data_loss: bool | None = _key("failOnDataLoss")
    isolation_level: str | None = _key("kafka.isolation.level")
    session_timeout_ms: Quantity | None = _key("kafka.session.timeout.ms")
    heartbeat_interval_ms: Quantity | None = _key("kafka.heartbeat.interval.ms")
    max_poll_interval_ms: Quantity | None = _key("kafka.max.poll.interval.ms")
    client_id: str | None = _key("kafka.client.id")
    client_rack: str | None = _key("kafka.client.rack")
    fetch_max_bytes: Quantity | None = _key("kafka.fetch.max.bytes")
    fetch_max_wait_ms: Quantity | None = _key("kafka.fetch.max.wait.ms")


class SinkOutputTable(msgspec.Struct, frozen=True, kw_only=True):
    """[output]: where objects go, and what is in them."""

    to: str
    key: str | None = None
    format: Literal["jsonl", "raw", "parquet"] | None = None
    layout: Literal["value", "envelope"] | None = None
    compression: Literal["zstd", "gzip", "lz4", "none"] | None = None
    level: int | None = None
    bad_records: Literal["dead-letter", "fail"] | None = None


class BatchTable(msgspec.Struct, frozen=True, kw_only=True):
    """[batch]: when an open batch is closed."""

    bytes: Quantity | None = None
    age: Quantity | None = None
    records: int | None = None


class LimitsTable(msgspec.Struct, frozen=True, kw_only=True):
    """[limits]: limits on memory, uploads and records."""

    memory: Quantity | None = None
    uploads: int | None = None
    record_bytes: Quantity | None = None


class HttpTable(msgspec.Struct, frozen=True, kw_only=True):
    """[http]: where metrics and health are served."""

    listen: str | None = None


class SinkSparkTable(msgspec.Struct, frozen=True, kw_only=True):
    """[spark]: the Spark whose tasks are the members."""

    master: str | None = None
    conf: dict[str, Any] = {}


_OLD_CLIENT_OPTIONS = (
    *("bootstrap.servers", "group.id", "group.protocol", "group.instance.id", "isolation.level"),
    *("session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "client.id"),
    *("client.rack", "fetch.max.bytes", "fetch.max.wait.ms"),
)

SINK = FileTables(
    tables={
        "source": SourceTable,
        "output": SinkOutputTable,
        "batch": BatchTable,
        "limits": LimitsTable,
        "http": HttpTable,
        "spark": SinkSparkTable,
    },
    inner={"spark": ("conf",)},
    required={
        "source": 'kafka.bootstrap.servers = "127.0.0.1:9092"',
        "output": 'to = "s3://bucket/prefix"',
    },
    example="source.kafka.group.id=orders-to-s3",
    renamed={
        **{("source", name): Renamed(key=f"kafka.{name}") for name in _OLD_CLIENT_OPTIONS},
        ("source", "topics.pattern"): Renamed(key="subscribePattern"),
        ("source", "topics"): Renamed(key="subscribe"),
        ("source", "auto.offset.reset"): Renamed(key="startingOffsets"),
        ("source", "kafka.auto.offset.reset"): Renamed(key="startingOffsets"),
        ("output", "bad-records"): Renamed(key="bad_records"),
        ("output", "on-data-loss"): Renamed(
            key="failOnDataLoss", table="source", values={"fail": True, "cover": False}
        ),
        ("limits", "record-bytes"): Renamed(key="record_bytes"),
    },
)

_COMMITS = "offsets are committed when their records have landed, and never before: remove it"
_BYTES = "fetches are bounded by kafka.fetch.max.bytes, and what is held by memory below [limits]"
_PLAIN = "values are written as the bytes that they are, without deserialization: remove it"
_PLAINTEXT = "the sink speaks PLAINTEXT only, without TLS and SASL: remove it"
_TUNING = "the sink's own client has no such option: remove it"

REFUSED: dict[str, str] = {
    "enable.auto.commit": _COMMITS,
    "auto.commit.interval.ms": _COMMITS,
    "enable.auto.offset.store": _COMMITS,
    "offset.store.method": _COMMITS,
    "offset.store.path": _COMMITS,
    "max.poll.records": "an open batch is closed by records below [batch]: set that, or remove it",
    "max.partition.fetch.bytes": f"{_BYTES}: remove it",
    "fetch.message.max.bytes": f"{_BYTES}: remove it",
    "receive.message.max.bytes": f"{_BYTES}: remove it",
    "message.max.bytes": "a record is bounded by record_bytes below [limits]: set that",
    "queued.max.messages.kbytes": f"{_BYTES}: set that, or remove it",
    "queued.min.messages": f"{_BYTES}: remove it",
    "fetch.min.bytes": "the broker sends whatever there is: set kafka.fetch.max.wait.ms instead",
    "fetch.wait.max.ms": "its name in Kafka is fetch.max.wait.ms: write kafka.fetch.max.wait.ms",
    "metadata.broker.list": "its name in Kafka is bootstrap.servers: write kafka.bootstrap.servers",
    "partition.assignment.strategy": "the group's protocol decides: set kafka.group.protocol, or"
    " remove it",
    "group.remote.assignor": "the broker's own assignor is used: remove it",
    "enable.partition.eof": "`holdfast sink --once` ends where the log ends: remove it",
    "statistics.interval.ms": "metrics are served where [http] listen says: set that",
    "allow.auto.create.topics": "a sink never creates a topic: create it first, and remove this",
    "check.crcs": "checksums are always checked: remove it",
    "key.deserializer": _PLAIN,
    "value.deserializer": _PLAIN,
    "security.protocol": _PLAINTEXT,
    "debug": "use `holdfast sink --verbose` instead",
    "enable.idempotence": "that is for producers: remove it",
    "transactional.id": "that is for producers: remove it",
    "metadata.max.age.ms": _TUNING,
    "connections.max.idle.ms": _TUNING,
    "request.timeout.ms": _TUNING,
    "default.api.timeout.ms": _TUNING,
    "retry.backoff.ms": _TUNING,
    "reconnect.backoff.ms": _TUNING,
    "socket.timeout.ms": _TUNING,
}
"""Consumer options that a user may know from other clients, and why the sink refuses them."""
REFUSED_FAMILIES: dict[str, str] = {
    "ssl.": _PLAINTEXT,
    "sasl.": _PLAINTEXT,
    "interceptor.": _TUNING,
    "metrics.": "metrics are served where [http] listen says: set that",
}


def why_refused(key: str) -> str | None:
    """Return why a consumer option is refused; None if there is no such consumer option."""
    lower = key.lower().removeprefix("kafka.")
    family = (why for prefix, why in REFUSED_FAMILIES.items() if lower.startswith(prefix))
    return REFUSED.get(lower) or next(family, None)
