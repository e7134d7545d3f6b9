"""Fetch: read record batches from partitions.

Memory for replies is shared out in broker/reply_memory.py.
"""

import asyncio
import dataclasses

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.cluster.directory import Led
from holdfast.broker.cluster.leader_hints import Hint, brokers_of, hint_for
from holdfast.broker.cluster.replicas import Replica
from holdfast.broker.context import RequestContext
from holdfast.broker.fetch_sessions import (
    NO_SESSION,
    FetchSession,
    SessionProblem,
    Told,
    TopicKey,
    WantedPartition,
)
from holdfast.broker.lanes.leadership import PROOF_WAIT_S, Proofs, epoch_problem, offline_problem
from holdfast.broker.reply_memory import Reservation
from holdfast.cluster.configs import may_be_followed
from holdfast.cluster.state import Topic
from holdfast.errors import CorruptObject, HoldfastError, ObjectNotFound, RetryError
from holdfast.identifiers import LaneId, PartitionId
from holdfast.log.data_lane import DataLane
from holdfast.log.partition import PartitionLog
from holdfast.log.transactions import intersecting
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchCurrentLeader,
    FetchNodeEndpoint,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

API = Api(
    key=ApiKey.FETCH,
    versions=range(4, 19),
    deviations=(
        "Only whole record batches are sent, never a part of one.",
        "While the store cannot be reached, records that are known to be durable are still"
        " served. The high watermark and the log start offset are then -1 (unknown), because a"
        " newer owner may have passed the known ones.",
        "Every reader gets the last stable offset, also a reader of uncommitted records.",
        "While memory for replies is scarce, a response is smaller than requested, down to one"
        " record batch.",
    ),
)

TOPIC_IDS_SINCE = 13
LEADERS_SINCE = 12
NOT_HERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
UNKNOWN_OFFSET = -1
RACKS_SINCE = 11
FOLLOW_S = 0.25
"""How often a followed lane is read for a fetch that waits for records."""
READ_COMMITTED = 1


@dataclasses.dataclass(slots=True)
class _Budget:
    """The bytes that one response may still take, and the facts found while it is made."""

    left: int
    proofs: Proofs
    reserved: Reservation
    read_committed: bool
    rack: str = ""
    """The client's rack, if it names one (client.rack)."""
    follows: bool = False
    """True if another broker leads some of the partitions. Nobody here hears of new records."""
    taken: int = 0
    has_error: bool = False
    looked: dict[LaneId, ErrorCode | None] = dataclasses.field(
        default_factory=dict[LaneId, ErrorCode | None]
    )
    """The lanes of other brokers that this request has read, once for all their partitions."""
    is_store_away: bool = False
    """True if one partition has found the store unreachable. The others are served from memory,
    without waiting."""


async def handle(broker: Broker, request: FetchRequest, context: RequestContext) -> FetchResponse:
    opened = broker.fetch_sessions.open(request)
    if isinstance(opened, SessionProblem):
        return FetchResponse(error_code=opened.value)
    deadline = broker.environment.monotonic() + max(0, request.max_wait_ms) / 1000
    arrived = asyncio.Event()
    watched: list[Led] | None = None
    reserved = Reservation(context.replies)
    try:
        while True:
            if broker.waiting_room.is_needed:
                await broker.waiting_room.arrival(_lane_ids(broker, opened.wanted, context))
            proofs = Proofs(lambda: _lanes(broker, opened.wanted, context))
            bytes_max = min(request.max_bytes, broker.settings.fetch_bytes_max)
            is_committed = request.isolation_level == READ_COMMITTED
            budget = _Budget(bytes_max, proofs, reserved, is_committed, request.rack_id)
            if _is_near(broker, budget):
                await _look_at_all(broker, opened.wanted, context, budget)
            answers = [await _read(broker, wanted, context, budget) for wanted in opened.wanted]
            wait_s = deadline - broker.environment.monotonic()
            is_enough = budget.taken >= request.min_bytes or (budget.taken and reserved.is_shrunk)
            if budget.has_error or is_enough or wait_s <= 0:
                break
            answers.clear()
            reserved.give_back()
            if watched is None:
                watched = _watch(broker, opened.wanted, context, arrived)
                continue  # records may have come between the read and the watch
            try:
                async with asyncio.timeout(min(wait_s, FOLLOW_S) if budget.follows else wait_s):
                    await arrived.wait()
            except TimeoutError:
                pass
            arrived.clear()
    except BaseException:
        reserved.give_back()
        raise
    finally:
        for led in watched or ():
            led.lane.unwatch(led.partition, arrived)
    reserved.hand_over()
    pairs = list(zip(opened.wanted, answers, strict=True))
    if opened.session is not None:
        pairs = _changed(opened.session, pairs, all_of_them=not opened.is_incremental)
    return FetchResponse(
        session_id=opened.session.session_id if opened.session is not None else NO_SESSION,
        responses=_by_topic(pairs),
        node_endpoints=_name_leaders(broker, pairs, context),
    )


