"""Requests for lanes that this broker is about to serve, or about to leave, wait here in order.

Owns that order: the request that came first is decided first, also once the lane is there. So a
client that the previous owner sent here need not be sent away. And a client that reaches that owner
a moment too late hears where to go, and need not look around.
"""

import asyncio
from collections.abc import Awaitable, Collection, Mapping

from holdfast.broker.transactions.verification import RequestOrder
from holdfast.identifiers import LaneId

WAIT_S_MAX = 2.0
"""The longest wait. A lane that is not served by then may have to wait for its previous owner, and
its clients look elsewhere."""


class WaitingRoom:
    """The requests that wait for each lane."""

    def __init__(self, *moving: Mapping[LaneId, asyncio.Future[None]]) -> None:
        self._moving = moving
        """Futures by lane. Each resolves when its lane is here, or gone."""
        self._turns = RequestOrder()

    @property
    def is_needed(self) -> bool:
        """True if any request might have to wait. This is asked for each request."""
        return any(self._moving) or self._turns.are_taken

    def wait(self, lanes: Collection[LaneId]) -> Awaitable[asyncio.Future[None]] | None:
        """Return an awaitable of the request's turn, or None if no lane of these is about to move.

        The turn is a future that the caller resolves once the request is decided.
        """
        for lane in sorted(lanes):
            name = str(lane)
            barrier = self._barrier(lane)
            if barrier is not None or self._turns.is_taken(name):
                return self._turns.wait(name, barrier, WAIT_S_MAX)
        return None

    async def arrival(self, lanes: Collection[LaneId]) -> None:
        """Wait until these lanes are here, or gone: for requests whose order does not matter."""
        barriers = {barrier for lane in lanes if (barrier := self._barrier(lane)) is not None}
        if barriers:
            await asyncio.wait(barriers, timeout=WAIT_S_MAX)

    def _barrier(self, lane: LaneId) -> asyncio.Future[None] | None:
        found = (futures[lane] for futures in self._moving if lane in futures)
        return next(found, None)
