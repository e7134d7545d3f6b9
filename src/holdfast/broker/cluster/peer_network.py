"""Requests to other brokers. This is the only way to them.

Owns the connections. Must never retry: the caller knows whether a retry is right.
"""

import asyncio
import contextlib
from typing import Protocol, TypeVar

from holdfast.client.address import Address
from holdfast.client.connection import BrokerConnection
from holdfast.client.refusals import BrokerUnavailable
from holdfast.protocol.message import Message

R = TypeVar("R", bound=Message)

PEER_CLIENT_ID = "holdfast-broker"
"""The client id of brokers among themselves. A request with it is not forwarded again."""
CONNECT_MS_MAX = 3_000


class PeerNetwork(Protocol):
    """Requests to other brokers."""

    async def ask(
        self,
        address: Address,
        request: Message,
        answer: type[R],
        *,
        version: int,
        timeout_s: float,
    ) -> R:
        """Send a request. Raises BrokerUnavailable, or NobodyListens if no process is there."""
        ...

    async def accepts(self, address: Address, *, timeout_s: float) -> bool:
        """Return True if an address accepts a new connection.

        If it does, the network is not the reason why the broker there does not answer.
        """
        ...

    async def close(self) -> None: ...


class TcpPeers:
    """TCP connections, one for each broker and kind of request, opened when needed.

    Responses come in order: on one connection, a ping would wait for a hand-over.
    """

    def __init__(self) -> None:
        self._connections: dict[tuple[Address, int], asyncio.Task[BrokerConnection]] = {}

    async def ask(
        self,
        address: Address,
        request: Message,
        answer: type[R],
        *,
        version: int,
        timeout_s: float,
    ) -> R:
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._connection(address, request.API_KEY)
                return await connection.request(
                    request, answer, version=version, timeout_ms=int(timeout_s * 1000)
                )
        except TimeoutError:
            raise BrokerUnavailable(f"{address} did not answer within {timeout_s} s") from None

    async def accepts(self, address: Address, *, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                _, writer = await asyncio.open_connection(address.host, address.port)
        except OSError:
            return False
        writer.close()
        return True

    async def _connection(self, address: Address, api_key: int) -> BrokerConnection:
        opening = self._connections.get((address, api_key))
        if opening is None or _is_unusable(opening):
            opening = asyncio.get_running_loop().create_task(
                BrokerConnection.open(address, client_id=PEER_CLIENT_ID, timeout_ms=CONNECT_MS_MAX)
            )
            opening.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._connections[address, api_key] = opening
        return await asyncio.shield(opening)

    async def close(self) -> None:
        connections, self._connections = self._connections, {}
        for opening in connections.values():
            opening.cancel()
            with contextlib.suppress(asyncio.CancelledError, BrokerUnavailable):
                await (await opening).close()


def _is_unusable(opening: "asyncio.Task[BrokerConnection]") -> bool:
    if not opening.done():
        return False
    return opening.cancelled() or opening.exception() is not None or not opening.result().is_open
