"""The gate between a listening socket and a broker that is still starting.

Owns how long requests wait. Must never drop a request, nor answer one by itself.
"""

import asyncio
import logging
from collections.abc import Awaitable

from holdfast.broker.broker import Broker
from holdfast.broker.dispatch import Dispatch
from holdfast.broker.endpoints import BETWEEN_BROKERS
from holdfast.protocol.api import ApiKey
from holdfast.protocol.connection import Reply, Request
from holdfast.server.peer import Peer

START_PATIENCE_S = 10.0
"""How long requests wait for a starting broker. If it takes longer, a person has to act, for
example because a disk is full: then clients get what is known, or errors that they retry."""

log = logging.getLogger("holdfast.serve")


class Gate:
    """Lets clients connect while the broker starts: their requests wait, and none is lost.

    The broker listens first, so that it finds a port in use before it claims any lane.
    """

    def __init__(self) -> None:
        self._dispatch: asyncio.Future[Dispatch] = asyncio.get_running_loop().create_future()
        self._opened = asyncio.Event()

    def let_brokers_in(self, dispatch: Dispatch) -> None:
        """Answer other brokers: two that start at the same time must hear each other."""
        self._dispatch.set_result(dispatch)

    def open(self) -> None:
        self._opened.set()

    async def open_late(self, broker: Broker) -> None:
        """Open before the broker is ready, if that takes long.

        Requests for partitions that it does not serve yet get errors that clients retry.
        """
        await asyncio.sleep(START_PATIENCE_S)
        await broker.cluster_known.wait()
        if not self._opened.is_set():
            log.warning(
                "start_takes_long seconds=%d: clients are let in now; partitions that are not ready"
                " yet answer with errors that clients retry",
                START_PATIENCE_S,
            )
            self.open()

    def _waits(self, request: Request) -> bool:
        if request.api_key in BETWEEN_BROKERS or request.api_key == ApiKey.API_VERSIONS:
            return False
        return not self._opened.is_set()

    def dispatch(self, request: Request, peer: Peer) -> Reply | Awaitable[Reply]:
        if self._dispatch.done() and not self._waits(request):
            return self._dispatch.result().dispatch(request, peer)
        return self._later(request, peer)

    async def _later(self, request: Request, peer: Peer) -> Reply:
        dispatch = await asyncio.shield(self._dispatch)
        if self._waits(request):
            await self._opened.wait()
        reply = dispatch.dispatch(request, peer)
        return await reply if isinstance(reply, Awaitable) else reply

    def disconnected(self, peer: Peer) -> None:
        if self._dispatch.done():
            self._dispatch.result().disconnected(peer)
