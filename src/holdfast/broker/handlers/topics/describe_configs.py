"""DescribeConfigs: the configurations of topics, and the settings of a broker.

Topics show all of Kafka's topic configurations, once these are durable. A broker shows the settings
that it was started with, read-only.
"""

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.handlers.topics.alter_configs import BROKER, TOPIC
from holdfast.broker.properties import PROPERTIES
from holdfast.broker.settings import LANES_DEFAULT, BrokerSettings
from holdfast.broker.topic_creation import WAIT_MS_DEFAULT, control_durable, hear_of_changes
from holdfast.cluster.configs import BROKER_NAMES, ConfigSource, ConfigType, shown_configs
from holdfast.identifiers import topic_name_problem
from holdfast.protocol.api import ApiKey, ErrorCode, Refused
from holdfast.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

API = Api(
    key=ApiKey.DESCRIBE_CONFIGS,
    versions=range(1, 5),
    deviations=(
        "Brokers have no defaults for topics. The synonyms name Kafka's broker settings, with"
        " Kafka's values.",
        "An empty list of keys asks for all.",
    ),
)


class _Row(NamedTuple):
    """One configuration of a topic or of a broker."""

    name: str
    type: ConfigType
    value: str | None
    default: str | None
    default_name: str | None
    """The broker setting that gives the default, or None if there is none."""
    source: ConfigSource
    documentation: str
    read_only: bool


async def handle(
    broker: Broker, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    del context
    if broker.membership is not None and broker.view.lane is None:
        await hear_of_changes(broker)
    described = [(resource, _rows(broker, resource)) for resource in request.resources]
    failed = None
    if broker.membership is None or broker.view.lane is not None:
        failed = await control_durable(broker, WAIT_MS_DEFAULT)
    if failed is not None:
        described = [
            (resource, failed if resource.resource_type == TOPIC else rows)
            for resource, rows in described
        ]
    return DescribeConfigsResponse(
        results=[_result(request, resource, rows) for resource, rows in described]
    )


def _rows(broker: Broker, resource: DescribeConfigsResource) -> Iterable[_Row] | Refused:
    if resource.resource_type == TOPIC:
        rows = _topic_rows(broker, resource.resource_name)
    elif resource.resource_type == BROKER:
        rows = _broker_rows(broker, resource.resource_name)
    else:
        rows = Refused(
            ErrorCode.INVALID_REQUEST,
            f"resource type {resource.resource_type}: only topics ({TOPIC}) and brokers ({BROKER})"
            " have configurations",
        )
    if isinstance(rows, Refused) or not resource.configuration_keys:
        return rows
    keys = set(resource.configuration_keys)
    return [row for row in rows if row.name in keys]


def _topic_rows(broker: Broker, name: str) -> list[_Row] | Refused:
    topic = broker.state.topic_named(name)
    if topic is None:
        problem = topic_name_problem(name)
        if problem is not None:
            return Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return [
        _Row(
            definition.name,
            definition.type,
            value,
            definition.default,
            BROKER_NAMES.get(definition.name),
            source,
            definition.documentation,
            read_only=False,
        )
        for definition, value, source in shown_configs(topic.configs)
    ]


def _broker_rows(broker: Broker, name: str) -> list[_Row] | Refused:
    this = broker.settings.broker_id
    if name == "":
        return []  # defaults for all brokers: there are none
    if name != str(this):
        return Refused(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {this} or empty string, but received {name[:80]}",
        )
    mine = _shown_settings(broker.settings, broker.state.lanes)
    usual = _shown_settings(
        BrokerSettings(broker_id=this, host=broker.settings.host, port=broker.settings.port),
        LANES_DEFAULT,
    )
    return [
        _Row(
            shown.name,
            shown.type,
            shown.value,
            default.value,
            shown.name,
            ConfigSource.DEFAULT if shown.value == default.value else ConfigSource.STATIC_BROKER,
            shown.documentation,
            read_only=True,
        )
        for shown, default in zip(mine, usual, strict=True)
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class _ShownSetting:
    name: str
    type: ConfigType
    value: str | None
    documentation: str


def _shown_settings(settings: BrokerSettings, lanes: int) -> list[_ShownSetting]:
    """Return the settings that have an effect, under Kafka's names if Kafka has them."""

    def number(name: str, value: float, documentation: str) -> _ShownSetting:
        return _ShownSetting(name, ConfigType.LONG, str(int(value)), documentation)

    creates = "true" if settings.auto_create_topics_enable else "false"
    address = f"{settings.host}:{settings.port}"
    return [
        number("broker.id", settings.broker_id, "The id of this broker."),
        number("node.id", settings.broker_id, "The same as broker.id."),
        _ShownSetting("broker.rack", ConfigType.STRING, settings.rack, "The rack of this broker."),
        _ShownSetting(
            "holdfast.advertised.address",
            ConfigType.STRING,
            address,
            "The address at which clients reach this broker.",
        ),
        _ShownSetting(
            "auto.create.topics.enable",
            ConfigType.BOOLEAN,
            creates,
            "Create a topic when a client first uses it.",
        ),
        number("num.partitions", settings.num_partitions, "Partitions of a new topic."),
        number("default.replication.factor", 1, "Always 1: the store replicates."),
        number("fetch.max.bytes", settings.fetch_bytes_max, "The most that one fetch returns."),
        number(
            "max.incremental.fetch.session.cache.slots",
            settings.fetch_sessions_max,
            "How many fetch sessions are kept.",
        ),
        number(
            "producer.id.expiration.ms",
            settings.producer_id_expiration_ms,
            "How long the broker remembers a producer that sends nothing.",
        ),
        number("holdfast.lanes", lanes, "Data lanes; fixed when the store was first used."),
        number(
            "holdfast.linger.ms",
            settings.group.linger_ms,
            "How long records are gathered into one object before it is written.",
        ),
        number(
            "holdfast.claim.valid.ms",
            settings.group.claim_valid_ms,
            "How long a broker may answer reads before it checks that it still owns the lane.",
        ),
        number("holdfast.tail.bytes", settings.tail_bytes, "Memory for the newest records."),
        number(
            "holdfast.cache.bytes",
            settings.cache_bytes,
            "Memory for records that were read back from the store.",
        ),
        *(
            _ShownSetting(
                item.name,
                ConfigType.LONG if item.words is None else ConfigType.STRING,
                item.shown(settings),
                item.documentation,
            )
            for item in PROPERTIES
        ),
    ]


def _result(
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
    rows: Iterable[_Row] | Refused,
) -> DescribeConfigsResult:
    if isinstance(rows, Refused):
        return DescribeConfigsResult(
            error_code=rows.error,
            error_message=rows.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[
            DescribeConfigsResourceResult(
                name=row.name,
                value=row.value,
                read_only=row.read_only,
                config_source=row.source,
                synonyms=_synonyms(row) if request.include_synonyms else [],
                config_type=row.type,
                documentation=row.documentation if request.include_documentation else None,
            )
            for row in rows
        ],
    )


def _synonyms(row: _Row) -> list[DescribeConfigsSynonym]:
    """Return the possible sources of a value. The first one is in effect."""
    found: list[DescribeConfigsSynonym] = []
    if row.source is not ConfigSource.DEFAULT:
        found.append(DescribeConfigsSynonym(name=row.name, value=row.value, source=row.source))
    if row.default_name is not None:
        found.append(
            DescribeConfigsSynonym(
                name=row.default_name, value=row.default, source=ConfigSource.DEFAULT
            )
        )
    return found
