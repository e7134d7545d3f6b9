"""DescribeTopicPartitions: topics in the order of their names, in pages.

A page ends after a number of partitions, and its cursor says where the next one begins.
"""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.cluster.directory import PartitionPlace
from holdfast.broker.context import RequestContext
from holdfast.broker.operations import TOPIC_OPERATIONS
from holdfast.cluster.state import Topic
from holdfast.identifiers import topic_name_problem
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

API = Api(
    key=ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    versions=range(1),
    deviations=("The replicas of a partition are those of Metadata.",),
)

PARTITIONS_PER_PAGE_MAX = 2_000


def handle(
    broker: Broker, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    del context
    asked = sorted({topic.name for topic in request.topics})
    cursor = request.cursor
    if cursor is not None and (
        cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)
    ):
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(
                    error_code=ErrorCode.INVALID_REQUEST, name=name
                )
                for name in asked
            ]
        )
    names = asked or sorted(name for name in broker.state.names if broker.state.topic_named(name))
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    left = max(1, min(request.response_partition_limit, PARTITIONS_PER_PAGE_MAX))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        first = cursor.partition_index if cursor and cursor.topic_name == name else 0
        if left == 0:
            response.next_cursor = _cursor(name, first)
            break
        topic = broker.state.topic_named(name)
        if topic is None:
            is_legal = topic_name_problem(name) is None
            error = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if is_legal
                else ErrorCode.INVALID_TOPIC_EXCEPTION
            )
            response.topics.append(_refused(name, error))
            continue
        end = min(topic.partitions, first + left)
        response.topics.append(_described(broker, topic, range(first, end)))
        left -= max(0, end - first)
        if end < topic.partitions:
            response.next_cursor = _cursor(name, end)
            break
    return response


def _cursor(name: str, partition: int) -> DescribeTopicPartitionsResponseCursor:
    return DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=partition)


def _refused(name: str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error, name=name, topic_authorized_operations=TOPIC_OPERATIONS
    )


def _described(
    broker: Broker, topic: Topic, partitions: range
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[_partition(each) for each in broker.placed(topic, partitions)],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(placed: PartitionPlace) -> DescribeTopicPartitionsResponsePartition:
    leader = placed.leader
    if leader is None:
        return DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=placed.partition,
            leader_id=-1,
            eligible_leader_replicas=[],
            last_known_elr=[],
        )
    return DescribeTopicPartitionsResponsePartition(
        partition_index=placed.partition,
        leader_id=leader.broker_id,
        leader_epoch=leader.leader_epoch,
        replica_nodes=placed.replicas,
        isr_nodes=placed.replicas,
        eligible_leader_replicas=[],
        last_known_elr=[],
    )
