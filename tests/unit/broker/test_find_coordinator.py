"""FindCoordinator: groups are here; transactions and share groups are not supported."""

import pytest
from tests.unit.broker.administered import (
    BROKER_ID,
    GatedStore,
    ask,
    names,
    on_gated_store,
    started,
)

from holdfast.protocol.messages.find_coordinator import FindCoordinatorRequest

GROUP, TRANSACTION, SHARE = range(3)


@pytest.mark.parametrize("version", range(4))
@on_gated_store
async def test_a_group_is_coordinated_by_this_broker(store: GatedStore, version: int):
    broker = await started(store)
    response = await ask(broker, FindCoordinatorRequest(key="g"), version)
    assert names([response]) == ["NONE"]
    assert (response.node_id, response.host, response.port) == (BROKER_ID, "broker.test", 9092)


@pytest.mark.parametrize("version", range(4, 7))
@on_gated_store
async def test_many_groups_are_found_in_one_request(store: GatedStore, version: int):
    broker = await started(store)
    request = FindCoordinatorRequest(coordinator_keys=["g", "h"])
    found = (await ask(broker, request, version)).coordinators
    assert [(c.key, c.node_id, c.host, c.port) for c in found] == [
        ("g", BROKER_ID, "broker.test", 9092),
        ("h", BROKER_ID, "broker.test", 9092),
    ]
    assert names(found) == ["NONE", "NONE"]


@pytest.mark.parametrize(
    ("key_type", "error", "message"),
    [
        (SHARE, "INVALID_REQUEST", "share groups are not supported"),
        (9, "INVALID_REQUEST", "there is no key type 9"),
    ],
)
@on_gated_store
async def test_what_is_not_served_is_refused_with_a_reason(
    store: GatedStore, key_type: int, error: str, message: str
):
    broker = await started(store)
    single = await ask(broker, FindCoordinatorRequest(key="k", key_type=key_type), 3)
    batched = await ask(
        broker, FindCoordinatorRequest(coordinator_keys=["k"], key_type=key_type), 6
    )
    for found in (single, batched.coordinators[0]):
        assert (names([found]), found.error_message) == ([error], message)
        assert (found.node_id, found.host, found.port) == (-1, "", -1)
