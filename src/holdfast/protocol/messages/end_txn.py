"""EndTxn (26), versions 0 to 5: commit or abort a transaction."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import boolean, int16, int32, int64, string
from holdfast.protocol.message import Message


class EndTxnRequest(Message, api_key=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Message, api_key=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1, since=5)
    producer_epoch: int = int16(default=-1, since=5)
