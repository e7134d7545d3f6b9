"""ListTransactions (66), versions 0 to 2."""

import re

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from holdfast.transactions.state import Phase, Transaction

NO_DURATION = -1


def handle(
    broker: Broker, request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    del context
    phases = {phase.value for phase in Phase}
    pattern: re.Pattern[str] | None = None
    if request.transactional_id_pattern:
        try:
            pattern = re.compile(request.transactional_id_pattern)
        except re.error:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    found: list[TransactionState] = []
    for here in broker.transactions.values():
        problem = here.problem()
        if problem is not None:
            return ListTransactionsResponse(error_code=problem)
        found += [
            TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.phase.value,
            )
            for transaction in here.all()
            if _is_wanted(transaction, request, pattern, here.now_ms())
        ]
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in phases],
        transaction_states=found,
    )


def _is_wanted(
    transaction: Transaction,
    request: ListTransactionsRequest,
    pattern: re.Pattern[str] | None,
    now_ms: int,
) -> bool:
    states, ids = request.state_filters, request.producer_id_filters
    lasts_ms = now_ms - transaction.started_ms if transaction.started_ms >= 0 else NO_DURATION
    return (
        (not states or transaction.phase.value in states)
        and (not ids or transaction.producer_id in ids)
        and lasts_ms >= request.duration_filter
        and (pattern is None or pattern.fullmatch(transaction.transactional_id) is not None)
    )
