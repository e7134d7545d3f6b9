"""TxnOffsetCommit (28), versions 0 to 5: commit offsets as part of a transaction."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import array, int16, int32, int64, nullable_string, string
from holdfast.protocol.message import Message, Struct


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1, since=2)
    committed_metadata: str | None = nullable_string()


class TxnOffsetCommitRequestTopic(Struct):
    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(
    Message, api_key=ApiKey.TXN_OFFSET_COMMIT, versions="0-5", flexible="3+"
):
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(default=-1, since=3)
    member_id: str = string(since=3)
    group_instance_id: str | None = nullable_string(since=3)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitResponseTopic(Struct):
    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(
    Message, api_key=ApiKey.TXN_OFFSET_COMMIT, versions="0-5", flexible="3+"
):
    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
