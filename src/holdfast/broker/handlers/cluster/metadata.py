"""Metadata: the brokers, topics and partition leaders that a client needs to know."""

from uuid import UUID

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.cluster.directory import PartitionPlace
from holdfast.broker.context import RequestContext
from holdfast.broker.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from holdfast.broker.topic_creation import auto_create
from holdfast.cluster.state import Topic
from holdfast.identifiers import topic_name_problem
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

API = Api(
    key=ApiKey.METADATA,
    versions=range(14),
    deviations=(
        "The replicas of a partition are its leader and all brokers with a rack, which serve"
        " readers of their rack (KIP-392).",
    ),
)

NO_TOPIC_ID = UUID(int=0)


async def handle(
    broker: Broker, request: MetadataRequest, context: RequestContext
) -> MetadataResponse:
    wanted = request.topics
    if wanted is None or (context.api_version == 0 and not wanted):
        topics = [
            _described(broker, topic) for topic in broker.state.topics.values() if topic.partitions
        ]
    else:
        if request.allow_auto_topic_creation and broker.settings.auto_create_topics_enable:
            await auto_create(broker, [topic.name for topic in wanted if topic.name])
        topics = [_find(broker, topic) for topic in wanted]
    if request.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    with_operations = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=report.broker_id, host=report.host, port=report.port, rack=report.rack
            )
            for report in broker.alive()
        ],
        cluster_id=broker.state.cluster_id,
        controller_id=broker.controller_id(),
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS if with_operations else NOT_ASKED,
    )


def _find(broker: Broker, wanted: MetadataRequestTopic) -> MetadataResponseTopic:
    if wanted.name is None:
        topic = broker.state.usable(wanted.topic_id)
        if topic is not None:
            return _described(broker, topic)
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id
        )
    topic = broker.state.topic_named(wanted.name)
    if topic is not None:
        return _described(broker, topic)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic_name_problem(wanted.name) is not None:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataResponseTopic(error_code=error, name=wanted.name, topic_id=NO_TOPIC_ID)


def _described(broker: Broker, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[_partition(each) for each in broker.placed(topic, range(topic.partitions))],
    )


def _partition(placed: PartitionPlace) -> MetadataResponsePartition:
    leader = placed.leader
    if leader is None:
        return MetadataResponsePartition(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=placed.partition,
            leader_id=-1,
        )
    return MetadataResponsePartition(
        partition_index=placed.partition,
        leader_id=leader.broker_id,
        leader_epoch=leader.leader_epoch,
        replica_nodes=placed.replicas,
        isr_nodes=placed.replicas,
    )
