"""OffsetForLeaderEpoch: where the log of a leader epoch ended.

Consumers ask to check whether the records that they read are still there (KIP-320).
"""

import asyncio

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.cluster.directory import Led
from holdfast.broker.context import RequestContext
from holdfast.broker.lanes.leadership import (
    NO_LEADER_EPOCH,
    epoch_problem,
    offline_problem,
    prove_claim,
)
from holdfast.broker.topic_creation import WAIT_MS_DEFAULT, hear_of_partitions
from holdfast.identifiers import LaneId
from holdfast.log.data_lane import DataLane
from holdfast.log.partition import EpochStart
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

API = Api(
    key=ApiKey.OFFSET_FOR_LEADER_EPOCH,
    versions=range(2, 5),
    deviations=(
        "Only the proved owner answers.",
        "The end of the current epoch is the high watermark, because no follower ever asks.",
    ),
)

UNDEFINED = EpochStart(-1, -1)


async def handle(
    broker: Broker, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    del context
    named = [(t.topic, p.partition) for t in request.topics for p in t.partitions]
    await hear_of_partitions(broker, named)
    if broker.waiting_room.is_needed:
        await broker.waiting_room.arrival(broker.lanes_of(named))
    newest: dict[LaneId, int] = {}
    lanes: dict[LaneId, DataLane] = {}
    for topic in request.topics:
        known = broker.state.topic_named(topic.topic)
        for asked in topic.partitions:
            led = broker.led(known, asked.partition)
            if led is not None:
                heard_of = newest.get(led.lane.lane, NO_LEADER_EPOCH)
                newest[led.lane.lane] = max(heard_of, asked.current_leader_epoch)
                lanes[led.lane.lane] = led.lane
    problems = await asyncio.gather(
        *(_prove(lanes[lane], heard_of) for lane, heard_of in newest.items())
    )
    claims = dict(zip(newest, problems, strict=True))
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_answer(broker, topic.topic, p, claims) for p in topic.partitions],
            )
            for topic in request.topics
        ]
    )


async def _prove(lane: DataLane, heard_of: int) -> ErrorCode | None:
    try:
        async with asyncio.timeout(WAIT_MS_DEFAULT / 1000):
            return await prove_claim(lane, heard_of)
    except TimeoutError:
        return ErrorCode.KAFKA_STORAGE_ERROR


def _answer(
    broker: Broker,
    name: str,
    asked: OffsetForLeaderPartition,
    claims: dict[LaneId, ErrorCode | None],
) -> EpochEndOffset:
    topic = broker.state.topic_named(name)
    if topic is None or topic.lane_of(asked.partition) is None:
        return _refused(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    led = broker.led(topic, asked.partition)
    if led is None:
        return _refused(asked, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    # A lane that is not in `claims` was not proved: its topic came while the others were.
    problem = claims.get(led.lane.lane, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    problem = problem or epoch_problem(led.lane, asked.current_leader_epoch)
    problem = problem or offline_problem(led.lane, led.partition)
    if problem is not None:
        return _refused(asked, problem)
    end = end_of_epoch(led, asked.leader_epoch)
    return EpochEndOffset(
        partition=asked.partition, leader_epoch=end.leader_epoch, end_offset=end.start_offset
    )


def end_of_epoch(led: Led, leader_epoch: int) -> EpochStart:
    """Return the end of an epoch as Kafka's leader does.

    Kafka knows the current epoch from the election on, this log only from its first record on. So
    an epoch that has no record yet is filled in.
    """
    log = led.lane.log_of(led.partition)
    current = led.lane.leader_epoch
    if leader_epoch < 0 or leader_epoch > current:
        return UNDEFINED
    if leader_epoch == current or not log.epochs:
        return EpochStart(leader_epoch, log.high_watermark)
    end = log.end_of_epoch(leader_epoch)
    return EpochStart(end.leader_epoch, min(end.start_offset, log.high_watermark))


def _refused(asked: OffsetForLeaderPartition, error: ErrorCode) -> EpochEndOffset:
    return EpochEndOffset(
        error_code=error,
        partition=asked.partition,
        leader_epoch=UNDEFINED.leader_epoch,
        end_offset=UNDEFINED.start_offset,
    )
