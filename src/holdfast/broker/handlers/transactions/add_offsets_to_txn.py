"""AddOffsetsToTxn: add a group whose offsets the transaction will commit."""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.lanes.leadership import coordinator_error
from holdfast.broker.transactions.lane_transactions import LaneTransactions
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from holdfast.transactions.decide import ProducerIdAndEpoch

API = Api(
    key=ApiKey.ADD_OFFSETS_TO_TXN,
    versions=range(5),
    deviations=(
        "Waits some seconds while the previous transaction is ending. Kafka refuses at once.",
    ),
)

FENCED_SINCE = 2


async def handle(
    broker: Broker, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    here = broker.transactions_of(request.transactional_id)
    if isinstance(here, ErrorCode):
        return AddOffsetsToTxnResponse(error_code=here)
    error = await coordinator_error(here.lane, await _add(here, request))
    if error is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_SINCE:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=error)


async def _add(here: LaneTransactions, request: AddOffsetsToTxnRequest) -> ErrorCode:
    if not request.transactional_id or not request.group_id:
        return ErrorCode.INVALID_REQUEST
    await here.wait_for_end(request.transactional_id)
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    problem = here.extend(request.transactional_id, producer, groups=[request.group_id])
    return problem or await here.settled(request.transactional_id) or ErrorCode.NONE
