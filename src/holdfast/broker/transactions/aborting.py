"""Abort a hanging transaction for an administrator, whichever broker coordinates it.

Owns the rule that a partition's leader may end a transaction alone only after the owner of every
lane, under a proved claim, has said that it does not coordinate this transaction.
"""

import asyncio
from typing import NamedTuple

from holdfast.broker.broker import Broker
from holdfast.broker.lanes.leadership import prove_claim
from holdfast.broker.transactions.lane_transactions import LaneTransactions
from holdfast.client.refusals import BrokerUnavailable
from holdfast.identifiers import BrokerId, LaneId, PartitionId
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.abort_transaction import (
    AbortTransactionRequest,
    AbortTransactionResponse,
)
from holdfast.transactions.decide import ProducerIdAndEpoch
from holdfast.transactions.hanging import judge_abort, transaction_of
from holdfast.transactions.state import Transaction

ASK_TIMEOUT_S = 10.0


class FoundTransaction(NamedTuple):
    """The answer of some lanes' coordinators about a producer's transaction on a partition."""

    outcome: ErrorCode | None
    """The outcome: None if no coordinator knows the transaction, NONE if it is aborted, otherwise
    the error that prevented the abort."""
    lanes: set[LaneId]


async def abort_here(
    broker: Broker, producer: ProducerIdAndEpoch, partition: PartitionId
) -> FoundTransaction:
    """Abort a transaction that this broker coordinates."""
    coordinators = dict(broker.transactions)
    for here in coordinators.values():
        unproven = await prove_claim(here.lane)  # otherwise a newer coordinator may have it open
        if unproven is not None:
            return FoundTransaction(unproven, set())
    lanes = set(coordinators)
    for here in coordinators.values():
        known = transaction_of(here.all(), producer.producer_id, partition)
        if known is not None:
            return FoundTransaction(await _abort(here, known, producer), lanes)
    return FoundTransaction(None, lanes)


async def _abort(
    here: LaneTransactions, known: Transaction, producer: ProducerIdAndEpoch
) -> ErrorCode:
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
    broker: Broker, producer: ProducerIdAndEpoch, partition: PartitionId
) -> ErrorCode | None:
    """Abort a transaction on the broker that coordinates it.

    Return the outcome, or None if it is certain that no broker coordinates the transaction.
    """
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
    broker: Broker, lane: LaneId, producer: ProducerIdAndEpoch, partition: PartitionId
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
