"""Produce (0), versions 3 to 13: append record batches to partitions."""

from uuid import UUID

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import (
    array,
    int16,
    int32,
    int64,
    nullable_nested,
    nullable_string,
    records,
    string,
    uuid,
)
from holdfast.protocol.message import Message, Struct


class PartitionProduceData(Struct):
    index: int = int32()
    records: memoryview | None = records()


class TopicProduceData(Struct):
    name: str = string(until=12)
    topic_id: UUID = uuid(since=13)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message, api_key=ApiKey.PRODUCE, versions="3-13", flexible="9+"):
    transactional_id: str | None = nullable_string()
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32()
    batch_index_error_message: str | None = nullable_string()


class ProduceCurrentLeader(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionProduceResponse(Struct):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64(default=-1, since=5)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, since=8)
    error_message: str | None = nullable_string(since=8)
    current_leader: ProduceCurrentLeader | None = nullable_nested(
        ProduceCurrentLeader, since=10, tag=0
    )


class TopicProduceResponse(Struct):
    name: str = string(until=12)
    topic_id: UUID = uuid(since=13)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class ProduceNodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string()


class ProduceResponse(Message, api_key=ApiKey.PRODUCE, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[ProduceNodeEndpoint] = array(ProduceNodeEndpoint, since=10, tag=0)
