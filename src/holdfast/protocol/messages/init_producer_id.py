"""InitProducerId (22), versions 0 to 6: get a producer id and its epoch."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import boolean, int16, int32, int64, nullable_string
from holdfast.protocol.message import Message


class InitProducerIdRequest(
    Message, api_key=ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+"
):
    transactional_id: str | None = nullable_string()
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(default=-1, since=3)
    producer_epoch: int = int16(default=-1, since=3)
    enable_2pc: bool = boolean(since=6)
    keep_prepared_txn: bool = boolean(since=6)


class InitProducerIdResponse(
    Message, api_key=ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+"
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64(default=-1, since=6)
    ongoing_txn_producer_epoch: int = int16(default=-1, since=6)
