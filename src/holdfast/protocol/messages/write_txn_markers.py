"""WriteTxnMarkers (27), versions 1 to 2: a coordinator has leaders write transaction markers."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import INT32, array, boolean, int8, int16, int32, int64, string
from holdfast.protocol.message import Message, Struct


class WritableTxnMarkerTopic(Struct):
    name: str = string()
    partition_indexes: list[int] = array(INT32)


class WritableTxnMarker(Struct):
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(since=2)


class WriteTxnMarkersRequest(
    Message, api_key=ApiKey.WRITE_TXN_MARKERS, versions="1-2", flexible="1+"
):
    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Struct):
    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Struct):
    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(
    Message, api_key=ApiKey.WRITE_TXN_MARKERS, versions="1-2", flexible="1+"
):
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
