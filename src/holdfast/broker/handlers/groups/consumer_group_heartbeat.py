"""ConsumerGroupHeartbeat: join, stay in and leave a consumer group (KIP-848).

The response leaves when the decision is durable: a coordinator that takes over knows each epoch and
each partition that a member was given.
"""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.expressions import expression_problem
from holdfast.groups.caller import Caller
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

API = Api(
    key=ApiKey.CONSUMER_GROUP_HEARTBEAT,
    versions=range(2),
    deviations=(
        "The response leaves when the decision is durable.",
        "Regular expressions are RE2's, as in Kafka, but have at most 1,000 characters and"
        " 2,500 instructions when compiled, and no `\\C`.",
        "A static member that joins again under its own member id, because the response to its"
        " join was lost, need not leave first.",
        "A classic group that is just assigning partitions is upgraded afterwards. Until then"
        " the error is COORDINATOR_LOAD_IN_PROGRESS.",
        "A group whose assignor tells members more than their partitions (Kafka Streams) is not"
        " upgraded.",
    ),
)


async def handle(
    broker: Broker, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    groups = broker.groups_of(request.group_id)
    if isinstance(groups, ErrorCode):
        return ConsumerGroupHeartbeatResponse(error_code=groups)
    caller = Caller(context.client_id or "", f"/{context.client_host}", context.api_version)
    return await groups.ask(
        request.group_id,
        lambda token, topics: groups.coordinator.consumer_heartbeat(
            request, caller, token, topics, groups.now()
        ),
        lambda error: ConsumerGroupHeartbeatResponse(error_code=error),
        expression=_expression(request),
    )


def _expression(request: ConsumerGroupHeartbeatRequest) -> str | None:
    """Return the expression to match before the decision. An invalid one is refused then."""
    text = request.subscribed_topic_regex
    return text if text and expression_problem(text) is None else None
