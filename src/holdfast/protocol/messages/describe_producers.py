"""DescribeProducers (61), version 0: the active producers of partitions."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import INT32, array, int16, int32, int64, nullable_string, string
from holdfast.protocol.message import Message, Struct


class DescribeProducersTopic(Struct):
    name: str = string()
    partition_indexes: list[int] = array(INT32)


class DescribeProducersRequest(
    Message, api_key=ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+"
):
    topics: list[DescribeProducersTopic] = array(DescribeProducersTopic)


class ActiveProducer(Struct):
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class PartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    active_producers: list[ActiveProducer] = array(ActiveProducer)


class TopicResponse(Struct):
    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


class DescribeProducersResponse(
    Message, api_key=ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+"
):
    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
