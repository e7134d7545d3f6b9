"""Dispatch: decode a request, call its handler, and encode the response.

Owns the order of these steps. Must never keep state, nor know a particular API.
"""

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any, Protocol, cast

from holdfast.broker.broker import Broker
from holdfast.broker.cluster.forwarding import forward
from holdfast.broker.context import RequestContext
from holdfast.broker.endpoints import ENDPOINTS, SERVED, Endpoint
from holdfast.broker.reply_memory import ReplyAccount
from holdfast.broker.settling import then
from holdfast.protocol.connection import Reply, Request
from holdfast.protocol.message import Message


class RequestOrigin(Protocol):
    """The connection that a request came from."""

    @property
    def host(self) -> str: ...

    @property
    def replies(self) -> ReplyAccount: ...


class Dispatch:
    """Hands each request to its handler."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        broker.served_apis = SERVED.entries()

    def dispatch(self, request: Request, peer: RequestOrigin) -> Reply | Awaitable[Reply]:
        """Let the handler decide at once, in the order of arrival. The response may come later."""
        endpoint = ENDPOINTS[request.api_key]
        message = endpoint.request.decode(request.body, request.version)
        context = RequestContext(
            api_version=request.version,
            client_id=request.client_id,
            client_host=peer.host,
            replies=peer.replies,
        )
        answer = _handled(self._broker, endpoint, message, context)
        if isinstance(answer, asyncio.Future):
            return _encoded_after(cast("asyncio.Future[Message | None]", answer), request.version)
        if inspect.isawaitable(answer):
            return _encoded_later(answer, request.version)
        return _encoded(answer, request.version)

    def disconnected(self, peer: RequestOrigin) -> None:
        """Do nothing: no state is kept for a connection."""


async def answer(broker: Broker, message: Message, context: RequestContext) -> Any:
    """Return the response to a decoded request.

    The path is the same as for a client, but without bytes: for tests and the simulation.
    """
    given = _handled(broker, ENDPOINTS[message.API_KEY], message, context)
    return await given if inspect.isawaitable(given) else given


def _handled(broker: Broker, endpoint: Endpoint, message: Message, context: RequestContext) -> Any:
    if endpoint.api.forward_to is not None:
        other = forward(broker, endpoint, message, context)
        if other is not None:
            return _by(other, broker, endpoint, message, context)
    return endpoint.handle(broker, message, context)


async def _by(
    other: Awaitable[Any],
    broker: Broker,
    endpoint: Endpoint,
    message: Message,
    context: RequestContext,
) -> Any:
    """Return the other broker's response, or this broker's if there is none."""
    given = await other
    if given is not None:
        return given
    given = endpoint.handle(broker, message, context)
    return await given if inspect.isawaitable(given) else given


def _encoded_after(answer: asyncio.Future[Message | None], version: int) -> asyncio.Future[Reply]:
    return then(answer, lambda done: _encoded(done.result(), version))


async def _encoded_later(answer: Awaitable[Message | None], version: int) -> Reply:
    message = await answer
    if message is None or not message.is_long():
        return _encoded(message, version)
    slices = message.encode_in_slices(version)
    while True:
        try:
            next(slices)
        except StopIteration as done:
            return done.value
        await asyncio.sleep(0)


def _encoded(answer: Message | None, version: int) -> Reply:
    return answer.encode(version) if answer is not None else None
