"""AbortTransaction (10006), version 0: abort a transaction that this broker coordinates."""

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.transactions.aborting import abort_here
from holdfast.identifiers import PartitionId
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.abort_transaction import (
    AbortTransactionRequest,
    AbortTransactionResponse,
)
from holdfast.transactions.decide import ProducerIdAndEpoch


async def handle(
    broker: Broker, request: AbortTransactionRequest, context: RequestContext
) -> AbortTransactionResponse:
    del context
    found = await abort_here(
        broker,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        PartitionId(request.topic_id, request.partition),
    )
    return AbortTransactionResponse(
        error_code=found.outcome or ErrorCode.NONE,
        is_known=found.outcome is not None,
        lanes=sorted(found.lanes),
    )
