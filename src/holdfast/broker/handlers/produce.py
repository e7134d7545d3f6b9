"""Produce (0), versions 3 to 13.

Deviations: acks=1 and acks=all are the same, an answer after the records are in the store. A retry
whose sequence is known but whose bytes differ is refused instead of being taken for a duplicate.
The answer to a retry names no log start (-1) unless the claim is known to be the newest.

The decision is made at once, in the order of arrival; only the answer waits.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable

from holdfast.broker.broker import Broker, Led
from holdfast.broker.context import RequestContext, error_code
from holdfast.broker.leadership import prove_claim
from holdfast.broker.settling import then
from holdfast.broker.verification import TransactionalAppend
from holdfast.cluster.state import Topic
from holdfast.errors import CorruptObject, Fenced
from holdfast.identifiers import LaneId
from holdfast.log.append import Accepted, Duplicate, Refused, decide_append, opens_transaction
from holdfast.log.data_lane import DataLane
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from holdfast.records.batch import BatchHeader, parse_header
from holdfast.records.check import Refusal, check_inside, check_produced
from holdfast.records.record import UNCOMPRESSED_BYTES_MAX
from holdfast.records.stamp import stamp, stamp_log_append_time

TOPIC_IDS_SINCE = 13
ZSTD_SINCE = 7
NO_LOG_START = -1
JUDGED_BY_PRODUCER_STATE = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.TRANSACTION_ABORTABLE,
)


@dataclasses.dataclass(slots=True)
class _Waiting:
    """What must come true before one lane's answers may leave."""

    lane: DataLane
    accepted: list[PartitionProduceResponse] = dataclasses.field(default_factory=list)
    """Hold only if the lane's next object becomes durable."""
    refused: list[PartitionProduceResponse] = dataclasses.field(default_factory=list)
    """Refused by what this broker knows of the producer: hold only if its claim is the newest."""
    durable: asyncio.Future[None] | None = None


def handle(
    broker: Broker, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    name = request.transactional_id
    if name:
        barrier = _coordinator_barrier(broker, request, context, name)
        if barrier is not None or broker.turns.is_taken(name):
            return _in_turn(broker, request, context, name, barrier)
    return _decided(broker, request, context)


async def _in_turn(
    broker: Broker,
    request: ProduceRequest,
    context: RequestContext,
    name: str,
    barrier: asyncio.Future[None] | None,
) -> ProduceResponse | None:
    turn = await broker.turns.wait(name, barrier)
    try:
        again = _coordinator_barrier(broker, request, context, name)
        if again is not None:
            await asyncio.wait({again})
        answer = _decided(broker, request, context)
    finally:
        turn.set_result(None)
    return await answer if isinstance(answer, Awaitable) else answer


def _coordinator_barrier(
    broker: Broker, request: ProduceRequest, context: RequestContext, name: str
) -> asyncio.Future[None] | None:
    """What must be durable before these batches are decided; None where nothing is waited for.

    The coordinator's lane is another one than the partition's: it must know of the partition first.
    In one lane, what is decided first is durable first.
    """
    here = broker.transactions_of(name)
    if isinstance(here, ErrorCode):
        return None
    ending = here.ending(name)
    if ending is not None:
        return ending
    elsewhere = False
    for topic in request.topic_data:
        known = _topic(broker, topic, context)
        for part in topic.partition_data:
            led = broker.led(known, part.index)
            if led is None or led.lane is here.lane:
                continue
            header = _header_of(part.records)
            if header is None or not opens_transaction(led.lane.log_of(led.partition), header):
                continue
            elsewhere = True
            broker.verify_transaction(_append_of(header, led, context, name))
    return here.barrier(name) if elsewhere else None


def _header_of(records: memoryview | bytes | None) -> BatchHeader | None:
    """None where there is no batch: that is for the checks to say."""
    try:
        return parse_header(records) if records else None
    except CorruptObject:
        return None


def _append_of(
    header: BatchHeader, led: Led, context: RequestContext, name: str | None
) -> TransactionalAppend:
    return TransactionalAppend(
        transactional_id=name,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        partition=led.partition,
        api_version=context.api_version,
    )


def _topic(broker: Broker, data: TopicProduceData, context: RequestContext) -> Topic | None:
    if context.api_version >= TOPIC_IDS_SINCE:
        return broker.state.usable(data.topic_id)
    return broker.state.topic_named(data.name)


def _decided(
    broker: Broker, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse] | None:
    waiting: dict[LaneId, _Waiting] = {}
    responses = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=_produce_topic(broker, request, topic, context, waiting),
        )
        for topic in request.topic_data
    ]
    response = ProduceResponse(responses=responses)
    if request.acks == 0:
        return None
    for entry in waiting.values():
        entry.durable = entry.lane.appender.barrier() if entry.accepted else None
    unsettled = [
        entry
        for entry in waiting.values()
        if entry.durable is not None or (entry.refused and not entry.lane.appender.is_valid())
    ]
    if not unsettled:
        return response
    only = unsettled[0]
    if len(unsettled) == 1 and only.durable is not None and not only.refused:
        accepted = only.accepted

        def settled(durable: asyncio.Future[None]) -> ProduceResponse:
            _settle(accepted, durable)
            return response

        return then(only.durable, settled, timeout_s=request.timeout_ms / 1000)
    return _when_settled(response, unsettled, request.timeout_ms / 1000)


