"""AllocateProducerIds: reserve a block of producer ids for another broker."""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.errors import HoldfastError
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

API = Api(key=ApiKey.ALLOCATE_PRODUCER_IDS, versions=range(1))


async def handle(
    broker: Broker, request: AllocateProducerIdsRequest, context: RequestContext
) -> AllocateProducerIdsResponse:
    del request, context
    try:
        first, end = await broker.producer_ids.reserve()
    except HoldfastError:
        return AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=end - first)
