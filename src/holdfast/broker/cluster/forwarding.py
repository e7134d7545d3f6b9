"""Requests that only another broker can answer, and that are forwarded to it.

Owns how they are forwarded; a handler's declaration says which they are: those for the controller,
and commits and fetches of offsets. The latter are forwarded because some clients pass the error on
to their user if a group's coordinator has just changed. A request that another broker has forwarded
goes no further: if it cannot be answered here, its client asks again.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from holdfast.broker.api import ToController, ToCoordinator
from holdfast.broker.broker import Broker
from holdfast.broker.cluster.peer_network import PEER_CLIENT_ID
from holdfast.broker.context import RequestContext
from holdfast.broker.endpoints import Endpoint
from holdfast.broker.groups.lane_groups import lane_of
from holdfast.broker.topic_creation import hear_of_changes
from holdfast.client.refusals import BrokerUnavailable
from holdfast.identifiers import CONTROL_LANE, LaneId
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.message import Message

log = logging.getLogger("holdfast.broker")

TIMEOUT_S_DEFAULT = 30.0
MARGIN_S = 1.0
COORDINATOR_TIMEOUT_S = 5.0
COORDINATOR_TRIES = 20
COORDINATOR_PAUSE_S = 0.1
"""The pause between tries, while a coordinator is being handed over."""


def forward(
    broker: Broker, endpoint: Endpoint, message: Message, context: RequestContext
) -> Coroutine[Any, Any, Any] | None:
    """Return a coroutine that asks another broker, or None if this broker must answer.

    The coroutine returns the response, or None if there is none: then this broker must answer.
    """
    if broker.membership is None or context.client_id == PEER_CLIENT_ID:
        return None
    match endpoint.api.forward_to:
        case ToController():
            if not broker.is_controller:
                return _ask_controller(broker, endpoint, message, context)
        case ToCoordinator() as coordinator:
            lane = _lane_elsewhere(broker, coordinator.group_id(message))
            if lane is not None:
                return _ask_coordinator(broker, lane, endpoint, coordinator, message, context)
        case None:
            pass
    return None


def _lane_elsewhere(broker: Broker, group_id: str | None) -> LaneId | None:
    """Return the lane of a group that this broker does not coordinate, otherwise None."""
    if group_id is None or not broker.state.lanes:
        return None
    lane = lane_of(group_id, broker.state.lanes)
    return lane if lane not in broker.lanes else None


async def _ask_coordinator(
    broker: Broker,
    lane: LaneId,
    endpoint: Endpoint,
    coordinator: ToCoordinator,
    message: Message,
    context: RequestContext,
) -> Any:
    """Return the coordinator's response, or None if there is none.

    The request may be sent again: the declaration promises that it is safe to repeat.
    """
    for _ in range(COORDINATOR_TRIES):
        leader = broker.next_leader_of(lane)
        address = broker.address_of(leader.broker_id) if leader is not None else None
        if broker.network is not None and address is not None:
            try:
                answer = await broker.network.ask(
                    address,
                    message,
                    endpoint.response,
                    version=context.api_version,
                    timeout_s=COORDINATOR_TIMEOUT_S,
                )
            except BrokerUnavailable:
                return None
            if ErrorCode.NOT_COORDINATOR not in coordinator.error_codes(answer):
                return answer
        if lane in broker.lanes:
            return None
        await asyncio.sleep(COORDINATOR_PAUSE_S)
    return None


async def _ask_controller(
    broker: Broker, endpoint: Endpoint, message: Message, context: RequestContext
) -> Any:
    """Return the controller's response, or None if there is none.

    This broker reads the controller's changes before the response leaves, because the client may
    ask this broker next.
    """
    wait_s = getattr(message, "timeout_ms", TIMEOUT_S_DEFAULT * 1000) / 1000 + MARGIN_S
    try:
        answer = await broker.ask_leader(
            CONTROL_LANE,
            message,
            endpoint.response,
            version=context.api_version,
            timeout_s=wait_s,
        )
    except BrokerUnavailable as error:
        log.warning("request_not_forwarded api=%s error=%s", endpoint.api.key.name, error)
        return None
    await hear_of_changes(broker)
    return answer
