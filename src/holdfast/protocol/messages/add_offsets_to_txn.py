"""AddOffsetsToTxn (25), versions 0 to 4: add the offsets of a group to a transaction."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import int16, int32, int64, string
from holdfast.protocol.message import Message


class AddOffsetsToTxnRequest(
    Message, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+"
):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(
    Message, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+"
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
