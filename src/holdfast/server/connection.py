"""One TCP connection: a transport on one side, the core and the dispatcher on the other.

Owns when this peer is read from and when it is left waiting. Must never dispatch a request before
the one that arrived ahead of it, nor read on while a bound is reached.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import cast

from holdfast.protocol.connection import (
    CLOSE,
    Close,
    Connection,
    Reply,
    Request,
    ServedApis,
)
from holdfast.protocol.frames import FrameReceiver
from holdfast.protocol.primitives import MalformedMessage
from holdfast.server.events import event
from holdfast.server.limits import Limits
from holdfast.server.memory import RequestMemory
from holdfast.server.peer import Dispatcher, Peer
from holdfast.server.writing import write

FLUSH_BYTES = 1024 * 1024
"""Replies that are ready are gathered to one write, up to this."""
IMMEDIATE = (list, tuple, Close)


class ConnectionHost:
    """What the connections of one server have in common."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        served: ServedApis,
        limits: Limits,
        memory: RequestMemory,
        scratch: memoryview,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.dispatcher = dispatcher
        self.served = served
        self.limits = limits
        self.memory = memory
        self.scratch = scratch
        self.loop = loop
        self.gathers = type(loop).__module__.partition(".")[0] == "uvloop"
        self.connections: set[TcpConnection] = set()
        self.is_stopping = False


