"""Producer ids that were never used before, in blocks that are reserved in the control lane.

Owns the block from which this broker hands out ids. Must never hand out an id whose reservation is
not durable.
"""

import asyncio
from typing import Protocol, TypeVar

from holdfast.broker.cluster.view import ClusterView
from holdfast.client.refusals import BrokerUnavailable
from holdfast.cluster.facts import ProducerIdsReserved
from holdfast.errors import Fenced
from holdfast.identifiers import CONTROL_LANE, LaneId, ProducerId
from holdfast.protocol.message import Message
from holdfast.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

R = TypeVar("R", bound=Message)

BLOCK = 1_000
ASK_TIMEOUT_S = 5.0


class AskLeader(Protocol):
    """A function that sends a request to the broker that leads a lane."""

    async def __call__(
        self, lane: LaneId, request: Message, answer: type[R], *, version: int, timeout_s: float
    ) -> R: ...


class ProducerIds:
    """The producer ids of one broker."""

    def __init__(self, view: ClusterView, ask_leader: AskLeader) -> None:
        self._view = view
        self._ask_leader = ask_leader
        self._next: int = 0
        self._end: int = 0
        self._lock = asyncio.Lock()

    async def next(self) -> ProducerId:
        async with self._lock:
            if self._next == self._end:
                self._next, self._end = await self._new_block()
            self._next += 1
            return ProducerId(self._next - 1)

    async def _new_block(self) -> tuple[int, int]:
        if self._view.lane is not None:
            return await self.reserve()
        request = AllocateProducerIdsRequest()
        try:
            answer = await self._ask_leader(
                CONTROL_LANE,
                request,
                AllocateProducerIdsResponse,
                version=0,
                timeout_s=ASK_TIMEOUT_S,
            )
        except BrokerUnavailable as error:
            raise Fenced(f"no producer id: the controller did not answer: {error}") from None
        if answer.error_code != 0 or answer.producer_id_len <= 0:
            raise Fenced("no producer id: the controller has changed; try again")
        return answer.producer_id_start, answer.producer_id_start + answer.producer_id_len

    async def reserve(self) -> tuple[int, int]:
        """Reserve a block of ids durably. Only the controller can. Raises Fenced."""
        lane = self._view.lane
        if lane is None or not lane.is_open:
            raise Fenced("this broker is not the controller")
        first = self._view.state.next_producer_id
        lane.add(ProducerIdsReserved(first + BLOCK))
        await lane.flush()
        return first, first + BLOCK
