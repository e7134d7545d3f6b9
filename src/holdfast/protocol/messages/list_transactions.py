"""ListTransactions (66), versions 0 to 2: the transactions that a broker coordinates."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import (
    INT64,
    STRING,
    array,
    int16,
    int32,
    int64,
    nullable_string,
    string,
)
from holdfast.protocol.message import Message, Struct


class ListTransactionsRequest(
    Message, api_key=ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+"
):
    state_filters: list[str] = array(STRING)
    producer_id_filters: list[int] = array(INT64)
    duration_filter: int = int64(default=-1, since=1)
    transactional_id_pattern: str | None = nullable_string(since=2)


class ListedTransaction(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(
    Message, api_key=ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+"
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(STRING)
    transaction_states: list[ListedTransaction] = array(ListedTransaction)
