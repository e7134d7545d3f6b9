"""A server on a real socket with a dispatcher that tests steer, on both event loops."""

import asyncio
import struct
from contextlib import asynccontextmanager

import pytest
import uvloop

from holdfast.protocol.api import ApiKey
from holdfast.protocol.connection import ServedApis
from holdfast.server.limits import ServerLimits
from holdfast.server.tcp import TcpServer

WAIT_SECONDS = 10
SERVED = {
    ApiKey.PRODUCE: range(3, 14),
    ApiKey.API_VERSIONS: range(5),
    ApiKey.METADATA: range(14),
}


class ScriptedDispatcher:
    """Echoes the body, unless the test holds requests back or scripts another answer."""

    def __init__(self) -> None:
        self.seen = []
        self.held = {}
        self.holding = False
        self.script = None
        self.gone = []

    def dispatch(self, request, peer):
        self.seen.append(request)
        if self.script is not None:
            return self.script(request, peer)
        if self.holding:
            return self.hold(request)
        return [request.body]

    def hold(self, request):
        future = asyncio.get_running_loop().create_future()
        self.held[request.correlation_id] = (future, request)
        return future

    def answer(self, correlation_id):
        future, request = self.held.pop(correlation_id)
        future.set_result([request.body])

    def disconnected(self, peer):
        self.gone.append(peer)


class Client:
    """A peer that can send anything at all."""

    def __init__(self, reader, writer) -> None:
        self.reader = reader
        self.writer = writer

    @staticmethod
    def frame(correlation_id=1, *, key=0, version=3, body=b"hello", client_id=b"test"):
        header = struct.pack(">hhih", key, version, correlation_id, len(client_id)) + client_id
        return struct.pack(">i", len(header) + len(body)) + header + body

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def reply(self):
        """(correlation id, body) of the next reply."""
        size = struct.unpack(">i", await self._exactly(4))[0]
        raw = await self._exactly(size)
        return struct.unpack(">i", raw[:4])[0], raw[4:]

    async def _exactly(self, count):
        return await asyncio.wait_for(self.reader.readexactly(count), WAIT_SECONDS)

    async def ask(self, correlation_id=1, **parts):
        self.send(self.frame(correlation_id, **parts))
        return await self.reply()

    async def closed(self) -> bytes:
        """What came before the server closed the connection."""
        try:
            return await asyncio.wait_for(self.reader.read(-1), WAIT_SECONDS)
        except ConnectionError:
            return b""


class Edge:
    """The server under test."""

    def __init__(self, server, dispatcher, port) -> None:
        self.server = server
        self.dispatcher = dispatcher
        self.port = port
        self._writers = []

    async def client(self) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        return Client(reader, writer)

    async def until(self, condition) -> None:
        """Wait, bounded, until the condition holds."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():  # noqa: ASYNC110 (the condition is the server's state)
                await asyncio.sleep(0.001)

    async def round_trips(self, client, count=3) -> None:
        """Give the server the chance to do what it should not do."""
        for number in range(count):
            await client.ask(10_000 + number)


@asynccontextmanager
async def open_edge(**limits):
    dispatcher = ScriptedDispatcher()
    server = TcpServer(
        dispatcher=dispatcher, served=ServedApis(SERVED), limits=ServerLimits(**limits)
    )
    edge = Edge(server, dispatcher, await server.listen("127.0.0.1", 0))
    try:
        yield edge
    finally:
        for writer in edge._writers:
            writer.close()
        await server.stop(wait_seconds=1)


@pytest.fixture(params=["asyncio", "uvloop"])
def on_loop(request):
    """Runs `test(edge)` against a server with the given limits."""

    def run(test, **limits):
        async def main():
            async with asyncio.timeout(30), open_edge(**limits) as edge:
                await test(edge)

        (asyncio.run if request.param == "asyncio" else uvloop.run)(main())

    return run
