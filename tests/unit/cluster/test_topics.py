"""Decisions on topics: Kafka's refusals by name, and configurations as they will be stored."""

from uuid import UUID

import pytest

from holdfast.cluster.configs import (
    TOPIC_CONFIGS,
    ConfigSource,
    config_problem,
    shown_configs,
    topic_settings,
)
from holdfast.cluster.facts import (
    ClusterCreated,
    PartitionsAdded,
    TopicConfigured,
    TopicCreated,
)
from holdfast.cluster.state import ControlState, Topic
from holdfast.cluster.topics import (
    PARTITIONS_MAX,
    ConfigChange,
    ConfigOperation,
    decide_config_changes,
    decide_configs,
    decide_create,
    decide_partitions,
)
from holdfast.protocol.api import Refused

ID = UUID(int=5)


def cluster(*names: str) -> ControlState:
    state = ControlState()
    state.apply(ClusterCreated("c", 3))
    for i, name in enumerate(names):
        fact = TopicCreated(UUID(int=100 + i), name, [1], {})
        state.apply(fact)
        state.publish([fact])
    return state


def create(state: ControlState, name: str = "t", partitions: int = 1, factor: int = 1, **configs):
    return decide_create(
        state,
        topic_id=ID,
        name=name,
        partitions=partitions,
        replication_factor=factor,
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )


def error(decided: object) -> str:
    assert isinstance(decided, Refused), decided
    return decided.error.name


def test_a_topic_is_spread_over_the_lanes():
    decided = create(cluster(), partitions=4, retention_ms="9")
    assert decided == TopicCreated(ID, "t", [1, 2, 3, 1], {"retention.ms": "9"})


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a b", "é", "x" * 250, "a\n"])
def test_illegal_names_are_refused(name: str):
    assert error(create(cluster(), name)) == "INVALID_TOPIC_EXCEPTION"


def test_names_that_exist_or_collide_in_metrics_are_refused():
    state = cluster("a.b", "plain")
    assert error(create(state, "plain")) == "TOPIC_ALREADY_EXISTS"
    assert error(create(state, "a_b")) == "INVALID_TOPIC_EXCEPTION"
    assert isinstance(create(state, "a-b"), TopicCreated)


@pytest.mark.parametrize("partitions", [0, -1, -2])
def test_numbers_of_partitions_below_one_are_refused(partitions: int):
    assert error(create(cluster(), partitions=partitions)) == "INVALID_PARTITIONS"


@pytest.mark.parametrize("partitions", [PARTITIONS_MAX + 1, 1 << 31])
def test_more_partitions_than_one_request_may_make_are_refused(partitions: int):
    assert error(create(cluster(), partitions=partitions)) == "POLICY_VIOLATION"


@pytest.mark.parametrize("factor", [0, -2, -32768])
def test_factors_that_mean_nothing_are_refused(factor: int):
    assert error(create(cluster(), factor=factor)) == "INVALID_REPLICATION_FACTOR"


@pytest.mark.parametrize("factor", [-1, 1, 2, 3, 32767])
def test_any_replication_factor_is_met_by_the_store(factor: int):
    assert isinstance(create(cluster(), factor=factor), TopicCreated)


def topic(**configs: str) -> Topic:
    return Topic(topic_id=ID, name="t", lanes=[1, 2], configs=configs, partitions=2)


def test_partitions_only_grow():
    state = cluster("t")
    found = state.topics[UUID(int=100)]
    assert isinstance(decide_partitions(state, found, 3), PartitionsAdded)
    for count in (1, 0, -1, PARTITIONS_MAX + 1):
        assert error(decide_partitions(state, found, count)) == "INVALID_PARTITIONS"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "1e3"),
        ("retention.ms", "1_000"),
        ("retention.ms", "١"),  # noqa: RUF001
        ("retention.ms", ""),
        ("retention.ms", str(1 << 63)),
        ("retention.ms", None),
        ("max.message.bytes", "-1"),
        ("max.message.bytes", str(1 << 31)),
        ("cleanup.policy", "remove"),
        ("message.timestamp.type", "createtime"),
        ("preallocate", "yes"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("holdfast.ack", "never"),
        ("holdfast.flush.ms", "0"),
        ("holdfast.flush.ms", "86400001"),
        ("holdfast.flush.bytes", "0"),
        ("holdfast.flush.bytes", str((1 << 30) + 1)),
        ("unclean.leader.election.enable", "maybe"),
        ("retention.mss", "1"),
        ("", "1"),
    ],
)
def test_values_that_kafka_would_refuse_are_refused(name: str, value: str | None):
    assert config_problem(name, value) is not None
    assert error(decide_configs(topic(), {name: value})) == "INVALID_CONFIG"


def test_every_default_is_legal_and_shown_as_a_default():
    for definition in TOPIC_CONFIGS.values():
        assert definition.problem(definition.default) is None
    shown = {c.definition.name: c for c in shown_configs({"retention.ms": "5"})}
    assert shown["retention.ms"].source is ConfigSource.TOPIC
    assert shown["retention.bytes"].source is ConfigSource.DEFAULT


def test_changes_leave_the_other_configurations_alone():
    start = topic(**{"retention.ms": "5", "preallocate": "true"})
    changes = [
        ConfigChange("retention.bytes", ConfigOperation.SET, "7"),
        ConfigChange("preallocate", ConfigOperation.DELETE, ""),
        ConfigChange("cleanup.policy", ConfigOperation.APPEND, "compact"),
    ]
    decided = decide_config_changes(start, changes)
    assert isinstance(decided, TopicConfigured)
    assert decided.configs == {
        "retention.ms": "5",
        "retention.bytes": "7",
        "cleanup.policy": "delete,compact",
    }


def test_only_lists_can_be_appended_to_and_subtracted_from():
    change = ConfigChange("retention.ms", ConfigOperation.APPEND, "5")
    assert error(decide_config_changes(topic(), [change])) == "INVALID_CONFIG"
    less = ConfigChange("cleanup.policy", ConfigOperation.SUBTRACT, "delete")
    decided = decide_config_changes(topic(**{"cleanup.policy": "delete,compact"}), [less])
    assert isinstance(decided, TopicConfigured)
    assert decided.configs == {"cleanup.policy": "compact"}


def test_settings_follow_the_configurations():
    default = topic_settings({})
    assert default.batch_bytes_max == 1_048_588
    assert default.retention.retention_ms == 604_800_000 and default.retention.deletes
    own = topic_settings(
        {
            "cleanup.policy": "compact",
            "max.message.bytes": "10",
            "message.timestamp.type": "LogAppendTime",
        }
    )
    assert own.append.log_append_time and not own.retention.deletes
    assert own.batch_bytes_max == 10


def test_a_topic_is_acknowledged_from_the_store_unless_it_says_disk():
    assert topic_settings({}).flush is None
    assert topic_settings({"holdfast.flush.ms": "5"}).flush is None
    chosen = topic_settings({"holdfast.ack": "disk", "holdfast.flush.ms": "86400000"})
    assert chosen.flush == (64 * 1024 * 1024, 86_400_000)
    assert not chosen.unclean
    assert topic_settings({"unclean.leader.election.enable": "TRUE"}).unclean
