"""Broker settings under Kafka's names: how they are read, checked and shown.

Owns the table of names. `holdfast serve --override NAME=VALUE` reads it, DescribeConfigs shows it.
Pure: a value that cannot be used raises a ConfigurationError that names the possible values.
"""

import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.broker.settings import BrokerSettings
from holdfast.errors import ConfigurationError
from holdfast.groups.rules import MigrationPolicy

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
MINUTE_MS = 60_000
BROKER = ""


class Property(NamedTuple):
    """One setting, whose value is an integer or one of a few words."""

    name: str
    part: str
    """The group of settings that holds the field. BROKER means the broker's own settings."""
    field: str
    documentation: str
    lowest: int = 0
    highest: int = INT_MAX
    scale: int = 1
    """How many units of the field make one unit of the value."""
    words: type[MigrationPolicy] | None = None

    def read(self, text: str) -> int | MigrationPolicy:
        """Return the field's value for a text that a person wrote."""
        if self.words is not None:
            known = [str(word) for word in self.words]
            if text.lower() not in known:
                raise self._refused(text, f"is not one of {', '.join(known)}")
            return self.words(text.lower())
        try:
            number = int(text)
        except ValueError:
            raise self._refused(text, "is not a whole number") from None
        if not self.lowest <= number <= self.highest:
            raise self._refused(text, f"is not between {self.lowest} and {self.highest}")
        return number * self.scale

    def _refused(self, text: str, why: str) -> ConfigurationError:
        return ConfigurationError(f"--override {self.name}: {text[:80]!r} {why}")

    def holder(self, settings: BrokerSettings) -> Any:
        return settings if self.part == BROKER else getattr(settings, self.part)

    def shown(self, settings: BrokerSettings) -> str:
        """Return the value as a person would write it."""
        value = getattr(self.holder(settings), self.field)
        return str(value) if self.words is not None else str(value // self.scale)


PROPERTIES = (
    Property(
        "log.retention.check.interval.ms",
        BROKER,
        "retention_check_interval_ms",
        "How often retention is applied.",
        lowest=1,
    ),
    Property(
        "group.initial.rebalance.delay.ms",
        "groups",
        "group_initial_rebalance_delay_ms",
        "How long a new classic group waits for more members before its first rebalance.",
    ),
    Property(
        "group.min.session.timeout.ms",
        "groups",
        "group_min_session_timeout_ms",
        "The shortest session timeout that a member of a classic group may ask for.",
    ),
    Property(
        "group.max.session.timeout.ms",
        "groups",
        "group_max_session_timeout_ms",
        "The longest session timeout that a member of a classic group may ask for.",
    ),
    Property(
        "group.max.size",
        "groups",
        "group_max_size",
        "The largest number of members of a classic group.",
        lowest=1,
    ),
    Property(
        "group.consumer.session.timeout.ms",
        "groups",
        "group_consumer_session_timeout_ms",
        "How long a member of a consumer group may be silent before it is removed.",
        lowest=1,
    ),
    Property(
        "group.consumer.heartbeat.interval.ms",
        "groups",
        "group_consumer_heartbeat_interval_ms",
        "How often members of consumer groups must send a heartbeat.",
        lowest=1,
    ),
    Property(
        "group.consumer.max.size",
        "groups",
        "group_consumer_max_size",
        "The largest number of members of a consumer group.",
        lowest=1,
    ),
    Property(
        "group.consumer.assignment.interval.ms",
        "groups",
        "group_consumer_assignment_interval_ms",
        "The shortest time between two assignments of a consumer group of more than 100 members;"
        " smaller groups are assigned at once.",
    ),
    Property(
        "group.consumer.migration.policy",
        "groups",
        "group_consumer_migration_policy",
        "How a group with members may change its protocol:"
        " bidirectional, upgrade, downgrade or disabled.",
        words=MigrationPolicy,
    ),
    Property(
        "offset.metadata.max.bytes",
        "groups",
        "offset_metadata_max_bytes",
        "The largest metadata of a committed offset.",
    ),
    Property(
        "offsets.retention.minutes",
        "groups",
        "offsets_retention_ms",
        "How long committed offsets are kept that no member of the group uses.",
        lowest=1,
        scale=MINUTE_MS,
    ),
    Property(
        "transaction.max.timeout.ms",
        "transactions",
        "transaction_max_timeout_ms",
        "The longest transaction timeout that a producer may ask for.",
        lowest=1,
    ),
    Property(
        "transactional.id.expiration.ms",
        "transactions",
        "transactional_id_expiration_ms",
        "How long an unused transactional id is remembered.",
        lowest=1,
    ),
)
BY_NAME = {item.name: item for item in PROPERTIES}


def overridden(settings: BrokerSettings, overrides: Sequence[str]) -> BrokerSettings:
    """Return the settings with each NAME=VALUE applied."""
    for text in overrides:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise ConfigurationError(f"--override {text[:80]!r} is not NAME=VALUE")
        found = BY_NAME.get(name)
        if found is None:
            raise ConfigurationError(f"--override {name[:80]}: {_hint(name)}")
        field: dict[str, Any] = {found.field: found.read(value)}
        part = dataclasses.replace(found.holder(settings), **field)
        whole: dict[str, Any] = {found.part: part}
        settings = part if found.part == BROKER else dataclasses.replace(settings, **whole)
    _check(settings)
    return settings


def _hint(name: str) -> str:
    close = difflib.get_close_matches(name, BY_NAME, n=1)
    meant = f" Did you mean {close[0]}?" if close else ""
    return f"there is no such setting.{meant} The settings are: {', '.join(sorted(BY_NAME))}"


def _check(settings: BrokerSettings) -> None:
    rules = settings.groups
    shortest, longest = rules.group_min_session_timeout_ms, rules.group_max_session_timeout_ms
    if shortest > longest:
        raise ConfigurationError(
            f"group.min.session.timeout.ms {shortest} is more than group.max.session.timeout.ms"
            f" {longest}: no member could join a classic group"
        )
    session_ms = rules.group_consumer_session_timeout_ms
    interval_ms = rules.group_consumer_heartbeat_interval_ms
    if interval_ms >= session_ms:
        raise ConfigurationError(
            f"group.consumer.heartbeat.interval.ms {interval_ms} is not less than"
            f" group.consumer.session.timeout.ms {session_ms}: members would be fenced out"
        )
