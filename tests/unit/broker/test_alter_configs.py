"""AlterConfigs: replaces all, or changes nothing."""

from typing import Any

import pytest
from tests.unit.broker.administered import (
    BROKER_ID,
    GatedStore,
    ask,
    create,
    names,
    on_gated_store,
    run,
    started,
)

from holdfast.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)

TOPIC, BROKER = 2, 4


def resource(resource_type: int, name: str, **configs: str | None) -> AlterConfigsResource:
    given = [AlterableConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()]
    return AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=given)


def replacing(*resources: AlterConfigsResource, **fields: Any) -> AlterConfigsRequest:
    return AlterConfigsRequest(resources=list(resources), **fields)


@pytest.mark.parametrize("version", range(3))
@on_gated_store
async def test_what_is_not_named_goes_back_to_its_default_also_after_a_kill(
    store: GatedStore, version: int
):
    first = await started(store)
    await create(first, "a", retention_ms="1000")
    request = replacing(resource(TOPIC, "a", max_message_bytes="2000"))
    assert names((await ask(first, request, version)).responses) == ["NONE"]
    second = await started(store)
    topic = second.state.topic_named("a")
    assert topic is not None and topic.configs == {"max.message.bytes": "2000"}
    assert second.settings_of(topic).batch_bytes_max == 2000


@on_gated_store
async def test_the_broker_obeys_a_new_configuration_at_once(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    topic = broker.state.topic_named("a")
    assert topic is not None
    assert broker.settings_of(topic).retention.retention_ms == 604_800_000
    await ask(broker, replacing(resource(TOPIC, "a", retention_ms="5")), 2)
    assert broker.settings_of(topic).retention.retention_ms == 5


@on_gated_store
async def test_validating_changes_nothing(store: GatedStore):
    broker = await started(store)
    await create(broker, "a", retention_ms="1000")
    request = replacing(resource(TOPIC, "a"), validate_only=True)
    assert names((await ask(broker, request, 2)).responses) == ["NONE"]
    wrong = replacing(resource(TOPIC, "a", retention_ms="soon"), validate_only=True)
    assert names((await ask(broker, wrong, 2)).responses) == ["INVALID_CONFIG"]
    topic = broker.state.topic_named("a")
    assert topic is not None and topic.configs == {"retention.ms": "1000"}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (resource(TOPIC, "nobody"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (resource(TOPIC, "bad name"), "INVALID_TOPIC_EXCEPTION"),
        (resource(TOPIC, ""), "INVALID_REQUEST"),
        (resource(TOPIC, "a", no_such="1"), "INVALID_CONFIG"),
        (resource(TOPIC, "a", retention_ms="-2"), "INVALID_CONFIG"),
        (resource(TOPIC, "a", remote_storage_enable="true"), "INVALID_CONFIG"),
        (
            resource(TOPIC, "a", follower_replication_throttled_replicas="0:1,all"),
            "INVALID_CONFIG",
        ),
        (
            resource(TOPIC, "a", min_compaction_lag_ms="9", max_compaction_lag_ms="5"),
            "INVALID_CONFIG",
        ),
        (resource(TOPIC, "a", retention_ms=None), "INVALID_REQUEST"),
        (resource(BROKER, str(BROKER_ID), num_partitions="2"), "INVALID_REQUEST"),
        (resource(BROKER, ""), "INVALID_REQUEST"),
        (resource(8, "a"), "INVALID_REQUEST"),
    ],
)
def test_a_wrong_alteration_is_refused_with_kafkas_error_and_changes_nothing(
    given: AlterConfigsResource, error: str
):
    async def test(store: GatedStore) -> None:
        broker = await started(store)
        await create(broker, "a", retention_ms="1000")
        (result,) = (await ask(broker, replacing(given), 2)).responses
        assert names([result]) == [error]
        assert result.error_message
        topic = broker.state.topic_named("a")
        assert topic is not None and topic.configs == {"retention.ms": "1000"}

    run(test)


@on_gated_store
async def test_a_resource_or_a_key_that_is_named_twice_is_refused(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    await create(broker, "b")
    twice = AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="b",
        configs=[AlterableConfig(name="retention.ms", value=v) for v in ("1", "2")],
    )
    request = replacing(
        resource(TOPIC, "a", retention_ms="1"), resource(TOPIC, "a", retention_ms="2"), twice
    )
    response = await ask(broker, request, 2)
    assert [r.resource_name for r in response.responses] == ["a", "b"]
    assert names(response.responses) == ["INVALID_REQUEST", "INVALID_REQUEST"]
    assert all(topic.configs == {} for topic in broker.state.topics.values())


@on_gated_store
async def test_a_broker_that_lost_the_control_lane_changes_nothing(store: GatedStore):
    first = await started(store)
    await create(first, "a")
    second = await started(store)
    response = await ask(first, replacing(resource(TOPIC, "a", retention_ms="1")), 2)
    assert names(response.responses) == ["NOT_CONTROLLER"]
    topic = second.state.topic_named("a")
    assert topic is not None and topic.configs == {}
