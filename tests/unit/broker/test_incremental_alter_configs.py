"""IncrementalAlterConfigs: set, delete, append, subtract; the rest stays."""

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
)

from holdfast.broker.broker import Broker
from holdfast.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[str, int, str | None]


def changing(
    *changes: Change, name: str = "a", resource_type: int = TOPIC, **fields: Any
) -> IncrementalAlterConfigsRequest:
    configs = [
        IncrementalAlterableConfig(name=n, config_operation=o, value=v) for n, o, v in changes
    ]
    resource = IncrementalAlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=configs
    )
    return IncrementalAlterConfigsRequest(resources=[resource], **fields)


def configs_of(broker: Broker, name: str = "a") -> dict[str, str]:
    topic = broker.state.topic_named(name)
    assert topic is not None
    return topic.configs


@pytest.mark.parametrize("version", range(2))
@on_gated_store
async def test_what_is_not_named_stays_also_after_a_kill(store: GatedStore, version: int):
    first = await started(store)
    await create(first, "a", retention_ms="1000", segment_ms="5")
    request = changing(("max.message.bytes", SET, "2000"), ("segment.ms", DELETE, None))
    assert names((await ask(first, request, version)).responses) == ["NONE"]
    second = await started(store)
    assert configs_of(second) == {"retention.ms": "1000", "max.message.bytes": "2000"}


@pytest.mark.parametrize(
    ("own", "change", "value"),
    [
        (None, (APPEND, "compact"), "delete,compact"),
        ("compact", (APPEND, "delete"), "compact,delete"),
        ("compact", (APPEND, "compact"), "compact"),
        ("delete, compact", (SUBTRACT, "delete"), "compact"),
        ("compact", (SUBTRACT, "delete"), "compact"),
        (None, (SUBTRACT, "delete"), ""),
    ],
)
@on_gated_store
async def test_a_list_grows_and_shrinks_from_the_value_that_counts(
    store: GatedStore, own: str | None, change: tuple[int, str], value: str
):
    broker = await started(store)
    await create(broker, "a", **({"cleanup_policy": own} if own is not None else {}))
    request = changing(("cleanup.policy", *change))
    assert names((await ask(broker, request, 1)).responses) == ["NONE"]
    assert configs_of(broker)["cleanup.policy"] == value
    topic = broker.state.topic_named("a")
    assert topic is not None
    assert broker.settings_of(topic).retention.deletes == ("delete" in value)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (changing(("retention.ms", SET, "soon")), "INVALID_CONFIG"),
        (changing(("no.such", SET, "1")), "INVALID_CONFIG"),
        (changing(("retention.ms", APPEND, "1")), "INVALID_CONFIG"),
        (changing(("no.such", SUBTRACT, "1")), "INVALID_CONFIG"),
        (changing(("cleanup.policy", APPEND, "burn")), "INVALID_CONFIG"),
        (changing(("retention.ms", SET, None)), "INVALID_REQUEST"),
        (changing(("cleanup.policy", APPEND, None)), "INVALID_REQUEST"),
        (changing(("retention.ms", 4, "1")), "INVALID_REQUEST"),
        (changing(("retention.ms", -1, "1")), "INVALID_REQUEST"),
        (
            changing(("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),
            "INVALID_REQUEST",
        ),
        (
            changing(("max.message.bytes", SET, "1"), ("retention.ms", SET, "soon")),
            "INVALID_CONFIG",
        ),
        (changing(("retention.ms", SET, "1"), name="nobody"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (
            changing(("num.partitions", SET, "1"), name=str(BROKER_ID), resource_type=BROKER),
            "INVALID_REQUEST",
        ),
    ],
)
@on_gated_store
async def test_a_wrong_change_is_refused_with_kafkas_error_and_changes_nothing(
    store: GatedStore, request_: IncrementalAlterConfigsRequest, error: str
):
    broker = await started(store)
    await create(broker, "a", retention_ms="1000")
    (result,) = (await ask(broker, request_, 1)).responses
    assert names([result]) == [error]
    assert result.error_message
    assert configs_of(broker) == {"retention.ms": "1000"}


@on_gated_store
async def test_deleting_what_was_not_set_is_no_error(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    response = await ask(broker, changing(("retention.ms", DELETE, "")), 1)
    assert names(response.responses) == ["NONE"]


@on_gated_store
async def test_validating_changes_nothing(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    request = changing(("retention.ms", SET, "1"), validate_only=True)
    assert names((await ask(broker, request, 1)).responses) == ["NONE"]
    assert configs_of(broker) == {}
