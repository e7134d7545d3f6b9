"""Answers to heartbeats of a KIP-848 group."""

from uuid import UUID

from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
    HeartbeatAssignment,
)

TOPIC_ID = UUID(int=7)


def answer(
    epoch: int, *numbers: int, topic_id: UUID = TOPIC_ID, is_news: bool = True
) -> ConsumerGroupHeartbeatResponse:
    row = ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=list(numbers))
    rows = [row] if numbers else []
    return ConsumerGroupHeartbeatResponse(
        member_id="me",
        member_epoch=epoch,
        heartbeat_interval_ms=3000,
        assignment=HeartbeatAssignment(topic_partitions=rows) if is_news else None,
    )


def refusal(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message="the broker's words")
