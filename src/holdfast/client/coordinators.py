"""Finding the coordinator of a group or a transactional id, and sending requests to it.

Owns FindCoordinator, but not the requests that follow. A request goes to the coordinator, and
after a change to the next coordinator, until it is answered.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.client.cluster import Cluster
from holdfast.client.connection import BrokerConnection
from holdfast.client.refusals import BrokerUnavailable, raise_for
from holdfast.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

T = TypeVar("T")

BATCHED_SINCE = 4
GROUP_KEY = 0
TRANSACTION_KEY = 1
KINDS = {GROUP_KEY: "group", TRANSACTION_KEY: "transactional id"}


async def ask_coordinator(
    cluster: Cluster,
    key: str,
    ask: Callable[[BrokerConnection], Awaitable[T]],
    *,
    key_type: int = GROUP_KEY,
    deadline_ms: int | None = None,
) -> T:
    """Ask the coordinator of this group or transactional id; retry errors that may pass."""

    async def attempt() -> T:
        return await ask(await coordinator(cluster, key, key_type=key_type))

    return await cluster.patiently(attempt, f"{KINDS[key_type]} {key!r}", deadline_ms=deadline_ms)


async def coordinator(cluster: Cluster, key: str, *, key_type: int = GROUP_KEY) -> BrokerConnection:
    """Ask any broker for the coordinator, and return a connection to it."""
    connection = await cluster.any_connection()
    version = connection.version_for(FindCoordinatorRequest)
    if version >= BATCHED_SINCE:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    else:
        request = FindCoordinatorRequest(key=key, key_type=key_type)
    response = await connection.request(request, FindCoordinatorResponse, version=version)
    what = f"the coordinator of {KINDS[key_type]} {key!r}"
    if version >= BATCHED_SINCE and not response.coordinators:
        raise BrokerUnavailable(f"{connection.address} says nothing of {what}")
    found = response.coordinators[0] if version >= BATCHED_SINCE else response
    raise_for(found.error_code, what, found.error_message)
    await cluster.refresh([])
    return await cluster.broker(found.node_id)
