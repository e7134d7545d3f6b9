"""Heartbeat: stay in a classic group.

A success leaves at once, because it gives the member nothing. A refusal waits for a proved claim if
a newer coordinator might not refuse.
"""

from collections.abc import Coroutine
from typing import Any

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.groups.lane_groups import LaneGroups
from holdfast.broker.lanes.leadership import coordinator_error, needs_proof
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

API = Api(key=ApiKey.HEARTBEAT, versions=range(5))


def handle(
    broker: Broker, request: HeartbeatRequest, context: RequestContext
) -> HeartbeatResponse | Coroutine[Any, Any, HeartbeatResponse]:
    del context
    groups = broker.groups_of(request.group_id)
    if isinstance(groups, ErrorCode):
        return HeartbeatResponse(error_code=groups)
    problem = groups.problem()
    if problem is None:
        problem = groups.coordinator.heartbeat(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            groups.now(),
        )
    if needs_proof(groups.lane, problem):
        return _refused(groups, problem)
    return HeartbeatResponse(error_code=problem)


async def _refused(groups: LaneGroups, problem: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=await coordinator_error(groups.lane, problem))
