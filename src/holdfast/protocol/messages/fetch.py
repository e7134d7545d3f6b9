"""Fetch (1), versions 4 to 18: read record batches from partitions."""

from collections.abc import Sequence
from uuid import UUID

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import (
    INT32,
    array,
    int8,
    int16,
    int32,
    int64,
    nullable_array,
    nullable_nested,
    nullable_string,
    record_buffers,
    string,
    uuid,
)
from holdfast.protocol.message import Message, Struct
from holdfast.protocol.primitives import Buffer


class ReplicaState(Struct):
    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1, since=9)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(default=-1, since=12)
    log_start_offset: int = int64(default=-1, since=5)
    partition_max_bytes: int = int32()
    replica_directory_id: UUID = uuid(since=17, tag=0)
    high_watermark: int = int64(default=0x7FFFFFFFFFFFFFFF, since=18, tag=1)


class FetchTopic(Struct):
    topic: str = string(until=12)
    topic_id: UUID = uuid(since=13)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = string(until=12)
    topic_id: UUID = uuid(since=13)
    partitions: list[int] = array(INT32)


class FetchRequest(Message, api_key=ApiKey.FETCH, versions="4-18", flexible="12+"):
    cluster_id: str | None = nullable_string(since=12, tag=0)
    replica_id: int = int32(default=-1, until=14)
    replica_state: ReplicaState | None = nullable_nested(ReplicaState, since=15, tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFFFFFF)
    isolation_level: int = int8()
    session_id: int = int32(since=7)
    session_epoch: int = int32(default=-1, since=7)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7)
    rack_id: str = string(since=11)


class DivergingEpoch(Struct):
    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class FetchCurrentLeader(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class SnapshotId(Struct):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64(default=-1, since=5)
    diverging_epoch: DivergingEpoch | None = nullable_nested(DivergingEpoch, since=12, tag=0)
    current_leader: FetchCurrentLeader | None = nullable_nested(FetchCurrentLeader, since=12, tag=1)
    snapshot_id: SnapshotId | None = nullable_nested(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = nullable_array(
        AbortedTransaction, default=[]
    )
    preferred_read_replica: int = int32(default=-1, since=11)
    records: Sequence[Buffer] | None = record_buffers()


class FetchableTopicResponse(Struct):
    topic: str = string(until=12)
    topic_id: UUID = uuid(since=13)
    partitions: list[PartitionData] = array(PartitionData)


class FetchNodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string()


class FetchResponse(Message, api_key=ApiKey.FETCH, versions="4-18", flexible="12+"):
    throttle_time_ms: int = int32()
    error_code: int = int16(since=7)
    session_id: int = int32(since=7)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[FetchNodeEndpoint] = array(FetchNodeEndpoint, since=16, tag=0)
