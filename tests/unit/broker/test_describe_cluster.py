"""DescribeCluster: who is there, and who is the controller."""

import pytest
from tests.unit.broker.administered import (
    BROKER_ID,
    GatedStore,
    ask,
    names,
    on_gated_store,
    started,
)

from holdfast.protocol.messages.describe_cluster import DescribeClusterRequest


@pytest.mark.parametrize("version", range(3))
@on_gated_store
async def test_this_broker_is_there_and_is_the_controller(store: GatedStore, version: int):
    broker = await started(store, rack="r1")
    response = await ask(broker, DescribeClusterRequest(), version)
    assert response.cluster_id == broker.state.cluster_id != ""
    assert response.controller_id == BROKER_ID
    (shown,) = response.brokers
    assert (shown.broker_id, shown.host, shown.port) == (BROKER_ID, "broker.test", 9092)
    assert shown.rack == "r1"
    assert response.cluster_authorized_operations == -2147483648


@on_gated_store
async def test_the_cluster_keeps_its_id_and_shows_its_old_broker_as_fenced(store: GatedStore):
    first = await started(store, broker_id=1)
    cluster_id = first.state.cluster_id
    second = await started(store, broker_id=2)
    plain = await ask(second, DescribeClusterRequest(), 2)
    assert plain.cluster_id == cluster_id
    assert [broker.broker_id for broker in plain.brokers] == [2]
    every = await ask(second, DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert {b.broker_id: b.is_fenced for b in every.brokers} == {1: True, 2: False}


@pytest.mark.parametrize(
    ("endpoint_type", "error"),
    [(2, "MISMATCHED_ENDPOINT_TYPE"), (0, "UNSUPPORTED_ENDPOINT_TYPE")],
)
@on_gated_store
async def test_another_kind_of_endpoint_is_not_here(
    store: GatedStore, endpoint_type: int, error: str
):
    broker = await started(store)
    response = await ask(broker, DescribeClusterRequest(endpoint_type=endpoint_type), 1)
    assert names([response]) == [error]
    assert response.error_message
    assert response.brokers == []


@on_gated_store
async def test_the_operations_are_told_to_those_who_ask(store: GatedStore):
    broker = await started(store)
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    response = await ask(broker, request, 1)
    describe, alter = 1 << 8, 1 << 7
    assert response.cluster_authorized_operations & describe
    assert response.cluster_authorized_operations & alter
