"""Both sides of JoinTransaction: the question of a leader, and the response of a coordinator.

Owns the leader's question, which is repeated for a while, and the coordinator's response. Must
never respond before the decision is durable and the claim is proved: a coordinator that was
replaced does not know which transactions its successor has ended.
"""

import asyncio
from typing import NamedTuple

from holdfast.broker.broker import Broker
from holdfast.broker.lanes.leadership import coordinator_problem
from holdfast.broker.transactions.lane_transactions import LaneTransactions
from holdfast.broker.transactions.verification import (
    ADDS_PARTITIONS_SINCE,
    ASKED_AGAIN,
    Question,
    TransactionalAppend,
    Underway,
    not_verified,
    wrong_start,
)
from holdfast.client.refusals import BrokerUnavailable
from holdfast.identifiers import PartitionId
from holdfast.log.data_lane import DataLane
from holdfast.protocol.api import ErrorCode, Refused
from holdfast.protocol.messages.join_transaction import (
    JoinedGroup,
    JoinedPartition,
    JoiningGroup,
    JoiningPartition,
    JoinTransactionRequest,
    JoinTransactionResponse,
)
from holdfast.transactions.decide import ProducerIdAndEpoch, verify, verify_group

ASKING_S_MAX = 5.0
"""How long a request is kept for a coordinator's response. After that its client tries again."""
ASK_TIMEOUT_S = 3.0
"""The timeout of one question. It is never shortened: a timeout closes a shared connection."""
PAUSE_S_MIN = 0.01
PAUSE_S_MAX = 0.2


async def joined(
    here: LaneTransactions, request: JoinTransactionRequest
) -> JoinTransactionResponse:
    """Return the coordinator's response.

    This does not wait for a transaction that is ending: other requests wait behind this one.
    """
    name = request.transactional_id
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    partitions = [PartitionId(part.topic_id, part.partition) for part in request.partitions]
    groups = [part.group_id for part in request.groups]
    whole = here.problem()
    if whole is None and not request.verify_only:
        whole = here.extend(name, producer, partitions=partitions, groups=groups)
    known = here.known(name)
    response = JoinTransactionResponse(
        partitions=[
            JoinedPartition(
                topic_id=partition.topic_id,
                partition=partition.partition,
                error_code=verify(known, producer, partition) or ErrorCode.NONE,
            )
            for partition in partitions
        ],
        groups=[
            JoinedGroup(
                group_id=group_id,
                error_code=verify_group(known, producer, group_id) or ErrorCode.NONE,
            )
            for group_id in groups
        ],
    )
    if whole is None:
        whole = await here.settled(name)
    if whole is None or whole not in ASKED_AGAIN:
        whole = await coordinator_problem(here.lane) or whole
    response.error_code = whole or ErrorCode.NONE
    return response


async def join(broker: Broker, request: JoinTransactionRequest) -> JoinTransactionResponse:
    """Ask the coordinator of a transaction, wherever it is, until it decides or time runs out."""
    deadline = broker.environment.monotonic() + ASKING_S_MAX
    pause_s = PAUSE_S_MIN
    while True:
        answer = await _asked_once(broker, request)
        left_s = deadline - broker.environment.monotonic()
        errors = {answer.error_code, *(part.error_code for part in answer.partitions)}
        errors.update(part.error_code for part in answer.groups)
        if errors.isdisjoint(ASKED_AGAIN) or left_s <= pause_s:
            return answer
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_S_MAX)


async def _asked_once(broker: Broker, request: JoinTransactionRequest) -> JoinTransactionResponse:
    name = request.transactional_id
    here = broker.transactions_of(name)
    if isinstance(here, LaneTransactions):
        return await joined(here, request)
    try:
        return await broker.ask_leader(
            broker.lane_of_name(name),
            request,
            JoinTransactionResponse,
            version=0,
            timeout_s=ASK_TIMEOUT_S,
        )
    except BrokerUnavailable:
        return JoinTransactionResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Opening(NamedTuple):
    """A batch that would open a transaction on a partition of this broker."""

    append: TransactionalAppend
    lane: DataLane

    @property
    def key(self) -> tuple[PartitionId, int, int]:
        append = self.append
        return append.partition, append.producer_id, append.producer_epoch


class Verdicts:
    """The verdicts of another broker's coordinator on the batches of one request.

    A verdict no longer holds if its partition moved away and came back, or if the transaction
    ended.
    """

    def __init__(self, underway: Underway, question: Question) -> None:
        self._underway = underway
        self._question = question
        self._said: dict[tuple[PartitionId, int, int], ErrorCode | Refused | None] = {}
        self._lanes: dict[PartitionId, DataLane] = {}

    def say(self, opening: Opening, said: ErrorCode | Refused | None) -> None:
        self._said[opening.key] = said
        self._lanes[opening.append.partition] = opening.lane

    def of(self, opening: Opening) -> Refused | None:
        """Return the refusal if a batch may not open its transaction now, otherwise None."""
        append = opening.append
        said = self._said.get(opening.key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if said is None and (
            append.partition in self._question.ended
            or self._lanes[append.partition] is not opening.lane
        ):
            said = ErrorCode.CONCURRENT_TRANSACTIONS
        refused = not_verified(append, said) if isinstance(said, ErrorCode) else said
        return self._underway.held_back.judged(append, refused)


async def ask_for_all(broker: Broker, openings: list[Opening], verdicts: Verdicts) -> None:
    """Have the batches of one transactional id verified, with one question for each producer."""
    asked: dict[ProducerIdAndEpoch, list[Opening]] = {}
    for opening in openings:
        refused = wrong_start(opening.append)
        if refused is not None:
            verdicts.say(opening, refused)
            continue
        append = opening.append
        if broker.underway.held_back.is_behind(append):
            verdicts.say(opening, ErrorCode.CONCURRENT_TRANSACTIONS)  # without a question
            continue
        producer = ProducerIdAndEpoch(append.producer_id, append.producer_epoch)
        asked.setdefault(producer, []).append(opening)
    for producer, each in asked.items():
        first = each[0].append
        partitions = [opening.append.partition for opening in each]
        request = JoinTransactionRequest(
            transactional_id=first.transactional_id or "",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            verify_only=first.api_version < ADDS_PARTITIONS_SINCE,
            partitions=[
                JoiningPartition(topic_id=p.topic_id, partition=p.partition) for p in partitions
            ],
        )
        answer = await join(broker, request)
        told = {PartitionId(p.topic_id, p.partition): p.error_code for p in answer.partitions}
        for opening in each:
            error = answer.error_code or told.get(opening.append.partition, 0)
            verdicts.say(opening, ErrorCode(error) if error else None)


async def group_problem(
    broker: Broker, name: str, producer: ProducerIdAndEpoch, group_id: str, *, verify_only: bool
) -> ErrorCode | None:
    """Return why a group's offsets may not join another broker's transaction, or None."""
    groups = broker.groups_of(group_id)
    if isinstance(groups, ErrorCode):
        return groups
    request = JoinTransactionRequest(
        transactional_id=name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=verify_only,
        groups=[JoiningGroup(group_id=group_id)],
    )
    with broker.underway.asking([(producer.producer_id, group_id)]) as question:
        answer = await join(broker, request)
        error = answer.error_code or next((part.error_code for part in answer.groups), 0)
        if not error and (question.ended or broker.groups_of(group_id) is not groups):
            error = ErrorCode.CONCURRENT_TRANSACTIONS
    if not error:
        return None
    # The group's coordinator is the right broker to ask again, and every client knows this error.
    retried = ErrorCode(error) in ASKED_AGAIN
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if retried else ErrorCode(error)
