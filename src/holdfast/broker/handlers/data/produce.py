"""Produce: append record batches to partitions.

The decision is made at once, in the order of arrival. Only the response waits. Batches that
arrive before an earlier batch of their producer are remembered in gaps.py.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Sequence

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.cluster.directory import Led
from holdfast.broker.cluster.leader_hints import Hint, brokers_of, hint_for
from holdfast.broker.context import RequestContext
from holdfast.broker.lanes.leadership import prove_claim
from holdfast.broker.settling import then
from holdfast.broker.transactions.joining import Verdicts, ask_for_all
from holdfast.broker.transactions.openings import (
    TOPIC_IDS_SINCE,
    coordinator_barrier,
    opening_of,
    openings,
    topic_of,
)
from holdfast.cluster.state import Topic
from holdfast.errors import Fenced
from holdfast.identifiers import LaneId
from holdfast.log.append import (
    Accepted,
    AppendRules,
    Duplicate,
    Early,
    decide_append,
    opens_transaction,
)
from holdfast.log.data_lane import DataLane
from holdfast.protocol.api import ApiKey, ErrorCode, Refused
from holdfast.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceCurrentLeader,
    ProduceNodeEndpoint,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from holdfast.records.check import BatchRefusal, RecordError, check_produced
from holdfast.records.inside import check_inside, name_records_out_of_time
from holdfast.records.stamp import stamp, stamp_log_append_time

API = Api(
    key=ApiKey.PRODUCE,
    versions=range(3, 14),
    deviations=(
        "acks=1 and acks=all are the same: the response leaves when the records are in the"
        " store, or with `holdfast.ack=disk` on the disk.",
        "A batch that arrives before an earlier batch of its idempotent producer gets"
        " NOT_ENOUGH_REPLICAS, which clients retry, for ten seconds. After that it is reported"
        " as out of order, or accepted if the partition does not know the producer. Kafka"
        " decides at once (ADR 14).",
        "The response to a retry has a log start offset of -1 unless the broker is the proved"
        " owner.",
        "If another broker coordinates the transaction, the first batch on a partition waits"
        " for that broker, for some seconds at most.",
    ),
)

log = logging.getLogger("holdfast.broker")

OPENED_BYTES_MAX = 16 * 1024 * 1024
"""The most bytes to which the broker unpacks a batch. A decompression bomb holds up all other
requests."""
LEADERS_SINCE = 10
ZSTD_SINCE = 7
NO_LOG_START = -1
JUDGED_BY_PRODUCER_STATE = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)


@dataclasses.dataclass(slots=True)
class _Waiting:
    """The responses of one lane that may not leave yet."""

    lane: DataLane
    by_disk: bool
    accepted: list[PartitionProduceResponse] = dataclasses.field(default_factory=list)
    """Responses that hold only if the lane's next object or disk frame becomes durable."""
    refused: list[PartitionProduceResponse] = dataclasses.field(default_factory=list)
    """Refusals by the known state of a producer. They hold only under a proved claim."""
    durable: asyncio.Future[None] | None = None


@dataclasses.dataclass(slots=True)
class _Deciding:
    """The decisions on a request, partition by partition."""

    verdicts: Verdicts | None
    """Verdicts on the batches whose coordinator is another broker, or None."""
    waiting: dict[tuple[LaneId, bool], _Waiting] = dataclasses.field(
        default_factory=dict[tuple[LaneId, bool], _Waiting]
    )


