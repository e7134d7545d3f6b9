"""AbortTransaction: abort a transaction that this broker coordinates."""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.transactions.aborting import abort_here
from holdfast.identifiers import PartitionId
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.abort_transaction import (
    AbortTransactionRequest,
    AbortTransactionResponse,
)
from holdfast.transactions.decide import ProducerIdAndEpoch

API = Api(key=ApiKey.ABORT_TRANSACTION, versions=range(1))


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
