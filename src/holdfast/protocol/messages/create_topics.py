"""CreateTopics (19), versions 2 to 7: create topics."""

from uuid import UUID

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import (
    INT32,
    array,
    boolean,
    int8,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
    uuid,
)
from holdfast.protocol.message import Message, Struct


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32()
    broker_ids: list[int] = array(INT32)


class CreatableTopicConfig(Struct):
    name: str = string()
    value: str | None = nullable_string()


class CreatableTopic(Struct):
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Message, api_key=ApiKey.CREATE_TOPICS, versions="2-7", flexible="5+"):
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean()


class CreatableTopicConfigs(Struct):
    name: str = string()
    value: str | None = nullable_string()
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


class CreatableTopicResult(Struct):
    name: str = string()
    topic_id: UUID = uuid(since=7)
    error_code: int = int16()
    error_message: str | None = nullable_string()
    topic_config_error_code: int = int16(since=5, tag=0)
    num_partitions: int = int32(default=-1, since=5)
    replication_factor: int = int16(default=-1, since=5)
    configs: list[CreatableTopicConfigs] | None = nullable_array(
        CreatableTopicConfigs, default=[], since=5
    )


class CreateTopicsResponse(Message, api_key=ApiKey.CREATE_TOPICS, versions="2-7", flexible="5+"):
    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