def _topic(broker: Broker, key: TopicKey, context: RequestContext) -> Topic | None:
    by_id = context.api_version >= TOPIC_IDS_SINCE
    return broker.state.usable(key.topic_id) if by_id else broker.state.topic_named(key.name)


def _find(broker: Broker, wanted: WantedPartition, context: RequestContext) -> Led | None:
    return broker.led(_topic(broker, wanted.topic, context), wanted.partition.partition)


def _lane_ids(
    broker: Broker, wanted: list[WantedPartition], context: RequestContext
) -> set[LaneId]:
    found: set[LaneId] = set()
    for item in wanted:
        topic = _topic(broker, item.topic, context)
        lane = topic.lane_of(item.partition.partition) if topic is not None else None
        if lane is not None:
            found.add(lane)
    return found


def _name_leaders(
    broker: Broker, pairs: list[tuple[WantedPartition, PartitionData]], context: RequestContext
) -> list[FetchNodeEndpoint]:
    """Name the leaders of partitions that this broker does not lead, if it knows them."""
    hints: list[Hint] = []
    for wanted, answer in pairs:
        if answer.error_code in NOT_HERE and context.api_version >= LEADERS_SINCE:
            topic = _topic(broker, wanted.topic, context)
            hint = hint_for(broker, topic, answer.partition_index)
            if hint is not None:
                hints.append(hint)
                answer.current_leader = FetchCurrentLeader(
                    leader_id=hint.leader.broker_id, leader_epoch=hint.leader.leader_epoch
                )
    return [
        FetchNodeEndpoint(node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack)
        for each in brokers_of(hints)
    ]


def _lanes(
    broker: Broker, wanted: list[WantedPartition], context: RequestContext
) -> list[DataLane]:
    return [led.lane for item in wanted if (led := _find(broker, item, context)) is not None]


def _watch(
    broker: Broker, wanted: list[WantedPartition], context: RequestContext, arrived: asyncio.Event
) -> list[Led]:
    watched = [led for item in wanted if (led := _find(broker, item, context)) is not None]
    for led in watched:
        led.lane.watch(led.partition, arrived)
    return watched


async def _read(
    broker: Broker, wanted: WantedPartition, context: RequestContext, budget: _Budget
) -> PartitionData:
    topic = _topic(broker, wanted.topic, context)
    led = broker.led(topic, wanted.partition.partition)
    if led is None or topic is None:
        replica = _replica(broker, topic, wanted, budget)
        if replica is None or topic is None:
            return _refuse(wanted, _unknown(broker, wanted, context), budget)
        budget.follows = True
        place: DataLane | Replica = replica
        await _look(budget, [replica])
        unproven = budget.looked[replica.lane]
    else:
        place = led.lane
        unproven = await budget.proofs.prove(led.lane, wanted.partition.current_leader_epoch)
        if unproven is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return _refuse(wanted, unproven, budget)
        if unproven is None and context.api_version >= RACKS_SINCE:
            nearer = _nearer(broker, topic, wanted, budget)
            if nearer is not None:
                return nearer
    if broker.state.usable(topic.topic_id) is None:  # deleted while we waited
        return _refuse(wanted, _unknown(broker, wanted, context), budget)
    problem = epoch_problem(place, wanted.partition.current_leader_epoch)
    if problem is None and led is not None:
        problem = offline_problem(led.lane, led.partition)
    if problem is not None:
        return _refuse(wanted, problem, budget)
    return await _answer(place, topic, wanted, budget, unproven)


