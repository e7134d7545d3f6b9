"""ConsumerGroupDescribe (69), versions 0 to 1: state and members of KIP-848 groups."""

from uuid import UUID

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import (
    INT32,
    STRING,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nested,
    nullable_string,
    string,
    uuid,
)
from holdfast.protocol.message import Message, Struct

HOLDFAST_TAG = 10_000
"""The tag of a field that only Holdfast has; other clients skip tags that they do not know."""


class ConsumerGroupDescribeRequest(
    Message, api_key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+"
):
    group_ids: list[str] = array(STRING)
    include_authorized_operations: bool = boolean()


class DescribedTopicPartitions(Struct):
    topic_id: UUID = uuid()
    topic_name: str = string()
    partitions: list[int] = array(INT32)


class DescribedAssignment(Struct):
    topic_partitions: list[DescribedTopicPartitions] = array(DescribedTopicPartitions)


class DescribedMember(Struct):
    member_id: str = string()
    instance_id: str | None = nullable_string()
    rack_id: str | None = nullable_string()
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(STRING)
    subscribed_topic_regex: str | None = nullable_string()
    assignment: DescribedAssignment = nested(DescribedAssignment)
    target_assignment: DescribedAssignment = nested(DescribedAssignment)
    member_type: int = int8(default=-1, since=1)


class DescribedConsumerGroup(Struct):
    error_code: int = int16()
    error_message: str | None = nullable_string()
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[DescribedMember] = array(DescribedMember)
    authorized_operations: int = int32(default=-2147483648)
    holdfast_refused_commits: int = int64(tag=HOLDFAST_TAG)


class ConsumerGroupDescribeResponse(
    Message, api_key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+"
):
    throttle_time_ms: int = int32()
    groups: list[DescribedConsumerGroup] = array(DescribedConsumerGroup)
