"""InitProducerId (22), versions 0 to 5.

Without a transactional id: a new producer id with epoch 0, whatever id the producer had before,
as Kafka does. Ids come from blocks that are reserved in the control lane, so none is ever given
twice.
Deviations: transactions are not served yet, so a transactional id is refused for good with
UNSUPPORTED_VERSION (the response has no room for a message).
"""

import asyncio

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext, error_code
from holdfast.broker.topic_creation import WAIT_MS_DEFAULT, lane_refusal, refusal_of
from holdfast.errors import HoldfastError
from holdfast.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

NO_PRODUCER = -1
RETRY = "COORDINATOR_LOAD_IN_PROGRESS"
"""What Kafka answers while it has no block of ids; producers try again, also idempotent ones."""


async def handle(
    broker: Broker, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    del context
    if request.transactional_id is not None:
        return _refused("UNSUPPORTED_VERSION" if request.transactional_id else "INVALID_REQUEST")
    if (request.producer_id == NO_PRODUCER) != (request.producer_epoch == NO_PRODUCER):
        return _refused("INVALID_REQUEST")
    ended = lane_refusal(broker.control, fenced=RETRY)
    if ended is not None:
        return _refused(ended.error)
    try:
        async with asyncio.timeout(WAIT_MS_DEFAULT / 1000):
            producer_id = await broker.new_producer_id()
    except TimeoutError:
        return _refused(RETRY)
    except HoldfastError as error:
        return _refused(refusal_of(error, fenced=RETRY).error)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(error: str) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=error_code(error), producer_id=NO_PRODUCER, producer_epoch=-1
    )