def _replica(
    broker: Broker, topic: Topic | None, wanted: WantedPartition, budget: _Budget
) -> Replica | None:
    """Return the lane from which a client in this rack may read another broker's partition."""
    lane = topic.lane_of(wanted.partition.partition) if topic is not None else None
    if topic is None or lane is None or not may_be_followed(topic.configs):
        return None
    return broker.replicas.of(lane) if _is_near(broker, budget) else None


def _is_near(broker: Broker, budget: _Budget) -> bool:
    is_same = bool(budget.rack) and budget.rack == broker.settings.rack
    return is_same and broker.membership is not None


async def _look_at_all(
    broker: Broker, wanted: list[WantedPartition], context: RequestContext, budget: _Budget
) -> None:
    """Read the lanes of other brokers concurrently, because each may take long."""
    replicas: list[Replica] = []
    for item in wanted:
        topic = _topic(broker, item.topic, context)
        if broker.led(topic, item.partition.partition) is None:
            replica = _replica(broker, topic, item, budget)
            if replica is not None:
                replicas.append(replica)
    await _look(budget, replicas)


async def _look(budget: _Budget, replicas: list[Replica]) -> None:
    new = {each.lane: each for each in replicas if each.lane not in budget.looked}
    told = await asyncio.gather(*(_looked(each) for each in new.values()))
    budget.looked |= dict(zip(new, told, strict=True))


async def _looked(replica: Replica) -> ErrorCode | None:
    try:
        async with asyncio.timeout(PROOF_WAIT_S):
            await replica.look()
    except (HoldfastError, TimeoutError):
        return ErrorCode.KAFKA_STORAGE_ERROR
    return None


def _nearer(
    broker: Broker, topic: Topic, wanted: WantedPartition, budget: _Budget
) -> PartitionData | None:
    """Send a client to a broker in its own rack (KIP-392). Return None if it is served here."""
    if not budget.rack or budget.rack == broker.settings.rack or not may_be_followed(topic.configs):
        return None
    near = [each for each in broker.alive() if each.rack == budget.rack and not each.is_draining]
    if not near:
        return None
    chosen = near[wanted.partition.partition % len(near)]
    budget.has_error = True  # the response leaves at once
    return PartitionData(
        partition_index=wanted.partition.partition,
        high_watermark=UNKNOWN_OFFSET,
        preferred_read_replica=chosen.broker_id,
        aborted_transactions=None,
        records=[],
    )


async def _answer(
    place: DataLane | Replica,
    topic: Topic,
    wanted: WantedPartition,
    budget: _Budget,
    unproven: ErrorCode | None,
) -> PartitionData:
    if isinstance(place, Replica) and unproven is not None:
        return _refuse(wanted, unproven, budget)
    budget.is_store_away = budget.is_store_away or unproven is not None
    log = place.log_of(PartitionId(topic.topic_id, wanted.partition.partition))
    if isinstance(place, Replica) and log.ceiling.offset > log.high_watermark:
        # Its leader may acknowledge from a disk, and so know more than the store.
        return _refuse(wanted, ErrorCode.NOT_LEADER_OR_FOLLOWER, budget)
    offset = wanted.partition.fetch_offset
    if not log.log_start_offset <= offset <= log.high_watermark:
        if unproven is None:
            return _refuse(wanted, ErrorCode.OFFSET_OUT_OF_RANGE, budget, log)
        return _refuse(wanted, unproven, budget)
    # The end that the response reports, and no later one: the log may grow during the read.
    end_offset = log.last_stable_offset if budget.read_committed else log.high_watermark
    if unproven is not None and offset >= end_offset:
        return _refuse(wanted, unproven, budget)
    answer = PartitionData(
        partition_index=wanted.partition.partition,
        high_watermark=log.high_watermark if unproven is None else UNKNOWN_OFFSET,
        last_stable_offset=log.last_stable_offset if unproven is None else UNKNOWN_OFFSET,
        log_start_offset=log.log_start_offset if unproven is None else UNKNOWN_OFFSET,
        aborted_transactions=[] if budget.read_committed else None,
        records=[],
    )
    if offset >= end_offset or (budget.left <= 0 and budget.taken > 0):
        return answer
    wanted_bytes = max(0, min(wanted.partition.partition_max_bytes, budget.left))
    bytes_max = budget.reserved.allow(wanted_bytes)
    if bytes_max is None:
        return answer
    taken = budget.taken
    answer = await _with_records(place, log, wanted, answer, budget, bytes_max, end_offset)
    budget.reserved.settle(budget.taken - taken)
    return answer


