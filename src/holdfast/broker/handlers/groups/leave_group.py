"""LeaveGroup: leave by member id, or by group.instance.id for static members."""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)

API = Api(key=ApiKey.LEAVE_GROUP, versions=range(6))

BATCHED_SINCE = 3


async def handle(
    broker: Broker, request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse:
    groups = broker.groups_of(request.group_id)
    if isinstance(groups, ErrorCode):
        return LeaveGroupResponse(error_code=groups)
    problem = groups.problem()
    if problem is not None:
        return LeaveGroupResponse(error_code=problem)
    is_batched = context.api_version >= BATCHED_SINCE
    leaving = (
        [(item.member_id, item.group_instance_id) for item in request.members]
        if is_batched
        else [(request.member_id, None)]
    )
    errors = groups.coordinator.leave(request.group_id, leaving, groups.now())
    problem = await groups.settled(request.group_id)
    if problem is not None:
        return LeaveGroupResponse(error_code=problem)
    if not is_batched:
        return LeaveGroupResponse(error_code=errors[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=error)
            for (member_id, instance_id), error in zip(leaving, errors, strict=True)
        ]
    )
