"""OffsetFetch (9), versions 1 to 10: read the committed offsets of groups."""

from uuid import UUID

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import (
    INT32,
    array,
    boolean,
    int16,
    int32,
    int64,
    nullable_array,
    nullable_string,
    string,
    uuid,
)
from holdfast.protocol.message import Message, Struct


class OffsetFetchRequestTopic(Struct):
    name: str = string()
    partition_indexes: list[int] = array(INT32)


class OffsetFetchRequestTopics(Struct):
    name: str = string(until=9)
    topic_id: UUID = uuid(since=10)
    partition_indexes: list[int] = array(INT32)


class OffsetFetchRequestGroup(Struct):
    group_id: str = string()
    member_id: str | None = nullable_string(since=9)
    member_epoch: int = int32(default=-1, since=9)
    topics: list[OffsetFetchRequestTopics] | None = nullable_array(
        OffsetFetchRequestTopics, default=[]
    )


class OffsetFetchRequest(Message, api_key=ApiKey.OFFSET_FETCH, versions="1-10", flexible="6+"):
    group_id: str = string(until=7)
    topics: list[OffsetFetchRequestTopic] | None = nullable_array(
        OffsetFetchRequestTopic, default=[], until=7, nullable_since=2
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7)


class OffsetFetchResponsePartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1, since=5)
    metadata: str | None = nullable_string()
    error_code: int = int16()


class OffsetFetchResponseTopic(Struct):
    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1)
    metadata: str | None = nullable_string()
    error_code: int = int16()


class OffsetFetchResponseTopics(Struct):
    name: str = string(until=9)
    topic_id: UUID = uuid(since=10)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


class OffsetFetchResponseGroup(Struct):
    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16()


class OffsetFetchResponse(Message, api_key=ApiKey.OFFSET_FETCH, versions="1-10", flexible="6+"):
    throttle_time_ms: int = int32(since=3)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    error_code: int = int16(since=2, until=7)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)
