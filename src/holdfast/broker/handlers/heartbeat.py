"""Heartbeat (12), versions 0 to 4. Answered at once: it decides nothing."""

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(broker: Broker, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    del context
    groups = broker.groups_of(request.group_id)
    problem = groups.problem()
    if problem is None:
        problem = groups.coordinator.heartbeat(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            groups.now(),
        )
    return HeartbeatResponse(error_code=problem)
