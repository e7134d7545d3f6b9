"""OffsetCommit (8), versions 2 to 10: store the committed offsets of a group."""

from uuid import UUID

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import array, int16, int32, int64, nullable_string, string, uuid
from holdfast.protocol.message import Message, Struct


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1, since=6)
    committed_metadata: str | None = nullable_string()


class OffsetCommitRequestTopic(Struct):
    name: str = string(until=9)
    topic_id: UUID = uuid(since=10)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Message, api_key=ApiKey.OFFSET_COMMIT, versions="2-10", flexible="8+"):
    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = nullable_string(since=7)
    retention_time_ms: int = int64(default=-1, until=4)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Struct):
    name: str = string(until=9)
    topic_id: UUID = uuid(since=10)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Message, api_key=ApiKey.OFFSET_COMMIT, versions="2-10", flexible="8+"):
    throttle_time_ms: int = int32(since=3)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
