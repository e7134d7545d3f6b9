"""SyncGroup: hand in or get the assignment of a classic group.

The response leaves when the assignment is durable and the claim is proved.
"""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

API = Api(key=ApiKey.SYNC_GROUP, versions=range(6))


async def handle(
    broker: Broker, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse:
    del context
    groups = broker.groups_of(request.group_id)
    if isinstance(groups, ErrorCode):
        return SyncGroupResponse(error_code=groups)
    return await groups.ask(
        request.group_id,
        lambda token, _: groups.coordinator.sync(request, token, groups.now()),
        lambda error: SyncGroupResponse(error_code=error),
    )
