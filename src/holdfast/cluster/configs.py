"""The topic configurations: Kafka's names, types, defaults and bounds, and what has an effect here.

Pure. Every configuration that Kafka knows is accepted and shown, even if it has no effect on an
object store, so that existing tools and scripts work unchanged. One without effect says so in its
text.
"""

import dataclasses
import difflib
import enum
import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.lane.journal_queue import FlushRules
from holdfast.log.append import AppendRules
from holdfast.log.retention import RetentionRules

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")
"""A whole number as Java reads it: Python's int() also takes underscores and non-ASCII digits."""
FRACTION = re.compile(r"[+-]?[0-9]*\.?[0-9]+([eE][+-]?[0-9]{1,3})?")


class ConfigSource(enum.IntEnum):
    """Where a value comes from; Kafka's codes, as DescribeConfigs sends them."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class ConfigType(enum.IntEnum):
    """The type of a value; Kafka's codes, as DescribeConfigs sends them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigDefinition:
    """One configuration that a topic can have."""

    name: str
    type: ConfigType
    default: str
    documentation: str
    low: int = 0
    high: int = LONG_MAX
    choices: tuple[str, ...] = ()
    item_pattern: str = ""
    """The pattern of each item of a LIST, if the items cannot be listed in `choices`."""

    def problem(self, value: str) -> str | None:
        """Return what is wrong with a value; None if it is legal."""
        match self.type:
            case ConfigType.BOOLEAN:
                legal = value.strip().lower() in (self.choices or ("true", "false"))
                expected = " or ".join(self.choices or ("true", "false"))
                return None if legal else f"{self.name}: {value[:80]!r} is not {expected}"
            case ConfigType.INT | ConfigType.LONG:
                return self._number_problem(value)
            case ConfigType.DOUBLE:
                number = FRACTION.fullmatch(value.strip())
                legal = number is not None and 0.0 <= float(number[0]) <= 1.0
                return None if legal else f"{self.name}: {value!r} is not a number from 0 to 1"
            case ConfigType.STRING | ConfigType.LIST:
                return self._choice_problem(value)

    def _number_problem(self, value: str) -> str | None:
        matched = WHOLE_NUMBER.fullmatch(value.strip())
        if matched is None:
            return f"{self.name}: {value[:80]!r} is not a whole number"
        number = int(matched[0])
        if not self.low <= number <= self.high:
            return f"{self.name}: {number} is not between {self.low} and {self.high}"
        return None

    def _choice_problem(self, value: str) -> str | None:
        if self.item_pattern:
            for item in list_items(value):
                if not re.fullmatch(self.item_pattern, item):
                    return f"{self.name}: {item[:80]!r} is not of the form {self.item_pattern}"
        if not self.choices:
            return None
        given = list_items(value) if self.type is ConfigType.LIST else [value]
        for item in given:
            if item not in self.choices:
                return f"{self.name}: {item[:80]!r} is not one of {', '.join(self.choices)}"
        return None


def list_items(value: str) -> list[str]:
    """Return the items of a LIST value; an empty one has none."""
    return [item.strip() for item in value.split(",")] if value.strip() else []


_NO_EFFECT = "Accepted for Kafka's tools; has no effect on an object store."
_B, _S, _I, _L, _D, _T = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)

_THROTTLED = r"\*|[0-9]+:[0-9]+"

