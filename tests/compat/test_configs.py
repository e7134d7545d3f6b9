"""Topic configs: described with defaults, set, replaced, changed one by one, refused."""

from collections.abc import Callable

import pytest
from tests.compat.families.interface import Ability, ClientFamily, Config, ErrorCode
from tests.peers.process import wait_until

NewTopic = Callable[..., str]
SEVEN_DAYS_MS = str(7 * 24 * 60 * 60 * 1000)
DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": SEVEN_DAYS_MS,
    "segment.bytes": "1073741824",
}


def configs(client: ClientFamily, topic: str) -> dict[str, Config]:
    answer = client.describe_configs(topic)
    assert isinstance(answer, dict)
    return answer


def wait_for_values(client: ClientFamily, topic: str, **expected: str) -> None:
    """An alteration is answered before every broker's view shows it."""
    named = {name.replace("_", "."): value for name, value in expected.items()}
    wait_until(
        lambda: {name: configs(client, topic)[name].value for name in named} == named,
        seconds_max=60,
        what=f"{topic} has {named}",
    )


def set_names(client: ClientFamily, topic: str) -> set[str]:
    return {name for name, config in configs(client, topic).items() if config.set_on_topic}


def test_a_topic_without_configs_shows_kafkas_defaults(client: ClientFamily, topic: str):
    shown = configs(client, topic)
    assert {name: shown[name].value for name in DEFAULTS} == DEFAULTS
    assert set_names(client, topic) == set()
    assert not any(shown[name].read_only or shown[name].sensitive for name in DEFAULTS)


def test_configs_given_at_creation_are_shown_as_the_topics_own(
    client: ClientFamily, topic_name: str, new_topic: NewTopic
):
    topic = new_topic(topic_name, retention_ms="3600000", cleanup_policy="compact")
    shown = configs(client, topic)
    assert (shown["retention.ms"].value, shown["cleanup.policy"].value) == ("3600000", "compact")
    assert set_names(client, topic) == {"retention.ms", "cleanup.policy"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "soon"),
        ("cleanup.policy", "burn"),
        ("message.timestamp.type", "Tomorrow"),
        ("max.message.bytes", "-5"),
        ("no.such.config", "1"),
    ],
)
def test_a_topic_is_not_created_with_a_config_that_is_wrong(
    client: ClientFamily, topic_name: str, name: str, value: str
):
    assert client.create_topic(topic_name, configs={name: value}) == ErrorCode.INVALID_CONFIG
    assert topic_name not in client.list_topics()


@pytest.mark.needs(Ability.ALTER_CONFIGS)
def test_altering_configs_replaces_all_that_were_set(
    client: ClientFamily, topic_name: str, new_topic: NewTopic
):
    topic = new_topic(topic_name, retention_ms="3600000")
    assert client.alter_configs(topic, {"max.message.bytes": "2000000"}) == ErrorCode.NONE
    wait_for_values(client, topic, max_message_bytes="2000000", retention_ms=SEVEN_DAYS_MS)
    assert set_names(client, topic) == {"max.message.bytes"}


@pytest.mark.needs(Ability.ALTER_CONFIGS)
def test_altering_to_a_wrong_config_is_refused_and_changes_nothing(
    client: ClientFamily, topic_name: str, new_topic: NewTopic
):
    topic = new_topic(topic_name, retention_ms="3600000")
    wrong = {"max.message.bytes": "2000000", "retention.ms": "soon"}
    assert client.alter_configs(topic, wrong) == ErrorCode.INVALID_CONFIG
    assert set_names(client, topic) == {"retention.ms"}


@pytest.mark.needs(Ability.INCREMENTAL_ALTER_CONFIGS)
def test_an_incremental_change_leaves_the_other_configs(
    client: ClientFamily, topic_name: str, new_topic: NewTopic
):
    topic = new_topic(topic_name, retention_ms="3600000")
    changes = [("SET", "max.message.bytes", "2000000")]
    assert client.incremental_alter_configs(topic, changes) == ErrorCode.NONE
    wait_for_values(client, topic, max_message_bytes="2000000", retention_ms="3600000")
    changes = [("DELETE", "retention.ms", "")]
    assert client.incremental_alter_configs(topic, changes) == ErrorCode.NONE
    wait_for_values(client, topic, max_message_bytes="2000000", retention_ms=SEVEN_DAYS_MS)
    assert set_names(client, topic) == {"max.message.bytes"}


@pytest.mark.needs(Ability.INCREMENTAL_ALTER_CONFIGS)
def test_a_list_config_is_appended_to_and_subtracted_from(client: ClientFamily, topic: str):
    append = [("APPEND", "cleanup.policy", "compact")]
    assert client.incremental_alter_configs(topic, append) == ErrorCode.NONE
    wait_for_values(client, topic, cleanup_policy="delete,compact")
    subtract = [("SUBTRACT", "cleanup.policy", "delete")]
    assert client.incremental_alter_configs(topic, subtract) == ErrorCode.NONE
    wait_for_values(client, topic, cleanup_policy="compact")


@pytest.mark.needs(Ability.INCREMENTAL_ALTER_CONFIGS)
@pytest.mark.parametrize(
    "change",
    [
        ("SET", "retention.ms", "soon"),
        ("SET", "no.such.config", "1"),
        ("APPEND", "retention.ms", "1"),
    ],
)
def test_a_wrong_incremental_change_is_refused(
    client: ClientFamily, topic: str, change: tuple[str, str, str]
):
    assert client.incremental_alter_configs(topic, [change]) == ErrorCode.INVALID_CONFIG
    assert set_names(client, topic) == set()
