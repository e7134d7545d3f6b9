"""DrainBroker: let others take this broker's lanes, and take none.

The response leaves at once. The lanes that are left show the progress. Draining ends when a request
takes it back, or with the process.
"""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.drain_broker import DrainBrokerRequest, DrainBrokerResponse

API = Api(key=ApiKey.DRAIN_BROKER, versions=range(1))


def handle(
    broker: Broker, request: DrainBrokerRequest, context: RequestContext
) -> DrainBrokerResponse:
    del context
    me = broker.settings.broker_id
    if request.broker_id != me:
        return DrainBrokerResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"this is broker {me}, not broker {request.broker_id}",
        )
    broker.is_draining = request.is_draining
    if broker.membership is not None:
        broker.membership.news()
    return DrainBrokerResponse()
