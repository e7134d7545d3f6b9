"""OffsetDelete: delete offsets of a group.

Offsets of topics that a member is subscribed to are kept.
"""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.identifiers import PartitionId
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

API = Api(key=ApiKey.OFFSET_DELETE, versions=range(1))


async def handle(
    broker: Broker, request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse:
    del context
    groups = broker.groups_of(request.group_id)
    if isinstance(groups, ErrorCode):
        return OffsetDeleteResponse(error_code=groups)
    problem = groups.problem() or groups.coordinator.offset_delete_problem(request.group_id)
    if problem is not None:
        return OffsetDeleteResponse(error_code=problem)
    subscribed = groups.coordinator.subscribed_topics(request.group_id)
    gone: list[PartitionId] = []
    topics: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        is_subscribed = subscribed is None or topic.name in subscribed
        partitions = [] if is_subscribed else _known(broker, topic)
        gone += [partition for partition in partitions if partition is not None]
        topics.append(_answer(topic, partitions, is_subscribed=is_subscribed))
    groups.coordinator.remove_offsets(request.group_id, gone)
    problem = await groups.settled(request.group_id)
    if problem is not None:
        return OffsetDeleteResponse(error_code=problem)
    return OffsetDeleteResponse(topics=topics)


def _known(broker: Broker, topic: OffsetDeleteRequestTopic) -> list[PartitionId | None]:
    known = broker.state.topic_named(topic.name)
    return [
        PartitionId(known.topic_id, part.partition_index)
        if known is not None and known.lane_of(part.partition_index) is not None
        else None
        for part in topic.partitions
    ]


def _answer(
    topic: OffsetDeleteRequestTopic, known: list[PartitionId | None], *, is_subscribed: bool
) -> OffsetDeleteResponseTopic:
    errors: list[ErrorCode] = []
    for i in range(len(topic.partitions)):
        if is_subscribed:
            errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
        else:
            is_known = known[i] is not None
            errors.append(ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=part.partition_index, error_code=error)
            for part, error in zip(topic.partitions, errors, strict=True)
        ],
    )
