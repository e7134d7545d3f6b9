"""End a transaction where other brokers lead: look what is open, then end exactly that.

Owns the two rounds of EndTransactionParts, for the coordinator. A producer may keep its epoch over
transactions, so a message that is late or repeated must name what it ends: it can then never end a
later transaction. Must never send an end unless the coordinator's claim was proved after what the
end names was told: a successor serves only when that proof is out of date, so what was open then is
of the transaction that ends.
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
from holdfast.transactions.state import Marker

R = TypeVar("R", bound=Message)
TIMEOUT_S = 5.0


class PartsLeft(RetryError):
    """Some parts of a transaction are not ended yet."""


class Leaders(Protocol):
    """The brokers that lead the parts."""

    def leader_of(self, lane: LaneId) -> Leader | None: ...

    async def ask_leader(
        self, lane: LaneId, request: Message, answer: type[R], *, version: int, timeout_s: float
    ) -> R:
        """Raises BrokerUnavailable."""
        ...


class DistantPart(NamedTuple):
    """What of a transaction another broker leads: a partition, or a group by its id."""

    lane: LaneId
    part: PartitionId | str


async def end_parts(
    leaders: Leaders,
    lane: DataLane,
    transactional_id: str,
    marker: Marker,
    parts: Iterable[DistantPart],
) -> None:
    """End a transaction on all these parts, as its coordinator in a lane; when this returns, that
    is durable. Raises PartsLeft, or what kept it: then all of it may be repeated."""
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
    marker: Marker,
    parts: list[DistantPart],
) -> None:
    """The two rounds with one broker."""

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
    await lane.appender.validate()
    if not lane.appender.is_open:
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
