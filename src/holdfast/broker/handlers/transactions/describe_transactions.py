"""DescribeTransactions: the state of transactions."""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)

API = Api(key=ApiKey.DESCRIBE_TRANSACTIONS, versions=range(1))


def handle(
    broker: Broker, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    del context
    return DescribeTransactionsResponse(
        transaction_states=[_described(broker, name) for name in request.transactional_ids]
    )


def _described(broker: Broker, name: str) -> DescribedTransaction:
    if not name:
        return DescribedTransaction(error_code=ErrorCode.INVALID_REQUEST, transactional_id=name)
    here = broker.transactions_of(name)
    if isinstance(here, ErrorCode):
        return DescribedTransaction(error_code=here, transactional_id=name)
    problem = here.problem()
    known = here.known(name)
    if problem is not None or known is None:
        error = problem or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return DescribedTransaction(error_code=error, transactional_id=name)
    topics: dict[str, list[int]] = {}
    for partition in sorted(known.partitions, key=str):
        topic = broker.state.usable(partition.topic_id)
        if topic is not None:
            topics.setdefault(topic.name, []).append(partition.partition)
    return DescribedTransaction(
        transactional_id=name,
        transaction_state=known.phase.value,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=[TopicData(topic=topic, partitions=each) for topic, each in topics.items()],
    )
