"""DescribeTopicPartitions (75), version 0: partitions of topics, page by page.

The two lists of replicas default to empty, not null: the Java admin client cannot take null there.
"""

from uuid import UUID

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import (
    INT32,
    array,
    boolean,
    int16,
    int32,
    nullable_array,
    nullable_nested,
    nullable_string,
    string,
    uuid,
)
from holdfast.protocol.message import Message, Struct


class DescribeTopicRequest(Struct):
    name: str = string()


class TopicPartitionsCursor(Struct):
    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsRequest(
    Message, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+"
):
    topics: list[DescribeTopicRequest] = array(DescribeTopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: TopicPartitionsCursor | None = nullable_nested(TopicPartitionsCursor)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(INT32)
    isr_nodes: list[int] = array(INT32)
    eligible_leader_replicas: list[int] | None = nullable_array(INT32, default=[])
    last_known_elr: list[int] | None = nullable_array(INT32, default=[])
    offline_replicas: list[int] = array(INT32)


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = nullable_string()
    topic_id: UUID = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=-2147483648)


class DescribeTopicPartitionsResponseCursor(Struct):
    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsResponse(
    Message, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+"
):
    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: DescribeTopicPartitionsResponseCursor | None = nullable_nested(
        DescribeTopicPartitionsResponseCursor
    )
