"""FindCoordinator: the coordinator of a group or of a transactional id.

It is the owner of the lane of its name.
"""

import enum

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.protocol.api import ApiKey, ErrorCode, Refused
from holdfast.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

API = Api(
    key=ApiKey.FIND_COORDINATOR,
    versions=range(7),
    deviations=(
        "Share groups are not supported. They are refused with an error that is not retriable.",
    ),
)

BATCHED_SINCE = 4
NO_NODE = -1


class KeyType(enum.IntEnum):
    """The kind of thing that a key names."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


def handle(
    broker: Broker, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    refused = _refusal(request.key_type)
    if context.api_version >= BATCHED_SINCE:
        keys = request.coordinator_keys
        return FindCoordinatorResponse(
            coordinators=[_coordinator(broker, key, refused) for key in keys]
        )
    found = _coordinator(broker, request.key, refused)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _refusal(key_type: int) -> Refused | None:
    match key_type:
        case KeyType.GROUP | KeyType.TRANSACTION:
            return None
        case KeyType.SHARE:
            return Refused(ErrorCode.INVALID_REQUEST, "share groups are not supported")
        case _:
            return Refused(ErrorCode.INVALID_REQUEST, f"there is no key type {key_type}")


def _coordinator(broker: Broker, key: str, refused: Refused | None) -> Coordinator:
    if refused is not None:
        return Coordinator(
            key=key,
            node_id=NO_NODE,
            host="",
            port=NO_NODE,
            error_code=refused.error,
            error_message=refused.message,
        )
    leader = broker.leader_of(broker.lane_of_name(key)) if broker.state.lanes else None
    report = broker.report_of(leader.broker_id) if leader is not None else None
    if report is None:
        return Coordinator(
            key=key,
            node_id=NO_NODE,
            host="",
            port=NO_NODE,
            error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
            error_message=f"no broker coordinates {key[:249]!r} now; try again",
        )
    return Coordinator(key=key, node_id=report.broker_id, host=report.host, port=report.port)
