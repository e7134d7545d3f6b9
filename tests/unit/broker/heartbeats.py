"""Members of a KIP-848 group, heartbeat by heartbeat."""

from typing import Any

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from holdfast.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

GROUP = "g"


async def beat(
    broker: Broker, member_id: str, epoch: int, owned: list[int] | None, **more: Any
) -> Any:
    """A heartbeat that says all that the member knows."""
    known = broker.state.topic_named("t")
    assert known is not None
    partitions = [TopicPartitions(topic_id=known.topic_id, partitions=owned)] if owned else []
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=partitions,
        **more,
    )
    return await answer(broker, request, RequestContext(api_version=1))


def given(response: Any) -> list[int]:
    return [n for part in response.assignment.topic_partitions for n in part.partitions]


async def commit(broker: Broker, member_id: str, epoch: int, partition: int) -> ErrorCode:
    wanted = OffsetCommitRequestPartition(partition_index=partition, committed_offset=1)
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[wanted])],
    )
    response = await answer(broker, request, RequestContext(api_version=9))
    return ErrorCode(response.topics[0].partitions[0].error_code)
