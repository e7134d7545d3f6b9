"""Decide on topics: create, extend, configure, delete.

Pure. Refusals are values with Kafka's own error names.
"""

import dataclasses
from collections.abc import Mapping
from uuid import UUID

from holdfast.cluster.configs import config_problem
from holdfast.cluster.facts import PartitionsAdded, TopicConfigured, TopicCreated
from holdfast.cluster.state import ControlState, Topic
from holdfast.identifiers import topic_name_problem

PARTITIONS_MAX = 10_000
"""Of one topic: a bound on what one request can make the broker hold."""


@dataclasses.dataclass(frozen=True, slots=True)
class TopicRefused:
    """Why nothing was done."""

    error: str
    """The name of a Kafka error code."""
    message: str


def decide_create(
    state: ControlState,
    *,
    topic_id: UUID,
    name: str,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str | None],
) -> TopicCreated | TopicRefused:
    """A new topic. Replication is the store's: the factor must be 1, or -1 for the default."""
    problem = topic_name_problem(name)
    if problem is not None:
        return TopicRefused("INVALID_TOPIC_EXCEPTION", problem)
    if name in state.names:
        return TopicRefused("TOPIC_ALREADY_EXISTS", f"Topic '{name}' already exists.")
    if not 0 < partitions <= PARTITIONS_MAX:
        return TopicRefused(
            "INVALID_PARTITIONS",
            f"topic {name}: {partitions} partitions; 1 to {PARTITIONS_MAX} are possible",
        )
    if replication_factor not in (-1, 1):
        return TopicRefused(
            "INVALID_REPLICATION_FACTOR",
            f"topic {name}: replication factor {replication_factor}; the store replicates, so use 1"
            " or -1",
        )
    checked = check_configs(name, configs)
    if isinstance(checked, TopicRefused):
        return checked
    return TopicCreated(topic_id, name, state.spread(partitions), checked)


def decide_partitions(
    state: ControlState, topic: Topic, count: int
) -> PartitionsAdded | TopicRefused:
    """Grow a topic to `count` partitions."""
    now = len(topic.lanes)
    if count <= now:
        return TopicRefused(
            "INVALID_PARTITIONS",
            f"topic {topic.name} has {now} partitions; {count} would not be more",
        )
    if count > PARTITIONS_MAX:
        return TopicRefused(
            "INVALID_PARTITIONS",
            f"topic {topic.name}: {count} partitions are more than {PARTITIONS_MAX}",
        )
    return PartitionsAdded(topic.topic_id, state.spread(count - now))


def decide_configs(
    topic: Topic, configs: Mapping[str, str | None]
) -> TopicConfigured | TopicRefused:
    """Replace a topic's configurations."""
    checked = check_configs(topic.name, configs)
    if isinstance(checked, TopicRefused):
        return checked
    return TopicConfigured(topic.topic_id, checked)


def check_configs(name: str, configs: Mapping[str, str | None]) -> dict[str, str] | TopicRefused:
    """The configurations as they will be stored, or what is wrong with one."""
    checked: dict[str, str] = {}
    for key, value in configs.items():
        problem = config_problem(key, value)
        if problem is not None or value is None:
            return TopicRefused("INVALID_CONFIG", f"topic {name}: {problem}")
        checked[key] = value
    return checked
