"""JoinGroup: join a classic group.

The response leaves when the generation is formed and durable.
"""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.groups.caller import Caller
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

API = Api(
    key=ApiKey.JOIN_GROUP,
    versions=range(10),
    deviations=(
        "A generation is durable before its members hear of it, so a new coordinator continues"
        " with it. Kafka keeps it in memory until the leader has synced.",
    ),
)


async def handle(
    broker: Broker, request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse:
    groups = broker.groups_of(request.group_id)
    if isinstance(groups, ErrorCode):
        return JoinGroupResponse(error_code=groups, member_id=request.member_id)
    caller = Caller(context.client_id or "", f"/{context.client_host}", context.api_version)
    return await groups.ask(
        request.group_id,
        lambda token, topics: groups.coordinator.join(request, caller, token, topics, groups.now()),
        lambda error: JoinGroupResponse(error_code=error, member_id=request.member_id),
    )
