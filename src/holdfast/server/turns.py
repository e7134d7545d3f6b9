"""Which connection has its requests dispatched next, of those whose requests take long.

Owns their queue. Connections whose requests are short do not come here: they are served as soon as
something arrives. Must never hold back a connection for ever, nor run two of the queue between two
turns of the loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

SLICE_SECONDS_MAX = 0.005
"""How long the requests of one connection are dispatched before others have their turn."""
LONG_SECONDS = 0.002
"""A request that takes longer than this is followed by a rest of the same length."""
REST_SECONDS_MAX = 0.1
ALONE_SECONDS = 0.1
"""Nobody rests where no other connection has sent a request for so long."""


class TakesTurns(Protocol):
    """A connection."""

    def take_turn(self) -> None:
        """Dispatch for at most SLICE_SECONDS_MAX, and the request under way then."""
        ...


class Turns:
    """The queue of the connections of one server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self._loop = loop
        self._clock = clock
        self._waiting: deque[TakesTurns] = deque()
        self._is_due = False
        self._rest_until = 0.0
        self._short_at = -ALONE_SECONDS

    def had_short_turn(self, now: float) -> None:
        """A connection that is not in the queue had its requests dispatched."""
        self._short_at = now

    def had_long_request(self, seconds: float, now: float) -> None:
        """The queue rests for as long as a request took, so that others get half of the time."""
        if now - self._short_at < ALONE_SECONDS:
            self._rest_until = max(self._rest_until, now + min(seconds, REST_SECONDS_MAX))

    def wait(self, connection: TakesTurns) -> None:
        """Have `take_turn` called once, when it is the connection's turn."""
        self._waiting.append(connection)
        if not self._is_due:
            self._schedule()

    def _schedule(self) -> None:
        self._is_due = True
        rest = self._rest_until - self._clock()
        if rest > 0:
            self._loop.call_later(rest, self._next)
        else:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._is_due = False
        if self._rest_until <= self._clock():
            self._waiting.popleft().take_turn()
        if self._waiting and not self._is_due:
            self._schedule()
