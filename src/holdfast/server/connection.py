"""One TCP connection, between its transport and the dispatcher.

Owns the decision when this peer is read from and when it must wait. Must never dispatch a request
before an earlier one, nor read on while a limit is reached, nor hold replies that are not counted.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import cast

from holdfast.broker.reply_memory import ReplyAccount, ReplyMemory
from holdfast.environment import SystemEnvironment
from holdfast.protocol.connection import (
    CLOSE,
    Close,
    ConnectionState,
    Reply,
    Request,
    ServedApis,
)
from holdfast.protocol.frames import FrameBuffer, FrameReceiver
from holdfast.protocol.primitives import MalformedMessage
from holdfast.server.events import LimitedEvents, event
from holdfast.server.limits import ServerLimits
from holdfast.server.memory import SMALL_FRAME_BYTES, RequestMemory
from holdfast.server.peer import Dispatcher, Peer
from holdfast.server.progress import Progress
from holdfast.server.turns import LONG_SECONDS, SLICE_SECONDS_MAX, ConnectionTurns
from holdfast.server.writing import write

FLUSH_BYTES = 1024 * 1024
"""The most bytes of finished replies that are gathered into one write."""
IMMEDIATE = (list, tuple, Close)


class ConnectionHost:
    """The state that the connections of one server share."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        served: ServedApis,
        limits: ServerLimits,
        memory: RequestMemory,
        replies: ReplyMemory,
        scratch: memoryview,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.dispatcher = dispatcher
        self.served = served
        self.limits = limits
        self.memory = memory
        self.replies = replies
        self.scratch = scratch
        self.loop = loop
        self.gathers = type(loop).__module__.partition(".")[0] == "uvloop"
        self.connections: set[TcpConnection] = set()
        self.clock = SystemEnvironment().monotonic
        """A monotonic clock. Unlike the loop's time, it advances while a callback runs."""
        self.turns = ConnectionTurns(loop, self.clock)
        self.events = LimitedEvents()
        self.is_stopping = False


