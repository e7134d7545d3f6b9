"""The TCP server: accepts connections, closes idle ones, and stops without losing a reply.

Owns the set of connections and their lifetime. Must never look into a request.
"""

import asyncio
import logging
import ssl

from holdfast.broker.reply_memory import ReplyMemory
from holdfast.errors import ConfigurationError
from holdfast.protocol.connection import ServedApis
from holdfast.protocol.frames import SCRATCH_BYTES
from holdfast.server.connection import ConnectionHost, TcpConnection
from holdfast.server.events import event
from holdfast.server.limits import ServerLimits
from holdfast.server.memory import RequestMemory
from holdfast.server.peer import Dispatcher

SWEEP_SECONDS = 1.0


class TcpServer:
    """Kafka over TCP on one or more listeners of one event loop."""

    def __init__(
        self, *, dispatcher: Dispatcher, served: ServedApis, limits: ServerLimits | None = None
    ) -> None:
        self.limits = limits or ServerLimits()
        self.memory = RequestMemory(self.limits.queued_bytes_max)
        self.replies = ReplyMemory(self.limits.reply_bytes_max)
        self._dispatcher = dispatcher
        self._served = served
        self._host: ConnectionHost | None = None
        self._listeners: list[asyncio.Server] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._emptied = asyncio.Event()

    @property
    def connections(self) -> int:
        return len(self._host.connections) if self._host else 0

    async def listen(
        self,
        host: str,
        port: int,
        *,
        listener: str = "PLAINTEXT",
        tls: ssl.SSLContext | None = None,
        backlog: int = 1024,
    ) -> int:
        """Accept connections on this address; return the bound port, also if 0 was requested.

        Raises ConfigurationError if the address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        shared = self._shared(loop)
        try:
            server = await loop.create_server(
                lambda: TcpConnection(shared, listener, self._connection_lost),
                host,
                port,
                ssl=tls,
                backlog=backlog,
            )
        except OSError as problem:
            raise ConfigurationError(f"cannot listen on {host}:{port}: {problem}") from problem
        self._listeners.append(server)
        bound = int(server.sockets[0].getsockname()[1])
        event(logging.INFO, "listening", host=host, port=bound, listener=listener)
        return bound

    async def stop(self, *, wait_seconds: float = 10.0) -> None:
        """Stop accepting and reading, wait for replies under way, flush, close.

        Connections that are not done after `wait_seconds` are aborted.
        """
        for listener in self._listeners:
            listener.close()
        if self._sweep is not None:
            self._sweep.cancel()
        if self._host is None:
            return
        self._host.is_stopping = True
        for connection in tuple(self._host.connections):
            connection.drain()
        if self._host.connections:
            self._emptied.clear()
            try:
                await asyncio.wait_for(self._emptied.wait(), wait_seconds)
            except TimeoutError:
                event(logging.WARNING, "connections_cut", connections=self.connections)
                for connection in tuple(self._host.connections):
                    connection.abort()
        event(logging.INFO, "stopped_listening", listeners=len(self._listeners))

    def _shared(self, loop: asyncio.AbstractEventLoop) -> ConnectionHost:
        if self._host is None:
            self._host = ConnectionHost(
                dispatcher=self._dispatcher,
                served=self._served,
                limits=self.limits,
                memory=self.memory,
                replies=self.replies,
                scratch=memoryview(bytearray(SCRATCH_BYTES)),
                loop=loop,
            )
            self._sweep = loop.call_later(self._sweep_seconds(), self._end_idle)
        return self._host

    def _sweep_seconds(self) -> float:
        return min(SWEEP_SECONDS, self.limits.idle_seconds_max, self.limits.stalled_seconds_max)

    def _connection_lost(self) -> None:
        if self._host is not None and not self._host.connections:
            self._emptied.set()

    def _end_idle(self) -> None:
        host = self._host
        if host is None or host.is_stopping:
            return
        now = host.loop.time()
        limits = self.limits
        for connection in tuple(host.connections):
            silent = now - connection.active_at
            is_deaf = connection.has_stopped_reading(now, limits.stalled_seconds_max)
            if is_deaf and self.replies.is_scarce:
                connection.abort(
                    "it did not read its replies while memory for those of others is scarce"
                )
            elif connection.is_idle and silent > limits.idle_seconds_max:
                connection.close("idle")
            elif connection.is_stalled(now, limits.stalled_seconds_max) and self.memory.has_waiting:
                connection.close(
                    "it stopped in the middle of a request while other connections wait for memory"
                )
        host.events.tell(now)
        self._sweep = host.loop.call_later(self._sweep_seconds(), self._end_idle)
