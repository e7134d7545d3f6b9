"""CreatePartitions (37), versions 0 to 3: add partitions to a topic."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import (
    INT32,
    array,
    boolean,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
)
from holdfast.protocol.message import Message, Struct


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array(INT32)


class CreatePartitionsTopic(Struct):
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = nullable_array(
        CreatePartitionsAssignment
    )


class CreatePartitionsRequest(
    Message, api_key=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+"
):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    name: str = string()
    error_code: int = int16()
    error_message: str | None = nullable_string()


class CreatePartitionsResponse(
    Message, api_key=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+"
):
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
