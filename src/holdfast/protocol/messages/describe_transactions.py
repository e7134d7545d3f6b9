"""DescribeTransactions (65), version 0: state of transactions by id."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import INT32, STRING, array, int16, int32, int64, string
from holdfast.protocol.message import Message, Struct


class DescribeTransactionsRequest(
    Message, api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+"
):
    transactional_ids: list[str] = array(STRING)


class TopicData(Struct):
    topic: str = string()
    partitions: list[int] = array(INT32)


class DescribedTransaction(Struct):
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


class DescribeTransactionsResponse(
    Message, api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+"
):
    throttle_time_ms: int = int32()
    transaction_states: list[DescribedTransaction] = array(DescribedTransaction)
