"""Requests that only another broker can answer, and that are forwarded to it.

Owns which requests these are: those for the controller, and commits and fetches of offsets. The
latter are forwarded because some clients pass the error on to their user if a group's coordinator
has just changed. A request that another broker has forwarded goes no further: if it cannot be
answered here, its client asks again.
"""

import asyncio
import logging
from typing import Any

from holdfast.broker.broker import Broker
from holdfast.broker.cluster.peer_network import PEER_CLIENT_ID
from holdfast.broker.context import RequestContext
from holdfast.broker.groups.lane_groups import lane_of
from holdfast.broker.topic_creation import hear_of_changes
from holdfast.client.refusals import BrokerUnavailable
from holdfast.identifiers import CONTROL_LANE, LaneId
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.message import Message
from holdfast.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from holdfast.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from holdfast.protocol.schemas import SCHEMAS

log = logging.getLogger("holdfast.broker")

TO_CONTROLLER = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.PLACE_LANE,
    }
)
TIMEOUT_S_DEFAULT = 30.0
MARGIN_S = 1.0
COORDINATOR_TIMEOUT_S = 5.0
COORDINATOR_TRIES = 20
COORDINATOR_PAUSE_S = 0.1
"""The pause between tries, while a coordinator is being handed over."""


def coordinator_elsewhere(
    broker: Broker, message: Message, context: RequestContext
) -> LaneId | None:
    """Return the lane of a request's group if the request must be forwarded, otherwise None."""
    if broker.membership is None or context.client_id == PEER_CLIENT_ID:
        return None
    group_id: str | None = None
    if isinstance(message, OffsetCommitRequest):
        group_id = message.group_id
    elif isinstance(message, OffsetFetchRequest):
        groups = [each.group_id for each in message.groups] or [message.group_id]
        group_id = groups[0] if len(groups) == 1 else None
    if group_id is None or not broker.state.lanes:
        return None
    lane = lane_of(group_id, broker.state.lanes)
    return lane if lane not in broker.lanes else None


async def by_coordinator(
    broker: Broker, lane: LaneId, message: Message, context: RequestContext
) -> Any:
    """Return the coordinator's response, or None if there is none and this broker must refuse.

    The request may be sent again: commits and fetches of offsets are safe to repeat.
    """
    answer_type = SCHEMAS[ApiKey(message.API_KEY)][1]
    for _ in range(COORDINATOR_TRIES):
        leader = broker.next_leader_of(lane)
        address = broker.address_of(leader.broker_id) if leader is not None else None
        if broker.network is not None and address is not None:
            try:
                answer = await broker.network.ask(
                    address,
                    message,
                    answer_type,
                    version=context.api_version,
                    timeout_s=COORDINATOR_TIMEOUT_S,
                )
            except BrokerUnavailable:
                return None
            if not _is_not_coordinator(answer):
                return answer
        if lane in broker.lanes:
            return None
        await asyncio.sleep(COORDINATOR_PAUSE_S)
    return None


def _is_not_coordinator(answer: Message) -> bool:
    if isinstance(answer, OffsetCommitResponse):
        codes = [part.error_code for topic in answer.topics for part in topic.partitions]
    elif isinstance(answer, OffsetFetchResponse):
        codes = [answer.error_code, *(group.error_code for group in answer.groups)]
    else:
        codes = []
    return ErrorCode.NOT_COORDINATOR in codes


def is_for_controller(broker: Broker, message: Message, context: RequestContext) -> bool:
    """True if a request must be forwarded to the controller."""
    return (
        message.API_KEY in TO_CONTROLLER
        and broker.membership is not None
        and not broker.is_controller
        and context.client_id != PEER_CLIENT_ID
    )


async def forwarded(broker: Broker, message: Message, context: RequestContext) -> Any:
    """Return the controller's response, or None if there is none and this broker must refuse.

    This broker reads the controller's changes before the response leaves, because the client may
    ask this broker next.
    """
    answer_type = SCHEMAS[ApiKey(message.API_KEY)][1]
    wait_s = getattr(message, "timeout_ms", TIMEOUT_S_DEFAULT * 1000) / 1000 + MARGIN_S
    try:
        answer = await broker.ask_leader(
            CONTROL_LANE, message, answer_type, version=context.api_version, timeout_s=wait_s
        )
    except BrokerUnavailable as error:
        log.warning("request_not_forwarded api=%s error=%s", ApiKey(message.API_KEY).name, error)
        return None
    await hear_of_changes(broker)
    return answer
