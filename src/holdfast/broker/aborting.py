"""Aborts that an administrator wants: find the coordinator, on whichever broker it is.

Owns the rule that a partition's leader ends a transaction alone only where the proved owner of
every lane says that it does not coordinate it.
"""

import asyncio
from typing import NamedTuple

from holdfast.broker.broker import Broker
from holdfast.broker.leadership import prove_claim
from holdfast.broker.transactions import LaneTransactions
from holdfast.client.refusals import BrokerUnavailable
from holdfast.identifiers import BrokerId, LaneId, PartitionId
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.abort_transaction import (
    AbortTransactionRequest,
    AbortTransactionResponse,
)
from holdfast.transactions.decide import Producer
from holdfast.transactions.hanging import judge_abort, transaction_of
from holdfast.transactions.state import Transaction

ASK_TIMEOUT_S = 10.0


class Found(NamedTuple):
    """What the coordinators of some lanes say of a producer's transaction on a partition."""

    outcome: ErrorCode | None
    """None: none of them knows it. NONE: it is aborted. Else why it is not."""
    lanes: set[LaneId]


async def abort_here(broker: Broker, producer: Producer, partition: PartitionId) -> Found:
    """Abort a transaction that is coordinated by this broker."""
    coordinators = dict(broker.transactions)
    for here in coordinators.values():
        unproven = await prove_claim(here.lane)  # else a newer coordinator may have it open
        if unproven is not None:
            return Found(unproven, set())
    lanes = set(coordinators)
    for here in coordinators.values():
        known = transaction_of(here.all(), producer.producer_id, partition)
        if known is not None:
            return Found(await _abort(here, known, producer), lanes)
    return Found(None, lanes)


async def _abort(here: LaneTransactions, known: Transaction, producer: Producer) -> ErrorCode:
    judged = judge_abort(known, producer)
    if isinstance(judged, ErrorCode):
        return judged
    name = known.transactional_id
    if not await here.abort_open(name, producer.producer_epoch):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    problem = await here.settled(name)
    await here.wait_for_end(name)
    return problem or ErrorCode.NONE


async def abort_anywhere(
    broker: Broker, producer: Producer, partition: PartitionId
) -> ErrorCode | None:
    """Abort a transaction, whoever coordinates it; None where certainly nobody does."""
    found = await abort_here(broker, producer, partition)
    wanted = {LaneId(lane) for lane in range(1, broker.state.lanes + 1)} - found.lanes
    if found.outcome is not None or not wanted:
        return found.outcome
    asked: dict[BrokerId, LaneId] = {}
    for lane in wanted:
        leader = broker.leader_of(lane)
        if leader is not None:
            asked[leader.broker_id] = lane
    answers = await asyncio.gather(
        *(_ask(broker, lane, producer, partition) for lane in asked.values())
    )
    for answer in answers:
        if answer.error_code != 0 or answer.is_known:
            return ErrorCode(answer.error_code)
        wanted.difference_update(map(LaneId, answer.lanes))
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if wanted else None


async def _ask(
    broker: Broker, lane: LaneId, producer: Producer, partition: PartitionId
) -> AbortTransactionResponse:
    request = AbortTransactionRequest(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topic_id=partition.topic_id,
        partition=partition.partition,
    )
    try:
        return await broker.ask_leader(
            lane, request, AbortTransactionResponse, version=0, timeout_s=ASK_TIMEOUT_S
        )
    except BrokerUnavailable:
        return AbortTransactionResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