def handle(
    broker: Broker, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    if broker.waiting_room.is_needed:
        wait = broker.waiting_room.wait(_lane_ids(broker, request, context))
        if wait is not None:
            return _after(wait, broker, request, context)
    return _handled(broker, request, context)


async def _after(
    wait: Awaitable[asyncio.Future[None]],
    broker: Broker,
    request: ProduceRequest,
    context: RequestContext,
) -> ProduceResponse | None:
    turn = await wait
    try:
        answer = _handled(broker, request, context)
    finally:
        turn.set_result(None)
    return await answer if isinstance(answer, Awaitable) else answer


def _lane_ids(broker: Broker, request: ProduceRequest, context: RequestContext) -> set[LaneId]:
    found: set[LaneId] = set()
    for data in request.topic_data:
        topic = topic_of(broker, data, context)
        if topic is not None:
            lanes = (topic.lane_of(part.index) for part in data.partition_data)
            found.update(lane for lane in lanes if lane is not None)
    return found


def _handled(
    broker: Broker, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    name = request.transactional_id
    if not name:
        return _decided(broker, request, context)
    here = broker.transactions_of(name)
    is_taken = broker.turns.is_taken(name)
    if isinstance(here, ErrorCode):
        if is_taken or any(openings(broker, request, context, name)):
            return _verified_elsewhere(broker, request, context, name)
        return _decided(broker, request, context)
    barrier = coordinator_barrier(broker, request, context, name, here)
    if barrier is not None or is_taken:
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
        here = broker.transactions_of(name)
        if not isinstance(here, ErrorCode):
            again = coordinator_barrier(broker, request, context, name, here)
            if again is not None:
                await asyncio.wait({again})
        answer = _decided(broker, request, context)
    finally:
        turn.set_result(None)
    return await answer if isinstance(answer, Awaitable) else answer


async def _verified_elsewhere(
    broker: Broker, request: ProduceRequest, context: RequestContext, name: str
) -> ProduceResponse | None:
    """Decide in turn, as `_in_turn` does, if another broker coordinates the transaction."""
    turn = await broker.turns.wait(name, None)
    try:
        found = list(openings(broker, request, context, name))
        asked = {(each.append.producer_id, each.append.partition) for each in found}
        with broker.underway.asking(asked) as question:
            verdicts = Verdicts(broker.underway, question)
            await ask_for_all(broker, found, verdicts)
            answer = _decided(broker, request, context, verdicts)
    finally:
        turn.set_result(None)
    return await answer if isinstance(answer, Awaitable) else answer


def _decided(
    broker: Broker,
    request: ProduceRequest,
    context: RequestContext,
    verdicts: Verdicts | None = None,
) -> ProduceResponse | Awaitable[ProduceResponse] | None:
    deciding = _Deciding(verdicts)
    waiting = deciding.waiting
    responses = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=_produce_topic(broker, request, topic, context, deciding),
        )
        for topic in request.topic_data
    ]
    response = ProduceResponse(responses=responses)
    if request.acks == 0:
        return None
    for entry in waiting.values():
        entry.durable = entry.lane.barrier(by_journal=entry.by_disk) if entry.accepted else None
    unsettled = [
        entry
        for entry in waiting.values()
        if entry.durable is not None or (entry.refused and not entry.lane.is_valid())
    ]
    if not unsettled:
        return _with_leaders(broker, response, context)
    only = unsettled[0]
    if len(unsettled) == 1 and only.durable is not None and not only.refused:

        def settled(durable: asyncio.Future[None]) -> ProduceResponse:
            _settle(only, durable)
            return _with_leaders(broker, response, context)

        return then(only.durable, settled, timeout_s=request.timeout_ms / 1000)
    return _when_settled(broker, response, context, unsettled, request.timeout_ms / 1000)


async def _when_settled(
    broker: Broker,
    response: ProduceResponse,
    context: RequestContext,
    unsettled: list[_Waiting],
    timeout_s: float,
) -> ProduceResponse:
    futures = [entry.durable for entry in unsettled if entry.durable is not None]
    if futures:
        await asyncio.wait(futures, timeout=timeout_s)
    for entry in unsettled:
        if entry.durable is not None:
            _settle(entry, entry.durable)
        if entry.refused:
            # A newer owner may have accepted this batch, which is out of order only here. So only a
            # proved claim may refuse it.
            unproven = await prove_claim(entry.lane)
            if unproven is not None:
                _fail(
                    entry.refused,
                    unproven,
                    f"lane {entry.lane.lane}: this broker cannot confirm that it still leads it;"
                    " try again",
                )
    return _with_leaders(broker, response, context)