async def _with_records(
    place: DataLane | Replica,
    log: PartitionLog,
    wanted: WantedPartition,
    answer: PartitionData,
    budget: _Budget,
    bytes_max: int,
    end_offset: int,
) -> PartitionData:
    offset = wanted.partition.fetch_offset
    # Taken before the read: a log start that moves during the read removes entries.
    aborted = log.transactions.aborted_within(offset, end_offset) if budget.read_committed else None
    try:
        if budget.is_store_away:
            async with asyncio.timeout(0):  # records in memory come without waiting
                cut = await place.reader.read(log, offset, bytes_max, end_offset)
        else:
            cut = await place.reader.read(log, offset, bytes_max, end_offset)
    except ObjectNotFound:
        if offset < log.log_start_offset:
            return _refuse(wanted, ErrorCode.OFFSET_OUT_OF_RANGE, budget, log)
        # OFFSET_OUT_OF_RANGE would make a consumer skip records that a newer owner may still have.
        if isinstance(place, DataLane):
            place.doubt()
        return _refuse(wanted, ErrorCode.KAFKA_STORAGE_ERROR, budget)
    except (RetryError, TimeoutError):
        budget.is_store_away = True
        return _refuse(wanted, ErrorCode.KAFKA_STORAGE_ERROR, budget)
    except CorruptObject:
        return _refuse(wanted, ErrorCode.KAFKA_STORAGE_ERROR, budget)
    if cut.bytes > bytes_max and budget.taken > 0:
        return answer  # the first batch is larger than the bytes left, so it comes another time
    answer.records = cut.buffers
    if aborted is not None:
        answer.aborted_transactions = [
            AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)
            for entry in intersecting(aborted, offset, cut.next_offset)
        ]
    budget.left -= cut.bytes
    budget.taken += cut.bytes
    return answer


def _unknown(broker: Broker, wanted: WantedPartition, context: RequestContext) -> ErrorCode:
    topic = _topic(broker, wanted.topic, context)
    if topic is None and context.api_version >= TOPIC_IDS_SINCE:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return broker.not_led(topic, wanted.partition.partition)


def _refuse(
    wanted: WantedPartition, error: ErrorCode, budget: _Budget, log: PartitionLog | None = None
) -> PartitionData:
    budget.has_error = True
    return PartitionData(
        partition_index=wanted.partition.partition,
        error_code=error,
        high_watermark=UNKNOWN_OFFSET,
        log_start_offset=log.log_start_offset if log is not None else -1,
        aborted_transactions=None,
        records=[],
    )


def _changed(
    session: FetchSession, pairs: list[tuple[WantedPartition, PartitionData]], *, all_of_them: bool
) -> list[tuple[WantedPartition, PartitionData]]:
    """Return the partitions of which the client does not know the state yet."""
    changed: list[tuple[WantedPartition, PartitionData]] = []
    for wanted, answer in pairs:
        key = (wanted.topic, wanted.partition.partition)
        told = Told(answer.high_watermark, answer.log_start_offset)
        if all_of_them or answer.records or answer.error_code or session.told.get(key) != told:
            changed.append((wanted, answer))
            session.told[key] = told
            if answer.error_code:
                session.told.pop(key, None)
        if answer.records:
            session.move_to_end(*key)
    return changed


def _by_topic(pairs: list[tuple[WantedPartition, PartitionData]]) -> list[FetchableTopicResponse]:
    grouped: dict[TopicKey, list[PartitionData]] = {}
    for wanted, answer in pairs:
        grouped.setdefault(wanted.topic, []).append(answer)
    return [
        FetchableTopicResponse(topic=key.name, topic_id=key.topic_id, partitions=partitions)
        for key, partitions in grouped.items()
    ]
