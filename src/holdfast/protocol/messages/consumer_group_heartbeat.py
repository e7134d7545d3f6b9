"""ConsumerGroupHeartbeat (68), versions 0 to 1: join, stay in and leave a KIP-848 group."""

from uuid import UUID

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import (
    INT32,
    STRING,
    array,
    int16,
    int32,
    nullable_array,
    nullable_nested,
    nullable_string,
    string,
    uuid,
)
from holdfast.protocol.message import Message, Struct


class TopicPartitions(Struct):
    topic_id: UUID = uuid()
    partitions: list[int] = array(INT32)


class ConsumerGroupHeartbeatRequest(
    Message, api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+"
):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = nullable_string()
    rack_id: str | None = nullable_string()
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = nullable_array(STRING)
    subscribed_topic_regex: str | None = nullable_string(since=1)
    server_assignor: str | None = nullable_string()
    topic_partitions: list[TopicPartitions] | None = nullable_array(TopicPartitions)


class ConsumerGroupHeartbeatResponseTopicPartitions(Struct):
    topic_id: UUID = uuid()
    partitions: list[int] = array(INT32)


class HeartbeatAssignment(Struct):
    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartitions] = array(
        ConsumerGroupHeartbeatResponseTopicPartitions
    )


class ConsumerGroupHeartbeatResponse(
    Message, api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+"
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    member_id: str | None = nullable_string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: HeartbeatAssignment | None = nullable_nested(HeartbeatAssignment)
