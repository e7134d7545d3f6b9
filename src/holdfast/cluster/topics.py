"""Decide on topics: create them, add partitions, change configurations.

Pure. Refusals are values with Kafka's own error names.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from holdfast.cluster.configs import (
    TOPIC_CONFIGS,
    ConfigType,
    config_problem,
    configs_problem,
    effective,
    list_items,
)
from holdfast.cluster.facts import PartitionsAdded, TopicConfigured, TopicCreated
from holdfast.cluster.state import ControlState, Topic
from holdfast.identifiers import topic_name_problem
from holdfast.protocol.api import ErrorCode, Refused

PARTITIONS_MAX = 10_000
"""The most partitions of one topic, and of all in one request, as in Kafka. It bounds what a
request makes the broker hold."""


class ConfigOperation(enum.IntEnum):
    """An operation of IncrementalAlterConfigs on one configuration; Kafka's codes."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One step of an incremental change."""

    name: str
    operation: ConfigOperation
    value: str


def decide_create(
    state: ControlState,
    *,
    topic_id: UUID,
    name: str,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str | None],
) -> TopicCreated | Refused:
    """Create a topic. The store replicates, so any replication factor is met; -1 is the default."""
    problem = topic_name_problem(name)
    if problem is not None:
        return Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name in state.names:
        return Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    colliding = _colliding_name(state, name)
    if colliding is not None:
        return Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {colliding}",
        )
    if not 0 < partitions <= PARTITIONS_MAX:
        return Refused(
            ErrorCode.INVALID_PARTITIONS if partitions <= 0 else ErrorCode.POLICY_VIOLATION,
            f"topic {name}: it cannot have {partitions} partitions; use 1 to {PARTITIONS_MAX}",
        )
    if replication_factor == 0 or replication_factor < -1:
        return Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"topic {name}: replication factor {replication_factor} is not possible; use -1, or 1"
            " or more",
        )
    checked = check_configs(name, configs)
    if isinstance(checked, Refused):
        return checked
    return TopicCreated(topic_id, name, state.spread(partitions), checked)


def _colliding_name(state: ControlState, name: str) -> str | None:
    """Return a topic whose name differs in '.' and '_' only: both would have one metric name."""
    if "." not in name and "_" not in name:
        return None
    metric_name = name.replace(".", "_")
    for other in state.names:
        if len(other) == len(name) and other.replace(".", "_") == metric_name:
            return other
    return None


def decide_partitions(state: ControlState, topic: Topic, count: int) -> PartitionsAdded | Refused:
    """Grow a topic to `count` partitions."""
    now = len(topic.lanes)
    if count <= now:
        return Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name} has {now} partitions already: the new number must be larger than"
            f" that, not {count}",
        )
    if count > PARTITIONS_MAX:
        return Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name}: {count} partitions are too many; at most {PARTITIONS_MAX} are"
            " possible",
        )
    return PartitionsAdded(topic.topic_id, state.spread(count - now))


def decide_configs(topic: Topic, configs: Mapping[str, str | None]) -> TopicConfigured | Refused:
    """Replace a topic's configurations."""
    checked = check_configs(topic.name, configs)
    if isinstance(checked, Refused):
        return checked
    return TopicConfigured(topic.topic_id, checked)


def decide_config_changes(
    topic: Topic, changes: Sequence[ConfigChange]
) -> TopicConfigured | Refused:
    """Change some of a topic's configurations, and leave the others."""
    configs: dict[str, str | None] = dict(topic.configs)
    for name, operation, value in changes:
        match operation:
            case ConfigOperation.SET:
                configs[name] = value
            case ConfigOperation.DELETE:
                configs.pop(name, None)
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
                definition = TOPIC_CONFIGS.get(name)
                if definition is None or definition.type is not ConfigType.LIST:
                    return Refused(
                        ErrorCode.INVALID_CONFIG,
                        f"topic {topic.name}: Can't {operation.name} to key {name[:200]} because"
                        " its type is not LIST.",
                    )
                items = list_items(effective(topic.configs, name))
                given = list_items(value)
                if operation is ConfigOperation.APPEND:
                    items += [item for item in dict.fromkeys(given) if item not in items]
                else:
                    items = [item for item in items if item not in given]
                configs[name] = ",".join(items)
    return decide_configs(topic, configs)


def check_configs(name: str, configs: Mapping[str, str | None]) -> dict[str, str] | Refused:
    """Return the configurations as they will be stored, or what is wrong with one."""
    checked: dict[str, str] = {}
    for key, value in configs.items():
        problem = config_problem(key, value)
        if problem is not None or value is None:
            return Refused(ErrorCode.INVALID_CONFIG, f"topic {name}: {problem}")
        checked[key] = value
    problem = configs_problem(checked)
    if problem is not None:
        return Refused(ErrorCode.INVALID_CONFIG, f"topic {name}: {problem}")
    return checked
