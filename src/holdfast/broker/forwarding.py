"""Requests that only the controller can answer, sent on to it by any other broker.

Owns which those are. A request that another broker has sent on goes no further: where it is not
answered here, its client asks again.
"""

import logging
from typing import Any

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.peer_network import PEER_CLIENT_ID
from holdfast.client.refusals import BrokerUnavailable
from holdfast.errors import HoldfastError
from holdfast.identifiers import CONTROL_LANE
from holdfast.protocol.api import ApiKey
from holdfast.protocol.message import Message
from holdfast.protocol.schemas import SCHEMAS

log = logging.getLogger("holdfast.broker")

TO_CONTROLLER = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
    }
)
TIMEOUT_S_DEFAULT = 30.0
MARGIN_S = 1.0


def is_for_controller(broker: Broker, message: Message, context: RequestContext) -> bool:
    """Whether a request goes to another broker."""
    return (
        message.API_KEY in TO_CONTROLLER
        and broker.membership is not None
        and not broker.is_controller
        and context.client_id != PEER_CLIENT_ID
    )


async def forwarded(broker: Broker, message: Message, context: RequestContext) -> Any:
    """The controller's answer; None where there is none, and this broker is to refuse it itself.

    What the controller has changed is known here before the answer leaves: who asked may ask this
    broker next.
    """
    answer_type = SCHEMAS[ApiKey(message.API_KEY)][1]
    wait_s = getattr(message, "timeout_ms", TIMEOUT_S_DEFAULT * 1000) / 1000 + MARGIN_S
    try:
        answer = await broker.ask_leader(
            CONTROL_LANE, message, answer_type, version=context.api_version, timeout_s=wait_s
        )
    except BrokerUnavailable as error:
        log.warning("not_forwarded api=%s error=%s", ApiKey(message.API_KEY).name, error)
        return None
    try:
        await broker.look()
    except HoldfastError as error:
        log.warning("control_lane_not_read error=%s", error)
    return answer
