"""Requests for lanes that this broker is about to serve, or about to leave: they wait a moment, in
their order.

Owns that order: who came first is decided first, also once the lane is there. So a client that was
sent here by the owner before need not be sent away; and one that comes to that owner a moment too
late is not told to look around, but where to go.
"""

import asyncio
from collections.abc import Awaitable, Collection, Mapping

from holdfast.broker.verification import Turns
from holdfast.identifiers import LaneId

WAIT_S_MAX = 2.0
"""A lane that is not served by then may have to wait for its last owner: clients look elsewhere."""


class WaitingRoom:
    """Who waits for which lane."""

    def __init__(self, *moving: Mapping[LaneId, asyncio.Future[None]]) -> None:
        self._moving = moving
        """Lanes that will be here, or gone, when these futures are resolved."""
        self._turns = Turns()

    @property
    def is_needed(self) -> bool:
        """Whether anybody might have to wait; asked for each request."""
        return any(self._moving) or self._turns.are_taken

    def wait(self, lanes: Collection[LaneId]) -> Awaitable[asyncio.Future[None]] | None:
        """Something to wait for, which then is the request's turn, to be resolved once it is
        decided; None where no lane of these is about to come or to go."""
        for lane in sorted(lanes):
            name = str(lane)
            barrier = self._barrier(lane)
            if barrier is not None or self._turns.is_taken(name):
                return self._turns.wait(name, barrier, WAIT_S_MAX)
        return None

    async def arrival(self, lanes: Collection[LaneId]) -> None:
        """Wait until those of the lanes that are about to come are there, and those that are about
        to go are gone: for requests whose order does not matter."""
        barriers = {barrier for lane in lanes if (barrier := self._barrier(lane)) is not None}
        if barriers:
            await asyncio.wait(barriers, timeout=WAIT_S_MAX)

    def _barrier(self, lane: LaneId) -> asyncio.Future[None] | None:
        found = (futures[lane] for futures in self._moving if lane in futures)
        return next(found, None)