async def _when_settled(
    response: ProduceResponse, unsettled: list[_Waiting], timeout_s: float
) -> ProduceResponse:
    futures = [entry.durable for entry in unsettled if entry.durable is not None]
    if futures:
        await asyncio.wait(futures, timeout=timeout_s)
    for entry in unsettled:
        if entry.durable is not None:
            _settle(entry.accepted, entry.durable)
        if entry.refused:
            # A newer owner may have taken what we call out of order: then it is not ours to refuse.
            unproven = await prove_claim(entry.lane)
            if unproven is not None:
                _fail(entry.refused, unproven, "this broker's claim could not be proved")
    return response


def _settle(answers: list[PartitionProduceResponse], durable: asyncio.Future[None]) -> None:
    if not durable.done():
        _fail(answers, ErrorCode.REQUEST_TIMED_OUT, "the store has not confirmed it in time")
    elif isinstance(error := durable.exception(), Fenced):
        _fail(answers, ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error))
    elif error is not None:
        _fail(answers, ErrorCode.KAFKA_STORAGE_ERROR, str(error))


def _fail(answers: list[PartitionProduceResponse], error: ErrorCode, message: str) -> None:
    for answer in answers:
        answer.error_code = error
        answer.error_message = message
        answer.base_offset = -1
        answer.log_append_time_ms = -1


def _produce_topic(
    broker: Broker,
    request: ProduceRequest,
    data: TopicProduceData,
    context: RequestContext,
    waiting: dict[LaneId, _Waiting],
) -> list[PartitionProduceResponse]:
    topic = _topic(broker, data, context)
    if topic is None:
        by_id = context.api_version >= TOPIC_IDS_SINCE
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return [_refuse(part.index, unknown) for part in data.partition_data]
    return [
        _produce_partition(broker, request, topic, part, context, waiting)
        for part in data.partition_data
    ]


def _produce_partition(
    broker: Broker,
    request: ProduceRequest,
    topic: Topic,
    data: PartitionProduceData,
    context: RequestContext,
    waiting: dict[LaneId, _Waiting],
) -> PartitionProduceResponse:
    if request.acks not in (-1, 0, 1):
        message = f"acks={request.acks}; 0, 1 and all (-1) are possible"
        return _refuse(data.index, ErrorCode.INVALID_REQUIRED_ACKS, message)
    led = broker.led(topic, data.index)
    if led is None:
        error = broker.not_led(topic, data.index)
        unknown = error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        message = f"topic {topic.name} has {topic.partitions} partitions" if unknown else None
        return _refuse(data.index, error, message)
    appender = led.lane.appender
    if not appender.is_open:
        return _refuse(data.index, ErrorCode.NOT_LEADER_OR_FOLLOWER, str(appender.failure or ""))
    if appender.is_overloaded:
        message = f"{appender.pending_bytes} bytes wait for the store; try again"
        return _refuse(data.index, ErrorCode.NOT_ENOUGH_REPLICAS, message)
    answer = _append(broker, led, data, context, request.transactional_id)
    if answer.error_code == 0:
        waiting.setdefault(led.lane.lane, _Waiting(led.lane)).accepted.append(answer)
    elif answer.error_code in JUDGED_BY_PRODUCER_STATE:
        waiting.setdefault(led.lane.lane, _Waiting(led.lane)).refused.append(answer)
    return answer


def _append(
    broker: Broker,
    led: Led,
    data: PartitionProduceData,
    context: RequestContext,
    transactional_id: str | None,
) -> PartitionProduceResponse:
    settings = broker.settings_of(led.topic)
    records = data.records
    checked = check_produced(
        records,
        max_batch_bytes=settings.batch_bytes_max,
        zstd_allowed=context.api_version >= ZSTD_SINCE,
    )
    if isinstance(checked, Refusal) or records is None:
        refusal = checked if isinstance(checked, Refusal) else None
        name = refusal.error.name if refusal else "INVALID_RECORD"
        return _refuse(data.index, ErrorCode[name], refusal.message if refusal else None)
    if settings.keys_required:
        keyless = check_inside(
            records, uncompressed_bytes_max=UNCOMPRESSED_BYTES_MAX, keys_required=True
        )
        if keyless is not None:
            return _refuse(data.index, ErrorCode[keyless.error.name], keyless.message)
    header = checked[0]
    partition_log = led.lane.log_of(led.partition)
    now_ms = broker.environment.now_ms()
    decision = decide_append(partition_log, header, settings.append, now_ms)
    if isinstance(decision, Accepted) and opens_transaction(partition_log, header):
        unverified = broker.verify_transaction(_append_of(header, led, context, transactional_id))
        decision = unverified if unverified is not None else decision
    log_start_offset = partition_log.log_start_offset
    match decision:
        case Refused(error, message):
            return _refuse(data.index, ErrorCode(error_code(error)), message)
        case Duplicate(original):
            base_offset, appended_ms = original.base_offset, original.appended_ms
            if not led.lane.appender.is_valid():
                log_start_offset = NO_LOG_START  # a newer owner may have moved it
        case Accepted(fact):
            base_offset, appended_ms = fact.base_offset, now_ms
            if settings.append.log_append_time:
                stamp_log_append_time(records, now_ms=now_ms)
            stamp(records, base_offset=base_offset, leader_epoch=led.lane.leader_epoch)
            led.lane.appender.add(fact, records)
    return PartitionProduceResponse(
        index=data.index,
        base_offset=base_offset,
        log_append_time_ms=appended_ms if settings.append.log_append_time else -1,
        log_start_offset=log_start_offset,
    )


def _refuse(index: int, error: ErrorCode, message: str | None = None) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=error,
        base_offset=-1,
        error_message=message,
        current_leader=LeaderIdAndEpoch() if error is ErrorCode.NOT_LEADER_OR_FOLLOWER else None,
    )