def _with_leaders(
    broker: Broker, response: ProduceResponse, context: RequestContext
) -> ProduceResponse:
    """Name the leaders of partitions that this broker does not lead, if it knows them."""
    if context.api_version < LEADERS_SINCE:
        return response
    hints: list[Hint] = []
    for data in response.responses:
        for part in data.partition_responses:
            if part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                by_id = context.api_version >= TOPIC_IDS_SINCE
                state = broker.state
                topic = state.usable(data.topic_id) if by_id else state.topic_named(data.name)
                hint = hint_for(broker, topic, part.index)
                if hint is not None:
                    hints.append(hint)
                    part.current_leader = ProduceCurrentLeader(
                        leader_id=hint.leader.broker_id, leader_epoch=hint.leader.leader_epoch
                    )
    response.node_endpoints = [
        ProduceNodeEndpoint(node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack)
        for each in brokers_of(hints)
    ]
    return response


def _settle(entry: _Waiting, durable: asyncio.Future[None]) -> None:
    answers = entry.accepted
    if not durable.done():
        where = "disk" if entry.by_disk else "store"
        _fail(
            answers,
            ErrorCode.REQUEST_TIMED_OUT,
            f"lane {entry.lane.lane}: the {where} did not confirm the write in time",
        )
    elif isinstance(error := durable.exception(), Fenced):
        _fail(answers, ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error))
    elif error is not None:
        _fail(answers, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    elif entry.by_disk and not entry.lane.is_valid():
        # This process was paused: a successor may continue without the records on this disk.
        _fail(
            answers,
            ErrorCode.REQUEST_TIMED_OUT,
            f"lane {entry.lane.lane}: this broker can no longer confirm that it leads it; try"
            " again",
        )


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
    deciding: _Deciding,
) -> list[PartitionProduceResponse]:
    topic = topic_of(broker, data, context)
    if topic is None:
        by_id = context.api_version >= TOPIC_IDS_SINCE
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return [_refuse(part.index, unknown) for part in data.partition_data]
    return [
        _produce_partition(broker, request, topic, part, context, deciding)
        for part in data.partition_data
    ]


def _produce_partition(
    broker: Broker,
    request: ProduceRequest,
    topic: Topic,
    data: PartitionProduceData,
    context: RequestContext,
    deciding: _Deciding,
) -> PartitionProduceResponse:
    if request.acks not in (-1, 0, 1):
        message = f"acks={request.acks} is not possible; use 0, 1 or all (-1)"
        return _refuse(data.index, ErrorCode.INVALID_REQUIRED_ACKS, message)
    led = broker.led(topic, data.index)
    if led is None:
        error = broker.not_led(topic, data.index)
        unknown = error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        message = (
            f"topic {topic.name} has {topic.partitions} partitions, and no partition {data.index}"
            if unknown
            else None
        )
        return _refuse(data.index, error, message)
    lane = led.lane
    if not lane.is_open:
        return _refuse(data.index, ErrorCode.NOT_LEADER_OR_FOLLOWER, str(lane.failure or ""))
    if led.lane.is_offline(led.partition):
        message = (
            f"{topic.name}-{data.index} is offline: its newest records are on the disk of another"
            " broker; start that broker"
        )
        return _refuse(data.index, ErrorCode.LEADER_NOT_AVAILABLE, message)
    flush = broker.settings_of(topic).flush
    if lane.is_overloaded or (flush is not None and lane.is_journal_full(flush)):
        message = (
            f"{topic.name}-{data.index}: too many bytes wait for the store (lane"
            f" {led.lane.lane}); try again"
        )
        return _refuse(data.index, ErrorCode.NOT_ENOUGH_REPLICAS, message)
    answer = _append(broker, led, data, context, request.transactional_id, deciding.verdicts)
    by_disk = led.lane.is_by_disk(led.partition)
    entry = deciding.waiting.get((led.lane.lane, by_disk)) or _Waiting(led.lane, by_disk)
    if answer.error_code == 0:
        entry.accepted.append(answer)
    elif answer.error_code in JUDGED_BY_PRODUCER_STATE:
        entry.refused.append(answer)
    else:
        return answer
    deciding.waiting[led.lane.lane, by_disk] = entry
    return answer