_TABLE = (
    ConfigDefinition(
        "cleanup.policy",
        _T,
        "delete",
        "delete: retention applies. compact: every record is kept; compaction by key is not done.",
        choices=("delete", "compact"),
    ),
    ConfigDefinition("compression.gzip.level", _I, "-1", _NO_EFFECT, low=-1, high=9),
    ConfigDefinition("compression.lz4.level", _I, "9", _NO_EFFECT, low=1, high=17),
    ConfigDefinition(
        "compression.type",
        _S,
        "producer",
        "Batches are stored as the producer compressed them, whatever is set here.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    ),
    ConfigDefinition("compression.zstd.level", _I, "3", _NO_EFFECT, low=-131072, high=22),
    ConfigDefinition("delete.retention.ms", _L, "86400000", _NO_EFFECT),
    ConfigDefinition("file.delete.delay.ms", _L, "60000", _NO_EFFECT),
    ConfigDefinition("flush.messages", _L, str(LONG_MAX), _NO_EFFECT, low=1),
    ConfigDefinition("flush.ms", _L, str(LONG_MAX), _NO_EFFECT),
    ConfigDefinition(
        "follower.replication.throttled.replicas", _T, "", _NO_EFFECT, item_pattern=_THROTTLED
    ),
    ConfigDefinition(
        "holdfast.ack",
        _S,
        "store",
        "When a produce is acknowledged. store: when the object that holds it is in the store."
        " disk: when it is on the broker's own disk (`holdfast serve --spool`); it goes to the"
        " store later.",
        choices=("store", "disk"),
    ),
    ConfigDefinition(
        "holdfast.flush.bytes",
        _L,
        str(64 * 1024 * 1024),
        "With holdfast.ack=disk: records are uploaded when this much is only on the disk."
        " At four times as much, produces are refused until the store has caught up.",
        low=1,
        high=1 << 30,
    ),
    ConfigDefinition(
        "holdfast.flush.ms",
        _L,
        "60000",
        "With holdfast.ack=disk: how long a record may be only on the disk.",
        low=1,
        high=86_400_000,
    ),
    ConfigDefinition(
        "holdfast.validate.records",
        _B,
        "false",
        "true: every record of a batch is checked before it is taken, and a batch that cannot be"
        " read is refused as INVALID_RECORD. false: header, checksum and first record only.",
    ),
    ConfigDefinition("index.interval.bytes", _I, "4096", _NO_EFFECT, high=INT_MAX),
    ConfigDefinition(
        "leader.replication.throttled.replicas", _T, "", _NO_EFFECT, item_pattern=_THROTTLED
    ),
    ConfigDefinition("local.retention.bytes", _L, "-2", _NO_EFFECT, low=-2),
    ConfigDefinition("local.retention.ms", _L, "-2", _NO_EFFECT, low=-2),
    ConfigDefinition("max.compaction.lag.ms", _L, str(LONG_MAX), _NO_EFFECT, low=1),
    ConfigDefinition(
        "max.message.bytes", _I, "1048588", "The largest record batch that is taken.", high=INT_MAX
    ),
    ConfigDefinition(
        "message.timestamp.after.max.ms", _L, "3600000", "How far in the future a record may be."
    ),
    ConfigDefinition(
        "message.timestamp.before.max.ms", _L, str(LONG_MAX), "How far in the past a record may be."
    ),
    ConfigDefinition(
        "message.timestamp.type",
        _S,
        "CreateTime",
        "Whether records keep the producer's time, or get the broker's.",
        choices=("CreateTime", "LogAppendTime"),
    ),
    ConfigDefinition("min.cleanable.dirty.ratio", _D, "0.5", _NO_EFFECT),
    ConfigDefinition("min.compaction.lag.ms", _L, "0", _NO_EFFECT),
    ConfigDefinition(
        "min.insync.replicas",
        _I,
        "1",
        "The store replicates; any value is accepted and met.",
        low=1,
        high=INT_MAX,
    ),
    ConfigDefinition("preallocate", _B, "false", _NO_EFFECT),
    ConfigDefinition("remote.log.copy.disable", _B, "false", _NO_EFFECT),
    ConfigDefinition("remote.log.delete.on.disable", _B, "false", _NO_EFFECT),
    ConfigDefinition(
        "remote.storage.enable",
        _B,
        "false",
        "Only false, as on a Kafka without tiered storage: all records are in the store anyway.",
        choices=("false",),
    ),
    ConfigDefinition(
        "retention.bytes", _L, "-1", "How much of a partition is kept; -1 is all.", low=-1
    ),
    ConfigDefinition(
        "retention.ms", _L, "604800000", "How long records are kept; -1 is for ever.", low=-1
    ),
    ConfigDefinition("segment.bytes", _I, "1073741824", _NO_EFFECT, low=1 << 20, high=INT_MAX),
    ConfigDefinition("segment.index.bytes", _I, "10485760", _NO_EFFECT, low=4, high=INT_MAX),
    ConfigDefinition("segment.jitter.ms", _L, "0", _NO_EFFECT),
    ConfigDefinition("segment.ms", _L, "604800000", _NO_EFFECT, low=1),
    ConfigDefinition(
        "unclean.leader.election.enable",
        _B,
        "false",
        "With holdfast.ack=disk, when the disk of the previous leader is gone: false waits for it;"
        " true continues without the offsets that it may hold, and lists them as missing.",
    ),
)

TOPIC_CONFIGS: Mapping[str, ConfigDefinition] = {item.name: item for item in _TABLE}

BROKER_NAMES: Mapping[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""The setting of a Kafka broker that gives a topic configuration its default. Configurations that
Kafka derives from others (retention.ms from log.retention.hours) have none, as in Kafka's
responses."""


def config_problem(name: str, value: str | None) -> str | None:
    """Return what is wrong with setting a topic configuration; None if it is legal."""
    definition = TOPIC_CONFIGS.get(name)
    if definition is None:
        near = difflib.get_close_matches(name, TOPIC_CONFIGS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"Unknown topic config name: {name[:200]}{hint}"
    if value is None:
        return f"Null value not supported for the topic config {name}"
    return definition.problem(value)


def configs_problem(configs: Mapping[str, str]) -> str | None:
    """Return what is wrong with the combination of configurations that are legal one by one."""
    shortest = int(effective(configs, "min.compaction.lag.ms"))
    longest = int(effective(configs, "max.compaction.lag.ms"))
    if shortest > longest:
        return f"min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
    return None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The configurations of a topic as the broker uses them."""

    batch_bytes_max: int
    keys_required: bool
    """True if cleanup.policy has compact: a record without a key could never be compacted."""
    validate_records: bool
    """True if records are checked one by one before they are accepted."""
    append: AppendRules
    retention: RetentionRules
    flush: FlushRules | None
    """When records acknowledged from the disk go to the store; None if none are."""
    unclean: bool
    """True if a partition continues without a disk that may hold the end of its log."""


def effective(configs: Mapping[str, str], name: str) -> str:
    """Return the value that counts: the topic's own, or the default."""
    return configs.get(name, TOPIC_CONFIGS[name].default)


class ShownConfig(NamedTuple):
    """A configuration of a topic, as a client sees it."""

    definition: ConfigDefinition
    value: str
    source: ConfigSource


def shown_configs(configs: Mapping[str, str]) -> list[ShownConfig]:
    """Return all configurations of a topic: its own values, and the defaults of the others."""
    return [
        ShownConfig(
            definition,
            effective(configs, name),
            ConfigSource.TOPIC if name in configs else ConfigSource.DEFAULT,
        )
        for name, definition in TOPIC_CONFIGS.items()
    ]


def topic_settings(configs: Mapping[str, str]) -> TopicSettings:
    """Read the configurations that have an effect."""
    value = functools.partial(effective, configs)
    return TopicSettings(
        batch_bytes_max=int(value("max.message.bytes")),
        keys_required="compact" in value("cleanup.policy"),
        validate_records=value("holdfast.validate.records").strip().lower() == "true",
        append=AppendRules(
            log_append_time=value("message.timestamp.type") == "LogAppendTime",
            timestamp_after_max_ms=int(value("message.timestamp.after.max.ms")),
            timestamp_before_max_ms=int(value("message.timestamp.before.max.ms")),
        ),
        retention=RetentionRules(
            retention_ms=int(value("retention.ms")),
            retention_bytes=int(value("retention.bytes")),
            deletes="delete" in list_items(value("cleanup.policy")),
        ),
        flush=FlushRules(int(value("holdfast.flush.bytes")), int(value("holdfast.flush.ms")))
        if value("holdfast.ack") == "disk"
        else None,
        unclean=value("unclean.leader.election.enable").strip().lower() == "true",
    )


def may_be_followed(configs: Mapping[str, str]) -> bool:
    """True if a broker that does not lead a topic's partitions may serve its readers. False if
    records are acknowledged before they are in the store."""
    return configs.get("holdfast.ack", "store") == "store"
