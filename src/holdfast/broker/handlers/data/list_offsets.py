"""ListOffsets: the earliest and latest offsets of partitions, and offsets by timestamp.

Answers only under a proved claim, so that no latest offset is ever below one that another broker
has reported.
"""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.cluster.directory import Led
from holdfast.broker.context import RequestContext
from holdfast.broker.lanes.leadership import Proofs, epoch_problem, offline_problem
from holdfast.broker.topic_creation import hear_of_partitions
from holdfast.errors import HoldfastError
from holdfast.log.data_lane import DataLane
from holdfast.log.times import offset_for_time, offset_of_max_timestamp
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

API = Api(
    key=ApiKey.LIST_OFFSETS,
    versions=range(1, 12),
    deviations=(
        "Only the proved owner answers.",
        "There is one storage tier, so earliest local is earliest. Latest tiered and earliest"
        " pending upload are unknown (-1).",
        "For `read_committed`, the newest timestamp is that of the records below the last"
        " stable offset.",
    ),
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
READ_COMMITTED = 1

_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


async def handle(
    broker: Broker, request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse:
    asked = [(t.name, p.partition_index) for t in request.topics for p in t.partitions]
    await hear_of_partitions(broker, asked)
    if broker.waiting_room.is_needed:
        await broker.waiting_room.arrival(broker.lanes_of(asked))
    proofs = Proofs(lambda: _lanes(broker, request))
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    await _list(
                        broker,
                        topic.name,
                        partition,
                        context,
                        proofs,
                        read_committed=request.isolation_level == READ_COMMITTED,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _lanes(broker: Broker, request: ListOffsetsRequest) -> list[DataLane]:
    return [
        led.lane
        for topic in request.topics
        for wanted in topic.partitions
        if (led := broker.led(broker.state.topic_named(topic.name), wanted.partition_index))
    ]


async def _list(
    broker: Broker,
    name: str,
    wanted: ListOffsetsPartition,
    context: RequestContext,
    proofs: Proofs,
    *,
    read_committed: bool,
) -> ListOffsetsPartitionResponse:
    topic = broker.state.topic_named(name)
    led = broker.led(topic, wanted.partition_index)
    if led is None:
        return _refuse(wanted, broker.not_led(topic, wanted.partition_index))
    error = await proofs.prove(led.lane, wanted.current_leader_epoch)
    if error is None and broker.state.usable(led.topic.topic_id) is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # deleted while we waited
    if error is None:
        error = epoch_problem(led.lane, wanted.current_leader_epoch)
    if error is None:
        error = offline_problem(led.lane, led.partition)
    if error is not None:
        return _refuse(wanted, error)
    if wanted.timestamp < 0 and context.api_version < _SINCE.get(wanted.timestamp, 0):
        return _refuse(wanted, ErrorCode.UNSUPPORTED_VERSION)
    try:
        return await _answer(led, wanted, read_committed=read_committed)
    except HoldfastError:
        return _refuse(wanted, ErrorCode.KAFKA_STORAGE_ERROR)


async def _answer(
    led: Led, wanted: ListOffsetsPartition, *, read_committed: bool
) -> ListOffsetsPartitionResponse:
    log = led.lane.log_of(led.partition)
    end_offset = log.last_stable_offset if read_committed else log.high_watermark
    timestamp, offset = -1, -1
    match wanted.timestamp:
        case -1:
            offset = end_offset
        case -2 | -4:
            offset = log.log_start_offset
        case -5 | -6:
            pass
        case -3:
            found = await offset_of_max_timestamp(led.lane.reader, log, end_offset)
            if found is not None:
                offset, timestamp = found
        case _:
            found = await offset_for_time(led.lane.reader, log, wanted.timestamp, end_offset)
            if found is not None:
                offset, timestamp = found
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=led.lane.leader_epoch if offset >= 0 else -1,
    )


def _refuse(wanted: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=error)
