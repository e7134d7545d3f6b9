"""A store that is out of reach for a while: a proxy in front of S3, or a disk with no space left.

Owns the outage and the client that talks through it: one try for each record, so that every error
code is seen as the broker said it. What is asked and told goes into one history.
"""

import asyncio
import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast

from tests.chaos.asking import fetch_all_at, fetch_at, list_all_at, list_at, produce_at
from tests.chaos.ledger import NUMBER_BITS, value_of
from tests.support.bad_proxy import BadProxy, Mishap

from holdfast.client.address import Address
from holdfast.client.connection import BrokerConnection
from holdfast.environment import SystemEnvironment
from holdfast.errors import HoldfastError
from holdfast.protocol.api import ErrorCode
from holdfast.records.record import Record, encode_batch
from holdfast.verify.history import (
    Fetch,
    Fetched,
    Listed,
    ListOffsets,
    Produce,
    Produced,
    Recorder,
    Which,
)

PRODUCER = 3
REFUSED_BEFORE_TRYING = ("NOT_ENOUGH_REPLICAS",)
RETRIABLE = {
    "REQUEST_TIMED_OUT",
    "NOT_ENOUGH_REPLICAS",
    "KAFKA_STORAGE_ERROR",
    "NOT_LEADER_OR_FOLLOWER",
    "LEADER_NOT_AVAILABLE",
}


class _Always(dict[str, deque[Mishap]]):
    """A plan without an end."""

    def __init__(self) -> None:
        super().__init__()
        self.mishap = Mishap.NONE

    def __missing__(self, method: str) -> deque[Mishap]:
        return deque([self.mishap])


class OutageProxy:
    """A proxy in a thread of its own; `mishap` is what happens to every request from now on."""

    def __init__(self, upstream_port: int) -> None:
        self._proxy = BadProxy(upstream_port)
        self._plan = _Always()
        self._proxy.plan = cast(Any, self._plan)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def endpoint(self) -> str:
        return self._proxy.endpoint

    def __enter__(self) -> "OutageProxy":
        self._thread.start()
        self._run(self._proxy.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._proxy.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    @contextlib.contextmanager
    def outage(self, mishap: Mishap) -> Iterator[None]:
        self._plan.mishap = mishap
        try:
            yield
        finally:
            self._plan.mishap = Mishap.NONE


class Client:
    """One try for each question, all in the history; `told` counts the codes."""

    def __init__(self, port: int, topic: str) -> None:
        self.topic = topic
        self.recorder = Recorder()
        self.told: Counter[str] = Counter()
        self.offsets: dict[int, int] = {}
        self._address = Address("127.0.0.1", port)
        self._environment = SystemEnvironment()
        self._connections: dict[str, BrokerConnection] = {}
        self._next = 0

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections.values():
            await connection.close()

    async def _connection(self, name: str) -> BrokerConnection:
        known = self._connections.get(name)
        if known is None or not known.is_open:
            known = self._connections[name] = await BrokerConnection.open(
                self._address, timeout_ms=20_000
            )
        return known

    async def write(
        self, partition: int, *, size: int = 100, timeout_ms: int = 1_000, lane: str = "write"
    ) -> bool:
        """One record; True where it was acked."""
        number = self._next
        self._next += 1
        value = PRODUCER << NUMBER_BITS | number
        record = Record(0, -1, None, value_of(PRODUCER, number).ljust(size, b"."))
        operation = Produce(f"{self.topic}/{partition}", (value,))

        async def ask(connection: BrokerConnection) -> tuple[int, Produced | None]:
            batch = encode_batch([record])
            return await produce_at(connection, self.topic, partition, batch, timeout_ms=timeout_ms)

        got = await self._ask(f"{lane}-{partition}", operation, ask)
        if isinstance(got, Produced):
            self.offsets[partition] = got.base_offset
        return got is not None

    async def latest(self, partition: int) -> int | None:
        operation = ListOffsets(f"{self.topic}/{partition}", Which.LATEST)
        got = await self._ask(
            f"list-{partition}",
            operation,
            lambda connection: list_at(connection, self.topic, partition),
        )
        return got.offset if isinstance(got, Listed) else None

    async def read(self, partition: int, offset: int) -> Fetched | None:
        operation = Fetch(f"{self.topic}/{partition}", offset)
        got = await self._ask(
            f"read-{partition}",
            operation,
            lambda connection: fetch_at(connection, self.topic, partition, offset),
        )
        return got if isinstance(got, Fetched) else None

    async def latest_of_all(self, count: int) -> list[str]:
        """One request for many partitions: what was said of each."""
        connection = await self._connection("list-all")
        codes = await list_all_at(connection, self.topic, count)
        return [ErrorCode(code).name for code in codes]

    async def readable_of_all(self, count: int) -> int:
        """One request for many partitions: how many came with records."""
        connection = await self._connection("read-all")
        return await fetch_all_at(connection, self.topic, count)

    async def _ask(
        self,
        name: str,
        operation: Produce | Fetch | ListOffsets,
        ask: Callable[[BrokerConnection], Coroutine[Any, Any, tuple[int, Any]]],
    ) -> Any:
        now = self._environment.monotonic
        kind = type(operation).__name__
        call = self.recorder.invoke(name, "broker", operation, now())
        try:
            code, result = await ask(await self._connection(name))
        except HoldfastError as error:
            self.told[f"{kind}: {type(error).__name__}"] += 1
            self.recorder.info(call, str(error), now())
            return None
        told = ErrorCode(code).name
        self.told[f"{kind}: {told}"] += 1
        if result is not None:
            self.recorder.ok(call, result, now())
        elif told in REFUSED_BEFORE_TRYING:
            self.recorder.fail(call, told, now())
        else:
            self.recorder.info(call, told, now())
        return result
