"""The options of the source: those of Spark's Kafka source, and a few more, such as `store`.

Pure. Owns parsing, precedence and messages. Option names are case-insensitive, as in Spark. Must
never accept an option that it does not know: a misspelt one would silently have no effect.
"""

import enum
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from holdfast.errors import ConfigurationError
from holdfast.identifiers import topic_name_problem
from holdfast.quantities import duration_ms
from holdfast.spark.source.kafka_options import CLIENT_NAMES
from holdfast.spark.source.option_notes import IDLE, REFUSED
from holdfast.spark.source.where import ALL_ROWS, RowFilter, parse_where
from holdfast.suggestion import did_you_mean, nearest, no_such_value

EARLIEST = -2
LATEST = -1
"""EARLIEST and LATEST are how startingOffsets and endingOffsets write a partition's ends."""

Choice = TypeVar("Choice", bound=enum.Enum)

PartitionNumbers = Mapping[tuple[str, int], int]
"""A number (an offset, or a timestamp in ms) for each (topic, partition)."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A selection of topics by name."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """A selection of topics whose whole name matches a regular expression.

    The syntax is Python's, which differs from Java's in places.
    """

    pattern: str


@dataclass(frozen=True, slots=True)
class Assign:
    """A selection of some partitions of some topics."""

    partitions: Mapping[str, tuple[int, ...]]


Selection = Subscribe | SubscribePattern | Assign


class End(enum.Enum):
    """One of the two ends of a log."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition; EARLIEST and LATEST stand for the ends."""

    offsets: PartitionNumbers


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record at or after a time that is the same for all partitions."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """The first record at or after a time that is given for each partition."""

    timestamps_ms: PartitionNumbers


Bound = End | AtOffsets | AtTimestamp | AtTimestamps


class NoMatch(enum.Enum):
    """What to do if no record is as new as a starting timestamp."""

    ERROR = "error"
    LATEST = "latest"


class OnUnreadable(enum.Enum):
    """What to do with a record batch whose CRC is right but whose records cannot be read."""

    FAIL = "fail"
    QUARANTINE = "quarantine"


class Rows(enum.Enum):
    """What the source yields: records, or (for Holdfast's own sinks) the ranges that hold them."""

    RECORDS = "records"
    RANGES = "ranges"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """All options of a read, parsed.

    Either `store` or `bootstrap_servers` is set. Both are set if a store is read with
    `commit_group_id`: records come from the store, and the brokers keep the group's offsets.
    """

    store: str | None
    bootstrap_servers: str | None
    client: Mapping[str, str] = field(repr=False)
    """The other kafka.* options, without the prefix; a password may be among them."""
    selection: Selection
    starting: Bound
    ending: Bound
    no_match: NoMatch = NoMatch.ERROR
    fail_on_data_loss: bool = True
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    trigger_delay_ms_max: int = 15 * 60_000
    tick_ms: int | None = None
    """How often micro-batches start even without new records, for timers."""
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    include_headers: bool = False
    read_committed: bool = False
    on_unreadable: OnUnreadable = OnUnreadable.FAIL
    quarantine_store: str | None = None
    """The store that keeps record batches that cannot be read."""
    rows: Rows = Rows.RECORDS
    row_filter: RowFilter = ALL_ROWS
    commit_group_id: str | None = None
    """The consumer group to which the position of the query is committed."""
    ignored: tuple[str, ...] = ()
    """Options that are set but have no effect, each with the reason, for one warning."""


NAMES = (
    *("store", "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets"),
    *("startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp"),
    *("endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "failOnDataLoss"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions"),
    *("maxRecordsPerPartition", "includeHeaders", "rows", "tickInterval", "where"),
    *("commitGroupId", "unreadable", "quarantineStore"),
    *("kafka.bootstrap.servers", "kafka.isolation.level"),
)
STRATEGIES = ("subscribe", "subscribePattern", "assign")


def parse_options(raw: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Return the parsed options; ConfigurationError names option, reason and remedy."""
    options = {name.lower(): str(value).strip() for name, value in raw.items()}
    ignored = _check_names(raw)
    store, servers, client = _where(options)
    starting, ending = _bounds(options, streaming=streaming)
    least = _count(options, "minOffsetsPerTrigger")
    most = _count(options, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise ConfigurationError(
            f"minOffsetsPerTrigger is {least}, above maxOffsetsPerTrigger, which is {most}"
        )
    if not streaming:
        names = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "tickInterval")
        ignored += [f"{n} (a batch query has no trigger)" for n in names if n.lower() in options]
        if "commitgroupid" in options:
            ignored.append("commitGroupId (a batch query has no progress)")
    tick_ms = _duration_ms(options, "tickInterval")
    delay_ms = _duration_ms(options, "maxTriggerDelay")
    return SourceOptions(
        store=store,
        bootstrap_servers=servers,
        client=client,
        selection=_selection(options),
        starting=starting,
        ending=ending,
        no_match=_one_of(options, "startingOffsetsByTimestampStrategy", NoMatch, NoMatch.ERROR),
        fail_on_data_loss=_flag(options, "failOnDataLoss", default=True),
        offsets_per_trigger_max=most,
        offsets_per_trigger_min=least,
        trigger_delay_ms_max=15 * 60_000 if delay_ms is None else delay_ms,
        tick_ms=None if tick_ms is None else max(1, tick_ms),
        partitions_min=_count(options, "minPartitions"),
        records_per_partition_max=_count(options, "maxRecordsPerPartition"),
        include_headers=_flag(options, "includeHeaders", default=False),
        read_committed=_is_read_committed(options),
        on_unreadable=_one_of(options, "unreadable", OnUnreadable, OnUnreadable.FAIL),
        quarantine_store=_quarantine_store(options),
        rows=_one_of(options, "rows", Rows, Rows.RECORDS),
        row_filter=_row_filter(options, streaming=streaming),
        commit_group_id=_group(options, servers),
        ignored=tuple(ignored),
    )


def _quarantine_store(options: Mapping[str, str]) -> str | None:
    given = options.get("quarantinestore")
    fails = _one_of(options, "unreadable", OnUnreadable, OnUnreadable.FAIL) is OnUnreadable.FAIL
    if given == "":
        raise ConfigurationError("the option quarantineStore is empty: give an address, or drop it")
    if given is not None and fails:
        raise ConfigurationError(
            'quarantineStore has no effect where unreadable is "fail".'
            ' Set unreadable to "quarantine"'
        )
    return given


def _check_names(raw: Mapping[str, str]) -> list[str]:
    known = {name.lower() for name in NAMES}
    meant = {name: name for name in NAMES if not name.startswith("kafka.")}
    meant |= {name: f"kafka.{name}" for name in ("bootstrap.servers", "isolation.level")}
    meant |= {name: f"kafka.{name}" for name in CLIENT_NAMES}
    meant |= dict.fromkeys(("topic", "topics"), "subscribe")
    ignored: list[str] = []
    for written in raw:
        name = written.lower()
        if name in REFUSED:
            raise ConfigurationError(f"the option {written!r} cannot be used: {REFUSED[name]}")
        if name in IDLE:
            ignored.append(f"{name} ({IDLE[name]})")
        elif name not in known and not name.startswith("kafka."):
            near = nearest(name, meant)
            listed = ", ".join(sorted(NAMES))
            hint = f"did you mean {meant[near]!r}?" if near else f"there are {listed}"
            raise ConfigurationError(f"unknown option {written!r}: {hint}")
    return ignored


def _where(options: Mapping[str, str]) -> tuple[str | None, str | None, dict[str, str]]:
    store, servers = options.get("store"), options.get("kafka.bootstrap.servers")
    is_for_group = store is not None and "commitgroupid" in options
    if (store is None) == (servers is None) and not is_for_group:
        for name in options if store is None else ():
            if name.startswith("kafka.boot"):
                raise ConfigurationError(
                    f"unknown option {name!r}: did you mean 'kafka.bootstrap.servers'?"
                )
        both = "both are set" if store is not None else "neither is set"
        raise ConfigurationError(
            "set exactly one of `store` (the address given to `holdfast serve --store`; no broker "
            "is needed) and `kafka.bootstrap.servers` (the brokers of any Kafka cluster): "
            f"{both}"
        )
    if store == "" or servers == "":
        name = "store" if store == "" else "kafka.bootstrap.servers"
        raise ConfigurationError(f"the option {name} is empty")
    passed = {
        name.removeprefix("kafka."): value
        for name, value in options.items()
        if name.startswith("kafka.")
        and name not in IDLE
        and name not in ("kafka.bootstrap.servers", "kafka.isolation.level")
    }
    if store is not None and passed and not is_for_group:
        raise ConfigurationError(
            f"the option kafka.{min(passed)} is for a broker, and with `store` there is none: "
            f"remove it (kafka.isolation.level is the one that a store knows)"
        )
    return store, servers, passed


def _group(options: Mapping[str, str], servers: str | None) -> str | None:
    group_id = options.get("commitgroupid")
    if group_id == "":
        raise ConfigurationError("commitGroupId is empty: name a consumer group, or remove it")
    if group_id is not None and servers is None:
        raise ConfigurationError(
            "commitGroupId needs kafka.bootstrap.servers beside store: brokers keep the offsets of"
            " groups, and records are still read from the store"
        )
    return group_id


def _selection(options: Mapping[str, str]) -> Selection:
    given = [name for name in STRATEGIES if name.lower() in options]
    if len(given) != 1:
        problem = f"{' and '.join(given)} are set" if given else "none is set"
        raise ConfigurationError(
            f"say which topics, with exactly one of subscribe, subscribePattern, assign; {problem}"
        )
    text = options[given[0].lower()]
    match given[0]:
        case "subscribe":
            topics = [part.strip() for part in text.split(",") if part.strip()]
            if not topics:
                raise ConfigurationError(f"subscribe names no topic: {text!r}")
            for topic in topics:
                if (problem := topic_name_problem(topic)) is not None:
                    raise ConfigurationError(f"subscribe: {problem}")
            return Subscribe(tuple(sorted(set(topics))))
        case "subscribePattern":
            try:
                re.compile(text)
            except re.error as wrong:
                raise ConfigurationError(
                    f"subscribePattern {text!r} is not a regular expression: {wrong}"
                ) from wrong
            if not text:
                raise ConfigurationError("subscribePattern is empty")
            return SubscribePattern(text)
        case _:
            return _assign(text)


def _assign(text: str) -> Assign:
    form = 'assign must be like {"orders":[0,1],"clicks":[2]}'
    assigned: dict[str, tuple[int, ...]] = {}
    for topic, numbers in _object(text, form).items():
        if not isinstance(numbers, list) or not numbers:
            raise ConfigurationError(f"{form}; {topic!r} has {numbers!r}")
        checked = [_partition(topic, number, form) for number in cast("list[object]", numbers)]
        assigned[topic] = tuple(sorted(set(checked)))
    if not assigned:
        raise ConfigurationError(f"{form}; it names no topic")
    return Assign(assigned)


def _bounds(options: Mapping[str, str], *, streaming: bool) -> tuple[Bound, Bound]:
    starting = _bound(options, "starting", default=End.LATEST if streaming else End.EARLIEST)
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if streaming and name.lower() in options:
            raise ConfigurationError(
                f"{name} is for batch queries: a stream has no end. To stop at what is there now, "
                f"use trigger(availableNow=True)"
            )
    ending = _bound(options, "ending", default=End.LATEST)
    if not streaming:
        _refuse_end(starting, End.LATEST, LATEST, "startingOffsets", "a batch query would be empty")
    _refuse_end(ending, End.EARLIEST, EARLIEST, "endingOffsets", "the query would be empty")
    pairs: list[tuple[str, PartitionNumbers, PartitionNumbers]] = []
    if isinstance(starting, AtOffsets) and isinstance(ending, AtOffsets):
        pairs.append(("Offsets", starting.offsets, ending.offsets))
    if isinstance(starting, AtTimestamps) and isinstance(ending, AtTimestamps):
        pairs.append(("OffsetsByTimestamp", starting.timestamps_ms, ending.timestamps_ms))
    for kind, first, last in pairs:
        for where in sorted({*first} ^ {*last}):
            raise ConfigurationError(
                f"starting{kind} and ending{kind} must name the same partitions; "
                f"{where[0]}-{where[1]} is in one of them only"
            )
        for (topic, partition), number in sorted(first.items()):
            until = last[topic, partition]
            if number > until >= 0:
                raise ConfigurationError(
                    f"{topic}-{partition}: starting{kind} has {number}, above ending{kind}, "
                    f"which has {until}"
                )
    return starting, ending


def _refuse_end(bound: Bound, end: End, mark: int, name: str, why: str) -> None:
    if bound is end:
        raise ConfigurationError(f"{name} cannot be {end.value}: {why}")
    for (topic, partition), offset in bound.offsets.items() if isinstance(bound, AtOffsets) else ():
        if offset == mark:
            raise ConfigurationError(
                f"{name} of {topic}-{partition} cannot be {mark} ({end.value}): {why}"
            )


def _bound(options: Mapping[str, str], side: str, *, default: Bound) -> Bound:
    """Return the bound of one side.

    A timestamp for all partitions wins over timestamps by partition, and these win over offsets.
    """
    if (text := options.get(f"{side}timestamp")) is not None:
        return AtTimestamp(_number(text, f"{side}Timestamp", "milliseconds since 1970"))
    if (text := options.get(f"{side}offsetsbytimestamp")) is not None:
        return AtTimestamps(_by_partition(text, f"{side}OffsetsByTimestamp", least=0))
    text = options.get(f"{side}offsets")
    if text is None:
        return default
    if text.lower() in ("earliest", "latest"):
        return End(text.lower())
    if (hint := did_you_mean(text, ("earliest", "latest"))) is not None:
        raise ConfigurationError(f"{side}Offsets: there is no {text!r}: {hint}")
    return AtOffsets(_by_partition(text, f"{side}Offsets", least=EARLIEST))


def _by_partition(text: str, name: str, *, least: int) -> PartitionNumbers:
    either = '"earliest", "latest" or ' if name.endswith("Offsets") else ""
    form = f'{name} must be {either}like {{"orders":{{"0":23,"1":45}}}}'
    numbers: dict[tuple[str, int], int] = {}
    for topic, by_partition in _object(text, form).items():
        if not isinstance(by_partition, dict):
            raise ConfigurationError(f"{form}; {topic!r} has {by_partition!r}")
        for partition, number in cast("dict[str, object]", by_partition).items():
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise ConfigurationError(f"{form}; {topic}-{partition} has {number!r}")
            numbers[topic, _partition(topic, partition, form)] = number
    if not numbers:
        raise ConfigurationError(f"{form}; it names no partition")
    return numbers


def _object(text: str, form: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as wrong:
        raise ConfigurationError(f"{form}; {text!r} is not JSON: {wrong}") from wrong
    if not isinstance(value, dict):
        raise ConfigurationError(f"{form}; {text!r} is no JSON object")
    return cast("dict[str, Any]", value)


def _partition(topic: str, value: object, form: str) -> int:
    if isinstance(value, bool) or not str(value).isascii() or not str(value).isdigit():
        raise ConfigurationError(f"{form}; {value!r} is no partition of {topic!r}")
    return int(str(value))


def _number(text: str, name: str, what: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ConfigurationError(f"{name} must be a whole number ({what}), not {text!r}")
    return int(text)


def _row_filter(options: Mapping[str, str], *, streaming: bool) -> RowFilter:
    text = options.get("where")
    if text is None:
        return ALL_ROWS
    if streaming:
        raise ConfigurationError(
            "where is for batch queries: the micro-batches of a stream tile the source, so that "
            "nothing is read twice or left out, and so they take all of its records. Use "
            "DataFrame.where on the stream; assign chooses partitions, and startingTimestamp or "
            "startingOffsets where a new query begins"
        )
    return parse_where(text)


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    number = _number(text, name, "at least 1")
    if number < 1:
        raise ConfigurationError(f"{name} must be at least 1, not {number}")
    return number


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f'{name} must be "true" or "false", not {text!r}')
    return text == "true"


def _one_of(
    options: Mapping[str, str], name: str, choices: type[Choice], default: Choice
) -> Choice:
    text = options.get(name.lower(), default.value).lower()
    for choice in choices:
        if choice.value == text:
            return choice
    raise ConfigurationError(f"{name}: {no_such_value(text, [each.value for each in choices])}")


def _duration_ms(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    try:
        return None if text is None else duration_ms(text, bare_is_ms=True)
    except ConfigurationError as wrong:
        raise ConfigurationError(f"{name}: {wrong}") from wrong


def _is_read_committed(options: Mapping[str, str]) -> bool:
    level = options.get("kafka.isolation.level", "read_uncommitted").lower()
    if level not in ("read_uncommitted", "read_committed"):
        known = ("read_committed", "read_uncommitted")
        raise ConfigurationError(f"kafka.isolation.level: {no_such_value(level, known)}")
    return level == "read_committed"