class TcpConnection(asyncio.BufferedProtocol):
    """The protocol object that asyncio or uvloop drives."""

    def __init__(self, host: ConnectionHost, listener: str, on_lost: Callable[[], None]) -> None:
        self._host = host
        self._listener = listener
        self._on_lost = on_lost
        self._receiver = FrameReceiver(host.scratch, frame_bytes_max=host.limits.frame_bytes_max)
        self._core = Connection(host.served)
        self._transport: asyncio.Transport | None = None
        self._peer = Peer(host="?", port=0, listener=listener)
        self._backlog: deque[bytearray] = deque()
        self._held_bytes = 0
        self._counted_bytes = 0
        self._awaited_bytes = 0
        self._is_waiting_for_memory = False
        self._is_reading = True
        self._is_write_paused = False
        self._is_draining = False
        self._is_flush_due = False
        self.active_at = host.loop.time()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername") or ("local", 0)
        self._peer.host, self._peer.port = str(address[0]), int(address[1])
        host = self._host
        if host.is_stopping or len(host.connections) >= host.limits.connections_max:
            event(
                logging.WARNING,
                "connection_refused",
                peer=self._peer,
                listener=self._listener,
                connections=len(host.connections),
            )
            self._transport.abort()
            return
        host.connections.add(self)
        self._transport.set_write_buffer_limits(high=host.limits.write_buffer_bytes_max)
        event(logging.DEBUG, "connection_opened", peer=self._peer, listener=self._listener)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.active_at = self._host.loop.time()
        receiver = self._receiver
        frames = receiver.received(nbytes)
        whole = sum(map(len, frames))
        self._held_bytes += whole
        self._backlog.extend(frames)
        self._count_memory(whole)
        self._advance()
        if receiver.violation is not None and self._transport is not None:
            self._violate(receiver.violation)

    def eof_received(self) -> bool:
        """The peer is gone: what is written goes out, replies under way are dropped (Kafka too)."""
        return False

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self.active_at = self._host.loop.time()
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        host = self._host
        self._transport = None
        self._backlog.clear()
        whole, unfinished = self._held_bytes, self._counted_bytes - self._held_bytes
        self._counted_bytes = self._held_bytes = 0
        host.memory.leave(self, whole=whole, unfinished=unfinished)
        if self in host.connections:
            host.connections.remove(self)
            event(
                logging.DEBUG,
                "connection_closed",
                peer=self._peer,
                listener=self._listener,
                error=exc,
                unanswered=self._core.unanswered,
            )
            host.dispatcher.disconnected(self._peer)
        self._on_lost()

    # What the server calls.

    @property
    def is_idle(self) -> bool:
        return not self._core.unanswered

    @property
    def under_way_bytes(self) -> int:
        """The memory of a frame that has not arrived whole."""
        return self._receiver.allocated_bytes

    def drain(self) -> None:
        """Read no more; close when the requests that were dispatched are answered."""
        self._is_draining = True
        self._backlog.clear()
        self._advance()

    def close(self, reason: str) -> None:
        """Close after what is written is out."""
        if self._transport is not None:
            event(logging.INFO, "connection_ended", peer=self._peer, reason=reason)
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Requests and replies.

    def _advance(self) -> None:
        """Dispatch what may be dispatched, write what is ready, and set whether to read on."""
        while self._backlog and self._may_dispatch():
            self._take(self._backlog.popleft())
            if self._core.outgoing_bytes > FLUSH_BYTES:
                self._flush()
        self._flush()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._is_draining and not self._core.unanswered and not self._backlog:
            transport.close()
            return
        self._set_reading(
            not self._backlog
            and not self._is_draining
            and not self._is_waiting_for_memory
            and self._may_dispatch()
            and self._memory_has_room()
        )

    def _may_dispatch(self) -> bool:
        transport = self._transport
        if transport is None or self._is_write_paused or transport.is_closing():
            return False
        unanswered = self._core.unanswered
        if unanswered == 0:
            return True
        limits = self._host.limits
        return (
            unanswered < limits.unanswered_requests_max
            and self._held_bytes <= limits.unanswered_bytes_max
        )

    def _take(self, frame: bytearray) -> None:
        request = self._core.accept(frame)
        if isinstance(request, Request):
            self._dispatch(request)
            return
        self._release(len(frame))
        if request is not None:
            self._violate(request.reason)

    def _dispatch(self, request: Request) -> None:
        try:
            result = self._host.dispatcher.dispatch(request, self._peer)
        except Exception as problem:
            self._fail(request, problem)
            return
        if result is None or isinstance(result, IMMEDIATE):
            self._answer(request, cast(Reply, result))
            return
        waiting = asyncio.ensure_future(cast(Awaitable[Reply], result), loop=self._host.loop)
        waiting.add_done_callback(lambda done: self._answer_later(request, done))

    def _answer_later(self, request: Request, done: asyncio.Future[Reply]) -> None:
        if done.cancelled():
            self._answer(request, CLOSE)
        elif (problem := done.exception()) is not None:
            self._fail(request, problem)
        else:
            self._answer(request, done.result())
        self._schedule_flush()

    def _answer(self, request: Request, reply: Reply) -> None:
        self._release(request.frame_bytes)
        self._core.complete(request, reply)

    def _fail(self, request: Request, problem: BaseException) -> None:
        is_malformed = isinstance(problem, MalformedMessage)
        event(
            logging.WARNING if is_malformed else logging.ERROR,
            "protocol_violation" if is_malformed else "request_failed",
            peer=self._peer,
            api=request.api_key.name,
            version=request.version,
            client_id=request.client_id,
            reason=repr(problem),
        )
        self._answer(request, CLOSE)

    def _violate(self, reason: str) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            event(logging.WARNING, "protocol_violation", peer=self._peer, reason=reason)
            self._flush()
            transport.close()

    # Writing.

    def _schedule_flush(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._host.loop.call_soon(self._flush_due)

    def _flush_due(self) -> None:
        self._is_flush_due = False
        self._advance()

    def _flush(self) -> None:
        outgoing = self._core.take_outgoing()
        transport = self._transport
        if transport is None:
            return
        if outgoing:
            self.active_at = self._host.loop.time()
            write(transport, outgoing, gathers=self._host.gathers)
        if self._core.is_closing and not transport.is_closing():
            event(logging.INFO, "connection_ended", peer=self._peer, reason="closed by its handler")
            transport.close()

    # Memory.

    def _count_memory(self, whole: int) -> None:
        """Count what has arrived, and before a frame's buffer grows, see that there is room."""
        memory = self._host.memory
        arrived = self._held_bytes + self._receiver.allocated_bytes
        if arrived > self._counted_bytes:
            memory.take(arrived - self._counted_bytes)
            self._counted_bytes = arrived
        if whole:
            memory.take_whole(self, whole)
        growth = self._receiver.growth_bytes
        if growth:
            if memory.try_reserve(self, growth):
                self._counted_bytes += growth
            else:
                self._wait_for_memory(growth)

    def _release(self, count: int) -> None:
        if self._counted_bytes:
            self._held_bytes -= count
            self._counted_bytes -= count
            self._host.memory.give_back(count)

    def _memory_has_room(self) -> bool:
        if self._receiver.under_way_bytes or not self._host.memory.is_full:
            return True
        self._wait_for_memory(0)
        return False

    def _wait_for_memory(self, wanted: int) -> None:
        self._is_waiting_for_memory = True
        self._awaited_bytes = wanted
        self._host.memory.wait_for(self, wanted)

    def memory_is_there(self) -> None:
        self._is_waiting_for_memory = False
        self._counted_bytes += self._awaited_bytes
        self._schedule_flush()

    def _set_reading(self, wanted: bool) -> None:
        if wanted == self._is_reading or self._transport is None:
            return
        self._is_reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
