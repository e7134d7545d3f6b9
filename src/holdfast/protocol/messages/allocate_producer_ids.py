"""AllocateProducerIds (67), version 0: a broker asks the controller for a block of producer ids."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import int16, int32, int64
from holdfast.protocol.message import Message


class AllocateProducerIdsRequest(
    Message, api_key=ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+"
):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class AllocateProducerIdsResponse(
    Message, api_key=ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+"
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()
