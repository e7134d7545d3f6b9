"""OffsetForLeaderEpoch (23), versions 2 to 4: the end offset of a leader epoch."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import array, int16, int32, int64, string
from holdfast.protocol.message import Message, Struct


class OffsetForLeaderPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(
    Message, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="2-4", flexible="4+"
):
    replica_id: int = int32(default=-2, since=3)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(
    Message, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="2-4", flexible="4+"
):
    throttle_time_ms: int = int32()
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
