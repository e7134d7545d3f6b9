"""JoinTransaction: add parts on another broker to a transaction."""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.transactions.joining import joined
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.join_transaction import (
    JoinTransactionRequest,
    JoinTransactionResponse,
)

API = Api(key=ApiKey.JOIN_TRANSACTION, versions=range(1))


async def handle(
    broker: Broker, request: JoinTransactionRequest, context: RequestContext
) -> JoinTransactionResponse:
    del context
    here = broker.transactions_of(request.transactional_id)
    if isinstance(here, ErrorCode):
        return JoinTransactionResponse(error_code=here)
    return await joined(here, request)
