"""ListTransactions: the transactions that this broker coordinates.

A pattern must match the whole transactional id, as in Kafka.
"""

import asyncio
from collections.abc import Iterable

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.expressions import BadExpression, Expression
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from holdfast.transactions.state import Transaction, TransactionPhase

API = Api(
    key=ApiKey.LIST_TRANSACTIONS,
    versions=range(3),
    deviations=(
        "Patterns are RE2's, as in Kafka, but have at most 1,000 characters and 2,500"
        " instructions when compiled.",
        "A transactional id of more than 1,000 characters matches no pattern.",
    ),
)

NO_DURATION = -1
SLICE_TRANSACTIONS = 1_000
"""How many transactional ids are looked at before other requests have their turn."""


async def handle(
    broker: Broker, request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    del context
    pattern: Expression | None = None
    if request.transactional_id_pattern:
        try:
            pattern = Expression(request.transactional_id_pattern)
        except BadExpression:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    found: list[ListedTransaction] = []
    for here in broker.transactions.values():
        problem = here.problem()
        if problem is not None:
            return ListTransactionsResponse(error_code=problem)
        known = list(here.all())
        for start in range(0, len(known), SLICE_TRANSACTIONS):
            part = known[start : start + SLICE_TRANSACTIONS]
            found += _listed(part, request, here.now_ms())
            if len(known) > SLICE_TRANSACTIONS:
                await asyncio.sleep(0)
    if pattern is not None:
        names = [state.transactional_id for state in found]
        wanted = set(await broker.matcher.matching(pattern, names))
        found = [state for state in found if state.transactional_id in wanted]
    phases = {phase.value for phase in TransactionPhase}
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in phases],
        transaction_states=found,
    )


def _listed(
    transactions: Iterable[Transaction], request: ListTransactionsRequest, now_ms: int
) -> list[ListedTransaction]:
    return [
        ListedTransaction(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.phase.value,
        )
        for transaction in transactions
        if _is_wanted(transaction, request, now_ms)
    ]


def _is_wanted(transaction: Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    states, ids = request.state_filters, request.producer_id_filters
    lasts_ms = now_ms - transaction.started_ms if transaction.started_ms >= 0 else NO_DURATION
    return (
        (not states or transaction.phase.value in states)
        and (not ids or transaction.producer_id in ids)
        and lasts_ms >= request.duration_filter
    )
