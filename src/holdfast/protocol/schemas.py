"""Every message that Holdfast knows, by API key.

Owns the table of message classes. Must never decide which versions are served: the broker does.
"""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.message import Message
from holdfast.protocol.messages.abort_transaction import (
    AbortTransactionRequest,
    AbortTransactionResponse,
)
from holdfast.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from holdfast.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from holdfast.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from holdfast.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from holdfast.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from holdfast.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from holdfast.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from holdfast.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from holdfast.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from holdfast.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from holdfast.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from holdfast.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from holdfast.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from holdfast.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from holdfast.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from holdfast.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from holdfast.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from holdfast.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from holdfast.protocol.messages.drain_broker import DrainBrokerRequest, DrainBrokerResponse
from holdfast.protocol.messages.end_transaction_parts import (
    EndTransactionPartsRequest,
    EndTransactionPartsResponse,
)
from holdfast.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from holdfast.protocol.messages.fetch import FetchRequest, FetchResponse
from holdfast.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from holdfast.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from holdfast.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from holdfast.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from holdfast.protocol.messages.join_transaction import (
    JoinTransactionRequest,
    JoinTransactionResponse,
)
from holdfast.protocol.messages.lane_hand_over import LaneHandOverRequest, LaneHandOverResponse
from holdfast.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from holdfast.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from holdfast.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from holdfast.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from holdfast.protocol.messages.metadata import MetadataRequest, MetadataResponse
from holdfast.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from holdfast.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from holdfast.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from holdfast.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from holdfast.protocol.messages.peer_ping import PeerPingRequest, PeerPingResponse
from holdfast.protocol.messages.place_lane import PlaceLaneRequest, PlaceLaneResponse
from holdfast.protocol.messages.produce import ProduceRequest, ProduceResponse
from holdfast.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from holdfast.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from holdfast.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from holdfast.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from holdfast.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

SCHEMAS: dict[ApiKey, tuple[type[Message], type[Message]]] = {
    ApiKey.API_VERSIONS: (ApiVersionsRequest, ApiVersionsResponse),
    ApiKey.METADATA: (MetadataRequest, MetadataResponse),
    ApiKey.PRODUCE: (ProduceRequest, ProduceResponse),
    ApiKey.FETCH: (FetchRequest, FetchResponse),
    ApiKey.LIST_OFFSETS: (ListOffsetsRequest, ListOffsetsResponse),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    ApiKey.CREATE_TOPICS: (CreateTopicsRequest, CreateTopicsResponse),
    ApiKey.DELETE_TOPICS: (DeleteTopicsRequest, DeleteTopicsResponse),
    ApiKey.CREATE_PARTITIONS: (CreatePartitionsRequest, CreatePartitionsResponse),
    ApiKey.DELETE_RECORDS: (DeleteRecordsRequest, DeleteRecordsResponse),
    ApiKey.DESCRIBE_CONFIGS: (DescribeConfigsRequest, DescribeConfigsResponse),
    ApiKey.ALTER_CONFIGS: (AlterConfigsRequest, AlterConfigsResponse),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    ),
    ApiKey.INIT_PRODUCER_ID: (InitProducerIdRequest, InitProducerIdResponse),
    ApiKey.DESCRIBE_CLUSTER: (DescribeClusterRequest, DescribeClusterResponse),
    ApiKey.FIND_COORDINATOR: (FindCoordinatorRequest, FindCoordinatorResponse),
    ApiKey.OFFSET_COMMIT: (OffsetCommitRequest, OffsetCommitResponse),
    ApiKey.OFFSET_FETCH: (OffsetFetchRequest, OffsetFetchResponse),
    ApiKey.OFFSET_DELETE: (OffsetDeleteRequest, OffsetDeleteResponse),
    ApiKey.JOIN_GROUP: (JoinGroupRequest, JoinGroupResponse),
    ApiKey.SYNC_GROUP: (SyncGroupRequest, SyncGroupResponse),
    ApiKey.HEARTBEAT: (HeartbeatRequest, HeartbeatResponse),
    ApiKey.LEAVE_GROUP: (LeaveGroupRequest, LeaveGroupResponse),
    ApiKey.DESCRIBE_GROUPS: (DescribeGroupsRequest, DescribeGroupsResponse),
    ApiKey.LIST_GROUPS: (ListGroupsRequest, ListGroupsResponse),
    ApiKey.DELETE_GROUPS: (DeleteGroupsRequest, DeleteGroupsResponse),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
    ApiKey.ADD_PARTITIONS_TO_TXN: (AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    ApiKey.ADD_OFFSETS_TO_TXN: (AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    ApiKey.END_TXN: (EndTxnRequest, EndTxnResponse),
    ApiKey.TXN_OFFSET_COMMIT: (TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    ApiKey.WRITE_TXN_MARKERS: (WriteTxnMarkersRequest, WriteTxnMarkersResponse),
    ApiKey.DESCRIBE_TRANSACTIONS: (DescribeTransactionsRequest, DescribeTransactionsResponse),
    ApiKey.LIST_TRANSACTIONS: (ListTransactionsRequest, ListTransactionsResponse),
    ApiKey.DESCRIBE_PRODUCERS: (DescribeProducersRequest, DescribeProducersResponse),
    ApiKey.SASL_HANDSHAKE: (SaslHandshakeRequest, SaslHandshakeResponse),
    ApiKey.SASL_AUTHENTICATE: (SaslAuthenticateRequest, SaslAuthenticateResponse),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
    ),
    ApiKey.ALLOCATE_PRODUCER_IDS: (AllocateProducerIdsRequest, AllocateProducerIdsResponse),
    ApiKey.PEER_PING: (PeerPingRequest, PeerPingResponse),
    ApiKey.LANE_HAND_OVER: (LaneHandOverRequest, LaneHandOverResponse),
    ApiKey.END_TRANSACTION_PARTS: (EndTransactionPartsRequest, EndTransactionPartsResponse),
    ApiKey.JOIN_TRANSACTION: (JoinTransactionRequest, JoinTransactionResponse),
    ApiKey.ABORT_TRANSACTION: (AbortTransactionRequest, AbortTransactionResponse),
    ApiKey.PLACE_LANE: (PlaceLaneRequest, PlaceLaneResponse),
    ApiKey.DRAIN_BROKER: (DrainBrokerRequest, DrainBrokerResponse),
}
"""The request class and the response class of each API."""
