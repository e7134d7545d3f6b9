"""Broker settings by Kafka's names."""

import re

import pytest

from holdfast.broker.properties import BY_NAME, PROPERTIES, overridden
from holdfast.broker.settings import BrokerSettings
from holdfast.errors import ConfigurationError
from holdfast.groups.rules import MigrationPolicy
from holdfast.identifiers import BrokerId

USUAL = BrokerSettings(broker_id=BrokerId(0), host="localhost", port=9092)


def test_each_override_reaches_its_setting_and_the_rest_stays():
    settings = overridden(
        USUAL,
        [
            "group.initial.rebalance.delay.ms=0",
            " group.consumer.migration.policy = Upgrade ",
            "offsets.retention.minutes=2",
            "transaction.max.timeout.ms=1000",
        ],
    )
    assert settings.groups.group_initial_rebalance_delay_ms == 0
    assert settings.groups.group_consumer_migration_policy is MigrationPolicy.UPGRADE
    assert settings.groups.offsets_retention_ms == 120_000
    assert settings.transactions.transaction_max_timeout_ms == 1_000
    assert settings.groups.group_max_size == USUAL.groups.group_max_size
    assert overridden(USUAL, []) == USUAL


@pytest.mark.parametrize("name", BY_NAME)
def test_what_is_shown_can_be_set(name: str):
    shown = BY_NAME[name].shown(USUAL)
    assert overridden(USUAL, [f"{name}={shown}"]) == USUAL


def test_kafkas_defaults_are_the_defaults():
    shown = {item.name: item.shown(USUAL) for item in PROPERTIES}
    assert shown["offsets.retention.minutes"] == "10080"
    assert shown["group.consumer.migration.policy"] == "bidirectional"
    assert shown["transactional.id.expiration.ms"] == "604800000"
    assert shown["group.initial.rebalance.delay.ms"] == "3000"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("group.max.size", "is not NAME=VALUE"),
        ("=5", "is not NAME=VALUE"),
        ("group.max.sise=5", "Did you mean group.max.size?"),
        ("zzz=5", "there is no such setting"),
        ("group.max.size=many", "is not a whole number"),
        ("group.max.size=0", "is not between 1 and 2147483647"),
        ("group.initial.rebalance.delay.ms=-1", "is not between 0 and"),
        ("group.consumer.migration.policy=both", "bidirectional, upgrade, downgrade, disabled"),
        ("group.min.session.timeout.ms=2000000", "is more than group.max.session.timeout.ms"),
        ("group.consumer.session.timeout.ms=5000", "members would be fenced out"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_the_reason(override: str, said: str):
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        overridden(USUAL, [override])