def _append(
    broker: Broker,
    led: Led,
    data: PartitionProduceData,
    context: RequestContext,
    transactional_id: str | None,
    verdicts: Verdicts | None,
) -> PartitionProduceResponse:
    settings = broker.settings_of(led.topic)
    records = data.records
    checked = check_produced(
        records,
        max_batch_bytes=settings.batch_bytes_max,
        zstd_allowed=context.api_version >= ZSTD_SINCE,
    )
    if isinstance(checked, BatchRefusal) or records is None:
        refusal = checked if isinstance(checked, BatchRefusal) else None
        code = ErrorCode(refusal.error.value) if refusal else ErrorCode.INVALID_RECORD
        return _refuse(data.index, code, refusal.message if refusal else None)
    if settings.keys_required or settings.validate_records:
        wrong = check_inside(
            records,
            keys_required=settings.keys_required,
            uncompressed_bytes_max=OPENED_BYTES_MAX,
        )
        if wrong is not None:
            error = ErrorCode(wrong.error.value)
            return _refuse(data.index, error, wrong.message, wrong.record_errors)
    header = checked[0]
    partition_log = led.lane.log_of(led.partition)
    now_ms = broker.environment.now_ms()
    decision = decide_append(partition_log, header, settings.append, now_ms)
    if isinstance(decision, Early):
        decision = broker.gaps.judge(led.partition, header, decision)
    if isinstance(decision, Accepted) and opens_transaction(partition_log, header):
        opening = opening_of(header, led, context, transactional_id)
        unverified = (
            verdicts.of(opening)
            if verdicts is not None
            else broker.verify_transaction(opening.append)
        )
        decision = unverified if unverified is not None else decision
    log_start_offset = partition_log.log_start_offset
    match decision:
        case Refused(error, message):
            if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                # Clients then begin a new producer epoch, some of them silently: leave a trace.
                epoch, name = led.lane.leader_epoch, led.topic.name
                log.info("out_of_order topic=%s leader_epoch=%d: %s", name, epoch, message)
            named = _records_at_fault(error, records, settings.append, now_ms)
            return _refuse(data.index, error, message, named)
        case Duplicate(original):
            base_offset, appended_ms = original.base_offset, original.appended_ms
            if not led.lane.is_valid():
                log_start_offset = NO_LOG_START  # a newer owner may have moved it
        case Accepted(fact):
            base_offset, appended_ms = fact.base_offset, now_ms
            if settings.append.log_append_time:
                stamp_log_append_time(records, now_ms=now_ms)
            stamp(records, base_offset=base_offset, leader_epoch=led.lane.leader_epoch)
            flush = settings.flush
            led.lane.append(fact, records, to_disk=flush is not None, flush=flush)
    return PartitionProduceResponse(
        index=data.index,
        base_offset=base_offset,
        log_append_time_ms=appended_ms if settings.append.log_append_time else -1,
        log_start_offset=log_start_offset,
    )


def _records_at_fault(
    error: ErrorCode, records: memoryview, rules: AppendRules, now_ms: int
) -> Sequence[RecordError]:
    """Return the records for which a batch is refused, if it is for their timestamps (KIP-467)."""
    if error is not ErrorCode.INVALID_TIMESTAMP:
        return ()
    return name_records_out_of_time(
        records,
        oldest=now_ms - rules.timestamp_before_max_ms,
        newest=now_ms + rules.timestamp_after_max_ms,
        uncompressed_bytes_max=OPENED_BYTES_MAX,
    )


def _refuse(
    index: int,
    error: ErrorCode,
    message: str | None = None,
    record_errors: Sequence[RecordError] = (),
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=error,
        base_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=why)
            for at, why in record_errors
        ],
        error_message=message,
    )
