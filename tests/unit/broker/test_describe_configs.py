"""DescribeConfigs: values, sources, synonyms, types and texts of topics and of this broker."""

import asyncio
from typing import Any

import pytest
from tests.unit.broker.administered import (
    BROKER_ID,
    GatedStore,
    ask,
    create,
    names,
    on_gated_store,
    started,
    until,
)

from holdfast.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

TOPIC, BROKER = 2, 4
TOPIC_SOURCE, STATIC_SOURCE, DEFAULT_SOURCE = 1, 4, 5


def asked(
    resource_type: int, name: str, keys: list[str] | None = None, **fields: Any
) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=keys
    )
    return DescribeConfigsRequest(resources=[resource], **fields)


def by_name(result: Any) -> dict[str, Any]:
    return {config.name: config for config in result.configs}


@pytest.mark.parametrize("version", range(1, 5))
@on_gated_store
async def test_a_topic_shows_its_own_values_and_the_defaults(store: GatedStore, version: int):
    broker = await started(store)
    await create(broker, "a", retention_ms="1000")
    (result,) = (await ask(broker, asked(TOPIC, "a"), version)).results
    shown = by_name(result)
    assert (shown["retention.ms"].value, shown["retention.ms"].config_source) == (
        "1000",
        TOPIC_SOURCE,
    )
    assert (shown["cleanup.policy"].value, shown["cleanup.policy"].config_source) == (
        "delete",
        DEFAULT_SOURCE,
    )
    assert not any(config.read_only or config.is_sensitive for config in result.configs)


@on_gated_store
async def test_synonyms_types_and_texts_are_there_for_those_who_ask(store: GatedStore):
    broker = await started(store)
    await create(broker, "a", retention_bytes="1000", retention_ms="2000")
    request = asked(TOPIC, "a", include_synonyms=True, include_documentation=True)
    shown = by_name((await ask(broker, request, 4)).results[0])
    synonyms = shown["retention.bytes"].synonyms
    assert [(s.name, s.value, s.source) for s in synonyms] == [
        ("retention.bytes", "1000", TOPIC_SOURCE),
        ("log.retention.bytes", "-1", DEFAULT_SOURCE),
    ]
    assert [s.source for s in shown["retention.ms"].synonyms] == [TOPIC_SOURCE]
    assert shown["segment.ms"].synonyms == []
    assert (shown["retention.ms"].config_type, shown["cleanup.policy"].config_type) == (5, 7)
    assert all(config.documentation for config in shown.values())
    plain = by_name((await ask(broker, asked(TOPIC, "a"), 4)).results[0])
    assert plain["retention.ms"].synonyms == []
    assert plain["retention.ms"].documentation is None


@pytest.mark.parametrize(
    ("keys", "found"),
    [(["retention.ms", "no.such"], {"retention.ms"}), (["no.such"], set[str]())],
)
@on_gated_store
async def test_only_the_keys_that_are_asked_for_are_shown(
    store: GatedStore, keys: list[str], found: set[str]
):
    broker = await started(store)
    await create(broker, "a")
    (result,) = (await ask(broker, asked(TOPIC, "a", keys), 4)).results
    assert set(by_name(result)) == found


@on_gated_store
async def test_a_broker_shows_its_settings_read_only(store: GatedStore):
    broker = await started(store, num_partitions=3, lanes=2)
    request = asked(BROKER, str(BROKER_ID), include_documentation=True, include_synonyms=True)
    shown = by_name((await ask(broker, request, 4)).results[0])
    assert (shown["num.partitions"].value, shown["num.partitions"].config_source) == (
        "3",
        STATIC_SOURCE,
    )
    assert shown["auto.create.topics.enable"].config_source == DEFAULT_SOURCE
    assert shown["holdfast.lanes"].value == "2"
    assert shown["broker.rack"].value is None
    assert all(config.read_only and config.documentation for config in shown.values())


@pytest.mark.parametrize(
    ("resource_type", "name", "error"),
    [
        (TOPIC, "nobody", "UNKNOWN_TOPIC_OR_PARTITION"),
        (TOPIC, "bad name", "INVALID_TOPIC_EXCEPTION"),
        (TOPIC, "", "INVALID_TOPIC_EXCEPTION"),
        (BROKER, "99", "INVALID_REQUEST"),
        (BROKER, "seven", "INVALID_REQUEST"),
        (BROKER, "", "NONE"),
        (8, str(BROKER_ID), "INVALID_REQUEST"),
        (0, "a", "INVALID_REQUEST"),
    ],
)
@on_gated_store
async def test_what_is_not_there_is_refused_with_kafkas_error(
    store: GatedStore, resource_type: int, name: str, error: str
):
    broker = await started(store)
    (result,) = (await ask(broker, asked(resource_type, name), 4)).results
    assert names([result]) == [error]
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    assert result.configs == []
    assert (result.error_message is None) == (error == "NONE")


@on_gated_store
async def test_nothing_is_shown_that_the_store_could_still_lose(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    store.gate.clear()
    new = CreateTopicsRequest(
        topics=[CreatableTopic(name="b", num_partitions=1, replication_factor=1)]
    )
    creating = asyncio.ensure_future(ask(broker, new, 7))
    await until(lambda: "b" in broker.state.names)
    describing = asyncio.ensure_future(ask(broker, asked(TOPIC, "a"), 4))
    await asyncio.wait({describing}, timeout=0.05)
    assert not describing.done()
    store.gate.set()
    assert names((await describing).results) == ["NONE"]
    await creating
