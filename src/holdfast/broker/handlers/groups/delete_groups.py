"""DeleteGroups: delete groups that have no members."""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

API = Api(key=ApiKey.DELETE_GROUPS, versions=range(3))


async def handle(
    broker: Broker, request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse:
    del context
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=name, error_code=await _delete(broker, name))
            for name in request.groups_names
        ]
    )


async def _delete(broker: Broker, group_id: str) -> ErrorCode:
    groups = broker.groups_of(group_id)
    if isinstance(groups, ErrorCode):
        return groups
    problem = groups.problem()
    if problem is not None:
        return problem
    error = groups.coordinator.delete(group_id)
    return await groups.settled(group_id) or error
