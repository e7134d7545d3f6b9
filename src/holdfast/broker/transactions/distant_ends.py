"""End a transaction's parts on other brokers, in two rounds: look for open parts, then end those.

Owns the coordinator's side of EndTransactionParts. A producer may keep its epoch over several
transactions, so a message that is late or repeated must name the first offset or the token that it
ends: then it can never end a later transaction. Must never start the second round before the
coordinator's claim was proved again, after the first round was answered. A successor serves only
when that proof is out of date, so everything that was open then belongs to the transaction that
ends.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeVar

from holdfast.cluster.peers import Leader
from holdfast.errors import Fenced, RetryError
from holdfast.identifiers import BrokerId, LaneId, PartitionId
from holdfast.log.data_lane import DataLane
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.message import Message
from holdfast.protocol.messages.end_transaction_parts import (
    EndedGroup,
    EndedPartition,
    EndTransactionPartsRequest,
    EndTransactionPartsResponse,
)
from holdfast.transactions.state import PendingMarker

R = TypeVar("R", bound=Message)
TIMEOUT_S = 5.0


class PartsLeft(RetryError):
    """Some parts of a transaction are not ended yet."""


class Leaders(Protocol):
    """The brokers that lead the parts of a transaction."""

    def leader_of(self, lane: LaneId) -> Leader | None: ...

    async def ask_leader(
        self, lane: LaneId, request: Message, answer: type[R], *, version: int, timeout_s: float
    ) -> R:
        """Send a request to the broker that leads a lane. Raises BrokerUnavailable."""
        ...


class DistantPart(NamedTuple):
    """A part of a transaction that another broker leads: a partition, or a group by its id."""

    lane: LaneId
    part: PartitionId | str


async def end_parts(
    leaders: Leaders,
    lane: DataLane,
    transactional_id: str,
    marker: PendingMarker,
    parts: Iterable[DistantPart],
) -> None:
    """End a transaction on these parts, as its coordinator. When this returns, that is durable.

    Raises PartsLeft, or the error that prevented it. Then all of it may be repeated.
    """
    by_broker: dict[BrokerId, list[DistantPart]] = {}
    left: list[DistantPart] = []
    for part in parts:
        leader = leaders.leader_of(part.lane)
        (left if leader is None else by_broker.setdefault(leader.broker_id, [])).append(part)
    ended = await asyncio.gather(
        *(
            _end_at_one(leaders, lane, transactional_id, marker, each)
            for each in by_broker.values()
        ),
        return_exceptions=True,
    )
    for failed in ended:
        if isinstance(failed, BaseException):
            raise failed
    if left:
        lanes = sorted({part.lane for part in left})
        raise PartsLeft(f"no broker is known to lead the lanes {lanes}")


async def _end_at_one(
    leaders: Leaders,
    lane: DataLane,
    transactional_id: str,
    marker: PendingMarker,
    parts: list[DistantPart],
) -> None:
    """Run both rounds with one broker."""

    async def ask(
        partitions: list[EndedPartition], groups: list[EndedGroup]
    ) -> EndTransactionPartsResponse:
        request = EndTransactionPartsRequest(
            transactional_id=transactional_id,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            committed=marker.committed,
            coordinator_epoch=lane.leader_epoch,
            partitions=partitions,
            groups=groups,
        )
        return await leaders.ask_leader(
            parts[0].lane, request, EndTransactionPartsResponse, version=0, timeout_s=TIMEOUT_S
        )

    looked = await ask(
        [
            EndedPartition(topic_id=part.topic_id, partition=part.partition)
            for _, part in parts
            if isinstance(part, PartitionId)
        ],
        [EndedGroup(group_id=part) for _, part in parts if isinstance(part, str)],
    )
    await lane.validate()
    if not lane.is_open:
        raise Fenced(
            f"lane {lane.lane}: this broker is closing it; its next owner ends its transactions"
        )
    partitions = [
        EndedPartition(
            topic_id=part.topic_id,
            partition=part.partition,
            leader_epoch=part.leader_epoch,
            first_offset=part.first_offset,
        )
        for part in looked.partitions
        if part.error_code == 0
    ]
    groups = [
        EndedGroup(group_id=part.group_id, token=part.token)
        for part in looked.groups
        if part.error_code == 0
    ]
    if partitions or groups:
        _raise_for_left(await ask(partitions, groups))
    _raise_for_left(looked)


def _raise_for_left(answer: EndTransactionPartsResponse) -> None:
    left = [
        f"partition {part.partition} of topic {part.topic_id}: {ErrorCode(part.error_code).name}"
        for part in answer.partitions
        if part.error_code != 0
    ]
    left += [
        f"group {part.group_id}: {ErrorCode(part.error_code).name}"
        for part in answer.groups
        if part.error_code != 0
    ]
    if left:
        raise PartsLeft(f"the transaction is not ended on {', '.join(left)}")