class TcpConnection(asyncio.BufferedProtocol):
    """The protocol object that asyncio or uvloop drives."""

    def __init__(self, host: ConnectionHost, listener: str, on_lost: Callable[[], None]) -> None:
        self._host = host
        self._listener = listener
        self._on_lost = on_lost
        self._receiver = FrameReceiver(host.scratch, frame_bytes_max=host.limits.frame_bytes_max)
        self._core = ConnectionState(host.served)
        self._transport: asyncio.Transport | None = None
        self._replies = ReplyAccount(host.replies)
        self._peer = Peer(host="?", port=0, listener=listener, replies=self._replies)
        self._backlog: deque[FrameBuffer] = deque()
        self._held_bytes = 0
        self._counted_bytes = 0
        self._awaited_bytes = 0
        self._is_waiting_for_memory = False
        self._is_reading = True
        self._is_write_paused = False
        self._is_draining = False
        self._is_flush_due = False
        self._is_slow = False
        """True if its last requests took long, so that the next ones wait for a turn."""
        self._is_queued = False
        self.active_at = host.loop.time()
        self._receiving = Progress(self.active_at)
        self._sending = Progress(self.active_at)
        self._written_bytes = 0
        self._unsent_bytes = 0
        self._counted_reply_bytes = 0

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername") or ("local", 0)
        self._peer.host, self._peer.port = str(address[0]), int(address[1])
        host = self._host
        if host.is_stopping or len(host.connections) >= host.limits.connections_max:
            host.events.event(
                host.loop.time(),
                logging.WARNING,
                "connection_refused",
                peer=self._peer,
                listener=self._listener,
                connections=len(host.connections),
            )
            self._transport.abort()
            return
        host.connections.add(self)
        # Until the last byte of a write is sent, the transport keeps all of its buffers.
        self._transport.set_write_buffer_limits(high=host.limits.write_buffer_bytes_max, low=0)
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

    def eof_received(self) -> bool:
        """Close after sending what is written. Replies under way are dropped, as in Kafka."""
        return False

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self.active_at = self._host.loop.time()
        self._unsent_bytes = 0
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        host = self._host
        self._transport = None
        self._backlog.clear()
        whole, unfinished = self._held_bytes, self._counted_bytes - self._held_bytes
        self._counted_bytes = self._held_bytes = 0
        host.memory.leave(self, whole=whole, unfinished=unfinished)
        self._forget_replies()
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

    # Called by the server.

    @property
    def is_idle(self) -> bool:
        return not self._core.unanswered

    def is_stalled(self, now: float, seconds_max: float) -> bool:
        """True if a frame has hardly grown for `seconds_max`, although there was memory for it.

        Call it once in each sweep: it remembers how far the frame was when it last grew.
        """
        have = self._receiver.received_bytes
        if not have or self._is_waiting_for_memory:
            self._receiving.restart(now, have)
        return self._receiving.still_seconds(now, have) > seconds_max

    def has_stopped_reading(self, now: float, seconds_max: float) -> bool:
        """True if the peer has hardly read its written replies for `seconds_max`.

        Call it once in each sweep, like `is_stalled`.
        """
        if not self._unsent_bytes or self._transport is None:
            self._sending.restart(now, self._written_bytes)
            return False
        sent = self._written_bytes - self._transport.get_write_buffer_size()
        return self._sending.still_seconds(now, sent) > seconds_max

    def drain(self) -> None:
        """Stop reading, and close when the dispatched requests are answered."""
        self._is_draining = True
        self._backlog.clear()
        self._advance()

    def close(self, reason: str) -> None:
        """Close after everything written is sent."""
        if self._transport is not None:
            self._tell_end(reason)
            self._transport.close()

    def abort(self, reason: str | None = None) -> None:
        """Close now, and drop what is written but not sent."""
        if self._transport is not None:
            if reason is not None:
                self._tell_end(reason)
            self._transport.abort()
            self._forget_replies()

    # Requests and replies.

    def _advance(self) -> None:
        """Dispatch what may be dispatched, write what is ready, and decide whether to read on."""
        if self._backlog and self._may_dispatch():
            if self._is_slow:
                self._queue()
            else:
                self._host.turns.had_short_turn(self._host.clock())
                self._dispatch_backlog()
        self._flush()
        violation = self._receiver.violation
        if violation is not None and not self._backlog:
            self._violate(violation)
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

    def take_turn(self) -> None:
        """Dispatch from the backlog: the queue has come to this connection."""
        self._is_queued = False
        self._dispatch_backlog()
        self._advance()

    def _queue(self) -> None:
        if not self._is_queued:
            self._is_queued = True
            self._host.turns.wait(self)

    def _dispatch_backlog(self) -> None:
        """Dispatch what may be dispatched, for one time slice."""
        host = self._host
        begun = now = host.clock()
        until = begun + SLICE_SECONDS_MAX
        while self._backlog and now < until and self._may_dispatch():
            before = now
            self._take(self._backlog.popleft())
            if self._core.outgoing_bytes > FLUSH_BYTES:
                self._flush()
            now = host.clock()
            if now - before > LONG_SECONDS:
                host.turns.had_long_request(now - before, now)
        self._is_slow = now >= until
        if self._is_slow and self._backlog:
            self._queue()

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

    def _take(self, frame: FrameBuffer) -> None:
        request = self._core.accept(memoryview(frame))
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
        self._count_replies()
        self._schedule_flush()

    def _answer(self, request: Request, reply: Reply) -> None:
        self._release(request.frame_bytes)
        self._core.complete(request, reply)

    def _fail(self, request: Request, problem: BaseException) -> None:
        is_malformed = isinstance(problem, MalformedMessage)
        self._host.events.event(
            self._host.loop.time(),
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
            host = self._host
            host.events.event(
                host.loop.time(),
                logging.WARNING,
                "protocol_violation",
                peer=self._peer,
                reason=reason,
            )
            self._flush()
            transport.close()

    def _tell_end(self, reason: str) -> None:
        host = self._host
        host.events.event(
            host.loop.time(), logging.INFO, "connection_ended", peer=self._peer, reason=reason
        )

    # Writing.

    def _schedule_flush(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._host.loop.call_soon(self._flush_due)

    def _flush_due(self) -> None:
        self._is_flush_due = False
        self._advance()

    def _flush(self) -> None:
        count = self._core.outgoing_bytes
        outgoing = self._core.take_outgoing()
        transport = self._transport
        if transport is None:
            return
        if outgoing:
            self.active_at = self._host.loop.time()
            write(transport, outgoing, gathers=self._host.gathers)
            self._written_bytes += count
            if self._is_write_paused:
                self._unsent_bytes += count
        self._count_replies()
        if self._core.is_closing and not transport.is_closing():
            self._tell_end("the broker could not answer a request, and closed the connection")
            transport.close()

    # Memory.

    def _count_replies(self) -> None:
        """Update the shared count with the reply bytes that this connection holds."""
        core = self._core
        held = core.waiting_bytes + core.outgoing_bytes + self._unsent_bytes
        if held != self._counted_reply_bytes and self._transport is not None:
            self._replies.count(held - self._counted_reply_bytes)
            self._counted_reply_bytes = held

    def _forget_replies(self) -> None:
        self._unsent_bytes = 0
        self._replies.count(-self._counted_reply_bytes)
        self._counted_reply_bytes = 0

    def _count_memory(self, whole: int) -> None:
        """Count the bytes that have arrived, and reserve room before a frame's buffer grows."""
        memory = self._host.memory
        arrived = self._held_bytes + self._receiver.allocated_bytes
        if arrived > self._counted_bytes:
            memory.take(arrived - self._counted_bytes)
            self._counted_bytes = arrived
        if whole:
            memory.take_whole(self, whole)
        growth = self._receiver.growth_bytes
        if growth:
            is_large = self._receiver.under_way_bytes > SMALL_FRAME_BYTES
            if memory.try_reserve(self, growth, is_large=is_large):
                self._counted_bytes += growth
            else:
                self._wait_for_memory(growth, is_large=is_large)

    def _release(self, count: int) -> None:
        if self._counted_bytes:
            self._held_bytes -= count
            self._counted_bytes -= count
            self._host.memory.give_back(count)

    def _memory_has_room(self) -> bool:
        if self._receiver.under_way_bytes or not self._host.memory.is_full:
            return True
        self._wait_for_memory(0, is_large=False)
        return False

    def _wait_for_memory(self, wanted: int, *, is_large: bool) -> None:
        self._is_waiting_for_memory = True
        self._awaited_bytes = wanted
        self._host.memory.wait_for(self, wanted, is_large=is_large)

    def memory_is_there(self) -> None:
        self._is_waiting_for_memory = False
        self._receiving.restart(self._host.loop.time(), self._receiver.received_bytes)
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
