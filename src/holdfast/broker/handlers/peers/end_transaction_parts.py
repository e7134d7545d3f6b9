"""EndTransactionParts: a coordinator on another broker ends a transaction here.

The response leaves when the end is durable and the claim is proved: only the newest owner knows
that there was nothing to end. If the open transaction is not the one that the coordinator names,
the part is refused with INVALID_TXN_STATE, and the coordinator looks again.
"""

import asyncio
import logging

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.transactions.markers import add_marker
from holdfast.errors import Fenced, HoldfastError
from holdfast.groups.facts import TransactionalOffsetsEnded
from holdfast.identifiers import PartitionId
from holdfast.log.data_lane import DataLane
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.end_transaction_parts import (
    LOOK,
    NOTHING_OPEN,
    EndedGroup,
    EndedGroupResult,
    EndedPartition,
    EndedPartitionResult,
    EndTransactionPartsRequest,
    EndTransactionPartsResponse,
)

API = Api(key=ApiKey.END_TRANSACTION_PARTS, versions=range(1))

log = logging.getLogger("holdfast.broker")


async def handle(
    broker: Broker, request: EndTransactionPartsRequest, context: RequestContext
) -> EndTransactionPartsResponse:
    del context
    ids = [PartitionId(part.topic_id, part.partition) for part in request.partitions]
    is_unknown = any(broker.place_of(partition) is None for partition in ids)
    if is_unknown and not await broker.view.look_if_possible():
        return _refused(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partitions = [_end_partition(broker, request, part) for part in request.partitions]
    groups = [_end_group(broker, request, part) for part in request.groups]
    changed = {lane.lane: lane for _, lane in (*partitions, *groups) if lane is not None}
    problems = await asyncio.gather(*(_settled(lane) for lane in changed.values()))
    failed = dict(zip(changed, problems, strict=True))
    for result, lane in (*partitions, *groups):
        problem = failed[lane.lane] if lane is not None else None
        if problem is not None:
            result.error_code = problem
    return EndTransactionPartsResponse(
        partitions=[result for result, _ in partitions], groups=[result for result, _ in groups]
    )


async def _settled(lane: DataLane) -> ErrorCode | None:
    """Wait until everything decided in a lane is durable, and the claim is proved."""
    try:
        await lane.flush()
        await lane.validate()
    except Fenced:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    except HoldfastError:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return None


def _end_partition(
    broker: Broker, request: EndTransactionPartsRequest, part: EndedPartition
) -> tuple[EndedPartitionResult, DataLane | None]:
    """End a transaction on one partition, or only look at it.

    Return the result, and the lane that the result depends on, if any.
    """
    result = EndedPartitionResult(
        topic_id=part.topic_id, partition=part.partition, first_offset=NOTHING_OPEN
    )
    partition = PartitionId(part.topic_id, part.partition)
    lane = broker.place_of(partition)
    if lane is None:
        return result, None  # its topic is deleted, and its transactions too
    is_served = isinstance(lane, DataLane) and lane.is_open
    if not isinstance(lane, DataLane) or not is_served or lane.is_offline(partition):
        result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return result, None
    found = lane.log_of(partition).transactions.open.get(request.producer_id)
    result.leader_epoch = lane.leader_epoch
    result.first_offset = found.first_offset if found is not None else NOTHING_OPEN
    if part.first_offset == LOOK:
        return result, None
    told, is_so = (part.leader_epoch, part.first_offset), (lane.leader_epoch, result.first_offset)
    if found is not None and told != is_so:
        result.error_code = ErrorCode.INVALID_TXN_STATE
        return result, None
    broker.underway.ended(request.producer_id, partition)
    refused = add_marker(
        lane,
        partition,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        committed=request.committed,
        coordinator_epoch=request.coordinator_epoch,
        now_ms=broker.environment.now_ms(),
    )
    if refused is not None:
        # The partition knows a newer epoch: this transaction has ended there already.
        log.warning("marker_refused error=%s: %s", refused.error, refused.message)
    return result, lane


def _end_group(
    broker: Broker, request: EndTransactionPartsRequest, part: EndedGroup
) -> tuple[EndedGroupResult, DataLane | None]:
    result = EndedGroupResult(group_id=part.group_id, token=NOTHING_OPEN)
    groups = broker.groups_of(part.group_id)
    problem = groups if isinstance(groups, ErrorCode) else groups.problem()
    if isinstance(groups, ErrorCode) or problem is not None:
        result.error_code = problem or ErrorCode.NOT_COORDINATOR
        return result, None
    token = groups.token_of(part.group_id, request.producer_id)
    result.token = token if token is not None else NOTHING_OPEN
    if part.token == LOOK:
        return result, None
    if token is not None and token != part.token:
        result.error_code = ErrorCode.INVALID_TXN_STATE
        return result, None
    broker.underway.ended(request.producer_id, part.group_id)
    if token is not None:
        groups.decide(
            TransactionalOffsetsEnded(
                part.group_id, request.producer_id, request.producer_epoch, request.committed
            )
        )
    return result, groups.lane


def _refused(request: EndTransactionPartsRequest, error: ErrorCode) -> EndTransactionPartsResponse:
    return EndTransactionPartsResponse(
        partitions=[
            EndedPartitionResult(topic_id=part.topic_id, partition=part.partition, error_code=error)
            for part in request.partitions
        ],
        groups=[
            EndedGroupResult(group_id=part.group_id, error_code=error) for part in request.groups
        ],
    )
