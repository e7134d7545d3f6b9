"""PlaceLane: store the broker that an administrator wants for a lane.

The response leaves when the wish is durable. The named broker then asks the owner for the lane.
While the named broker is away, the lane is placed as if there were no wish.
"""

from holdfast.broker.api import Api, ToController
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.topic_creation import control_durable, controller_refusal
from holdfast.cluster.facts import LanePlaced
from holdfast.protocol.api import ApiKey, ErrorCode, Refused
from holdfast.protocol.messages.place_lane import PlaceLaneRequest, PlaceLaneResponse

API = Api(key=ApiKey.PLACE_LANE, versions=range(1), forward_to=ToController())

NO_WISH = -1


async def handle(
    broker: Broker, request: PlaceLaneRequest, context: RequestContext
) -> PlaceLaneResponse:
    del context
    refused = controller_refusal(broker) or _problem(broker, request)
    if refused is None:
        broker.control.add(LanePlaced(request.lane, request.broker_id))
        refused = await control_durable(broker, request.timeout_ms)
    if refused is not None:
        return PlaceLaneResponse(error_code=refused.error, error_message=refused.message)
    if broker.membership is not None:
        broker.membership.news()
    return PlaceLaneResponse()


def _problem(broker: Broker, request: PlaceLaneRequest) -> Refused | None:
    if not 0 <= request.lane <= broker.state.lanes:
        return Refused(
            ErrorCode.INVALID_REQUEST,
            f"there is no lane {request.lane}: the lanes are 0 (control) to {broker.state.lanes}",
        )
    if request.broker_id != NO_WISH and request.broker_id not in broker.state.brokers:
        known = ", ".join(map(str, sorted(broker.state.brokers)))
        return Refused(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"there is no broker {request.broker_id}; the brokers are {known}",
        )
    return None
