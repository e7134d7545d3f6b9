"""The queue of connections whose requests take long: it decides which one is served next.

Owns the queue. Connections with short requests are not in it: they are served as soon as something
arrives. Must never hold back a connection forever, nor serve two connections of the queue in one
turn of the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

SLICE_SECONDS_MAX = 0.005
"""How long requests of one connection are dispatched before other connections get their turn."""
LONG_SECONDS = 0.002
"""A request that takes longer than this is followed by a rest of the same length."""
REST_SECONDS_MAX = 0.1
ALONE_SECONDS = 0.1
"""The queue does not rest if no other connection has sent a request for this long."""


class TakesTurns(Protocol):
    """A connection that can wait in the queue."""

    def take_turn(self) -> None:
        """Dispatch for at most SLICE_SECONDS_MAX, and then finish the request under way."""
        ...


class ConnectionTurns:
    """The queue of the connections of one server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self._loop = loop
        self._clock = clock
        self._waiting: deque[TakesTurns] = deque()
        self._is_due = False
        self._rest_until = 0.0
        self._short_at = -ALONE_SECONDS

    def had_short_turn(self, now: float) -> None:
        """Note that requests of a connection outside of the queue were dispatched."""
        self._short_at = now

    def had_long_request(self, seconds: float, now: float) -> None:
        """Let the queue rest for as long as a request took, so that others get half of the time."""
        if now - self._short_at < ALONE_SECONDS:
            self._rest_until = max(self._rest_until, now + min(seconds, REST_SECONDS_MAX))

    def wait(self, connection: TakesTurns) -> None:
        """Queue a connection: its `take_turn` is called once, when it is its turn."""
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
