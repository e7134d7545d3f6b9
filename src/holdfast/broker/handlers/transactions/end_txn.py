"""EndTxn: commit or abort a transaction.

The response leaves when the decision is durable. Since version 5 (KIP-890) the producer continues
under the epoch in the response, so a request of the previous transaction can never reach the next
one.
"""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.lanes.leadership import coordinator_error, coordinator_problem
from holdfast.broker.transactions.lane_transactions import LaneTransactions
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from holdfast.transactions.decide import Ending, FreshIdNeeded, GoOn, ProducerIdAndEpoch, end

API = Api(
    key=ApiKey.END_TXN,
    versions=range(6),
    deviations=(
        "Waits some seconds while the previous transaction is ending. Kafka refuses at once.",
    ),
)

EPOCH_BUMP_SINCE = 5
FENCED_SINCE = 2


async def handle(broker: Broker, request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    here = broker.transactions_of(request.transactional_id)
    if isinstance(here, ErrorCode):
        return EndTxnResponse(error_code=here)
    decided = await _decide(here, request, context.api_version)
    if isinstance(decided, ErrorCode):
        decided = await coordinator_error(here.lane, decided)
        if decided is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_SINCE:
            decided = ErrorCode.INVALID_PRODUCER_EPOCH
        return EndTxnResponse(error_code=decided)
    return EndTxnResponse(producer_id=decided.producer_id, producer_epoch=decided.producer_epoch)


async def _decide(
    here: LaneTransactions, request: EndTxnRequest, version: int
) -> ProducerIdAndEpoch | ErrorCode:
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    problem = here.problem()
    if problem is not None:
        return problem
    await here.wait_for_end(request.transactional_id)
    decided = await here.with_fresh_id(
        lambda fresh_id: end(
            here.known(request.transactional_id),
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            committed=request.committed,
            bumps_epoch=version >= EPOCH_BUMP_SINCE,
            fresh_id=fresh_id,
            now_ms=here.now_ms(),
        )
    )
    if isinstance(decided, ErrorCode | FreshIdNeeded):
        return decided if isinstance(decided, ErrorCode) else ErrorCode.COORDINATOR_NOT_AVAILABLE
    problem = here.problem()
    if problem is not None:
        return problem
    if isinstance(decided, Ending):
        here.decide(decided.fact)
        transaction = here.known(request.transactional_id)
        if transaction is not None:
            here.finish(transaction)
    problem = await here.settled(request.transactional_id)
    if problem is None and isinstance(decided, GoOn):
        # A newer coordinator may know of a later transaction, which has not ended.
        problem = await coordinator_problem(here.lane)
    return problem if problem is not None else decided.producer
