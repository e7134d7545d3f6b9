"""The network between simulated clients and processes: ordered per connection, late, or lossy.

Owns delay and loss. A request runs inside the process that serves it, so it dies or pauses with
that process. Must never run a handler in its caller's process.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar, cast

from holdfast.environment import Environment
from holdfast.errors import HoldfastError, RetryError
from simulation.virtual_loop import VirtualLoop

T = TypeVar("T")
Handler = Callable[[], Coroutine[Any, Any, Any]]

IN_ORDER_SECONDS = 1e-6


class Unanswered(RetryError):
    """No reply came, or the connection broke: the outcome of the request is unknown."""


class NetworkPlan(NamedTuple):
    """The delay and the losses of the network."""

    delay_seconds: tuple[float, float] = (0.0001, 0.002)
    request_lost: float = 0.0
    reply_lost: float = 0.0
    reset_after_seconds: float = 0.05
    """How long it takes until a client learns that the process at the other end is gone."""


class _Request(NamedTuple):
    handler: Handler
    reply: "asyncio.Future[Any]"


class SimulatedConnection:
    """One client's connection to one process; its requests arrive, and begin to run, in order."""

    def __init__(self, network: "Network", process: str) -> None:
        self.process = process
        self._network = network
        self._last_arrival = 0.0
        self._arrived: deque[_Request] = deque()

    async def call(self, handler: Callable[[], Coroutine[Any, Any, T]], timeout_s: float) -> T:
        """Have the process run the handler. Raises Unanswered, or what the handler raised."""
        network = self._network
        loop = network.loop
        request = _Request(handler, loop.create_future())
        arrives = max(self._last_arrival + IN_ORDER_SECONDS, loop.time() + network.delay())
        self._last_arrival = arrives
        loop.call_at(arrives, self._arrive, request, context=network.context)
        try:
            async with asyncio.timeout(timeout_s):
                return cast(T, await request.reply)
        except TimeoutError:
            raise Unanswered(f"no reply of {self.process} within {timeout_s} s") from None

    def _arrive(self, request: _Request) -> None:
        network = self._network
        if network.loses_request():
            return
        if not network.loop.is_alive(self.process):
            _fail_later(network, request, Unanswered(f"{self.process} is gone"))
            return
        self._arrived.append(request)
        network.loop.spawn(self.process, self._serve_next())

    async def _serve_next(self) -> None:
        request = self._arrived.popleft()
        network = self._network
        try:
            result = await request.handler()
        except HoldfastError as error:
            network.send_back(request.reply, None, error)
        except Exception as error:
            network.crashes.append(f"{self.process}: a handler raised {error!r}")
            network.send_back(request.reply, None, Unanswered(f"{self.process} failed: {error!r}"))
        else:
            network.send_back(request.reply, result, None)


def _fail_later(network: "Network", request: _Request, error: Exception) -> None:
    loop = network.loop
    when = loop.time() + network.plan.reset_after_seconds
    loop.call_at(when, settle, request.reply, None, error, context=network.context)


class Network:
    """All connections of a simulation, with one plan of delays and losses."""

    def __init__(self, loop: VirtualLoop, environment: Environment, plan: NetworkPlan) -> None:
        self.loop = loop
        self.plan = plan
        self.context = contextvars.Context()
        self.crashes: list[str] = []
        self.is_healed = False
        self._chance = environment.random()

    def connect(self, process: str) -> SimulatedConnection:
        return SimulatedConnection(self, process)

    def delay(self) -> float:
        low, high = self.plan.delay_seconds
        return low + (high - low) * self._chance.random()

    def loses_request(self) -> bool:
        return not self.is_healed and self._chance.random() < self.plan.request_lost

    def send_back(self, reply: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
        if not self.is_healed and self._chance.random() < self.plan.reply_lost:
            return
        self.deliver(reply, result, error)

    def deliver(self, reply: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
        """Deliver an answer that cannot be lost, after a delay."""
        when = self.loop.time() + self.delay()
        self.loop.call_at(when, settle, reply, result, error, context=self.context)


def settle(reply: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    """Complete the caller's future; an answer that comes too late is ignored."""
    if reply.done():
        return
    if error is not None:
        reply.set_exception(error)
    else:
        reply.set_result(result)
