"""LaneHandOver: release a lane to the broker that asks.

The response leaves when the release is durable, so the next owner need not wait for this one.
"""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.identifiers import BrokerId, LaneId
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.lane_hand_over import LaneHandOverRequest, LaneHandOverResponse

API = Api(key=ApiKey.LANE_HAND_OVER, versions=range(1))


async def handle(
    broker: Broker, request: LaneHandOverRequest, context: RequestContext
) -> LaneHandOverResponse:
    del context
    given = await broker.hand_over(
        LaneId(request.lane), request.leader_epoch, BrokerId(request.to_broker_id)
    )
    if given:
        return LaneHandOverResponse()
    return LaneHandOverResponse(
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        error_message=f"this broker did not release lane {request.lane}: it does not lead the lane"
        f" in leader epoch {request.leader_epoch}, or the store does not answer",
    )
