"""The base of all simulated clients: which broker to try, connections, and recorded calls.

Owns the guess of which broker leads, and what an answer says about its call: done, refused for
good, or unknown. Every call goes into the history. Must never look into a broker: a client knows
only what it was answered.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from holdfast.client.address import Address
from holdfast.environment import Environment
from holdfast.errors import RetryError
from holdfast.protocol.message import Message
from holdfast.records.record import Record
from holdfast.verify.history import (
    Call,
    Deleted,
    Done,
    Listed,
    Operation,
    Partition,
    Produced,
    Recorder,
    Result,
    Which,
)
from simulation.clients.locating import Sought, place, question
from simulation.clients.reading import Aborted
from simulation.network import Network, SimulatedConnection

DEFINITE_ERRORS = frozenset(
    (
        "CONCURRENT_TRANSACTIONS",
        "CORRUPT_MESSAGE",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "INVALID_TXN_STATE",
        "MESSAGE_TOO_LARGE",
        "OFFSET_OUT_OF_RANGE",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "PRODUCER_FENCED",
        "TRANSACTION_ABORTABLE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNSUPPORTED_VERSION",
    )
)
"""Errors that a broker returns before it writes anything: the call definitely had no effect."""
UNKNOWN_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION"
OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"
CALL_TIMEOUT_S = 4.0
FETCH_WAIT_MS = 300
LOOKUPS_MAX = 6
STALE_CLIENTS = 0.25
"""The share of clients that often keep asking the broker that they know, even after a refusal."""


class CallRefused(NamedTuple):
    """An answer with an error code, by Kafka's name."""

    error: str


class FetchedBatches(NamedTuple):
    """The record batches of a fetch response, and the offsets beside them."""

    batches: bytes
    high_watermark: int
    log_start: int
    stable: int = -1
    aborted: tuple[Aborted, ...] = ()


class BrokerPort(Protocol):
    """The requests that clients can send to one broker process."""

    async def ask(self, message: Message, version: int) -> Any:
        """Send any request of Kafka's protocol and return its response."""
        ...

    async def produce(self, partition: Partition, batch: bytes) -> Produced | CallRefused: ...

    async def fetch(
        self,
        partition: Partition,
        offset: int,
        isolation: int = 0,
        wait_ms: int = FETCH_WAIT_MS,
    ) -> FetchedBatches | CallRefused: ...

    async def list_offsets(
        self, partition: Partition, which: Which, isolation: int = 0
    ) -> Listed | CallRefused: ...

    async def delete_records(self, partition: Partition, before: int) -> Deleted | CallRefused: ...

    async def create_topic(
        self, topic: str, partitions: int, configs: dict[str, str]
    ) -> Done | CallRefused: ...

    async def delete_topic(self, topic: str) -> Done | CallRefused: ...


class Ports(Protocol):
    """The brokers that a client can try."""

    def names(self) -> list[str]: ...

    def port(self, process: str) -> BrokerPort: ...


ProcessAt = Callable[[Address], str | None]


class SimulatedClients:
    """The state that all clients of one simulation share."""

    def __init__(
        self,
        *,
        network: Network,
        environment: Environment,
        recorder: Recorder,
        ports: Ports,
        process_at: ProcessAt | None = None,
    ) -> None:
        self.process_at = process_at
        """The function from an address to the process that listens there; None if brokers know
        nothing of each other, so that any may lead."""
        self.network = network
        self.loop = network.loop
        self.chance = environment.random()
        self.environment = environment
        self.recorder = recorder
        self.ports = ports
        self.values_of_crc: dict[tuple[int, int, int], tuple[int, ...]] = {}
        """(CRC, producer id, base sequence) -> the values of that batch."""
        self.is_over = False
        """True when clients must begin no new work; calls in progress may end."""
        self.uncertain: set[str] = set()
        """Topics for which a request to create them has an unknown outcome."""
        self.doomed: set[str] = set()
        """Topics that a client has begun to delete."""
        self.lossy: set[str] = set()
        """Topics that may continue without a disk: their producers may be refused for good."""
        self.transactional_ids: set[str] = set()
        """All transactional ids that clients have ever used."""
        self.groups: set[str] = set()
        self.acked = 0
        self.stuck: list[str] = []
        self._values = 0
        self._numbers = 0

    def new_values(self, count: int) -> tuple[int, ...]:
        first = self._values
        self._values += count
        return tuple(range(first, first + count))

    def new_number(self) -> int:
        """Return a new identity for a transaction or for a commit."""
        self._numbers += 1
        return self._numbers

    def remember(
        self, batch: bytes, producer_id: int, sequence: int, values: tuple[int, ...]
    ) -> None:
        """Remember the values of a batch, to recognise it in the store."""
        crc = int.from_bytes(batch[17:21], "big")
        self.values_of_crc[crc, producer_id, sequence] = values


class SimulatedClient:
    """One client with its connections and its guess of which broker leads each partition."""

    def __init__(self, clients: SimulatedClients, name: str) -> None:
        self.clients = clients
        self.name = name
        self._connections: dict[str, SimulatedConnection] = {}
        self._guess: dict[Partition, str] = {}
        self._former: dict[Partition, list[str]] = {}
        """The brokers that have ever answered for a key."""
        self.is_stale = clients.process_at is not None and clients.chance.random() < STALE_CLIENTS

    async def guess(self, key: str, sought: Sought = Sought.PARTITION) -> str:
        """Choose a broker to try: the one that answered last, or sometimes another."""
        while not (names := self.clients.ports.names()):
            await self.pause(0.05, 0.5)
        known = self._guess.get(key)
        draw = self.clients.chance.random
        if self.clients.process_at is None:
            if known in names and draw() < 0.97:
                return known
            return _one_of(names, draw)
        if sought is Sought.CONTROLLER and draw() < 0.5:
            return _one_of(names, draw)  # which forwards the request
        if known not in names:
            found = await self._look_up(key, sought) or self.stray(key)
            return found or await self.guess(key, sought)
        luck = draw()
        if luck < 0.95:
            return known
        return (self.stray(key) if luck < 0.99 else _one_of(names, draw)) or known

    def stray(self, key: str) -> str | None:
        """Choose a broker that answered for a key before, as old metadata would name it, or any."""
        names = self.clients.ports.names()
        known = self._guess.get(key)
        former = [name for name in self._former.get(key, ()) if name in names and name != known]
        return _one_of(former or names, self.clients.chance.random) if names else None

    async def _look_up(self, key: str, sought: Sought) -> str | None:
        """Ask random brokers where to go, until one of them knows or LOOKUPS_MAX tries are used
        up."""
        clients = self.clients
        message, version = question(sought, key)
        for _ in range(LOOKUPS_MAX):
            names = clients.ports.names()
            if names and clients.process_at is not None:
                port = clients.ports.port(broker := _one_of(names, clients.chance.random))
                ask = functools.partial(port.ask, message, version)
                try:
                    answer = await self._connection(broker).call(ask, CALL_TIMEOUT_S)
                except RetryError:
                    answer = None
                address = place(sought, key, answer) if answer is not None else None
                process = clients.process_at(address) if address is not None else None
                if process is not None:
                    return process
            await self.pause(0.02, 0.4)
        return None

    def _connection(self, broker: str) -> SimulatedConnection:
        connection = self._connections.get(broker)
        if connection is None:
            connection = self._connections[broker] = self.clients.network.connect(broker)
        return connection

    def forget(self, key: str) -> None:
        if not self.is_stale or self.clients.chance.random() < 0.5:
            self._guess.pop(key, None)

    async def call(
        self,
        partition: Partition,
        broker: str,
        operation: Operation,
        handler: Callable[[], Coroutine[Any, Any, Any]],
    ) -> tuple[Call, Any]:
        """Call one broker and record the call in the history.

        The record is complete, except that the caller must report a success with `ok`.
        """
        clients = self.clients
        recorder, loop = clients.recorder, clients.loop
        connection = self._connection(broker)
        call = recorder.invoke(self.name, broker, operation, loop.time())
        try:
            answer = await connection.call(handler, CALL_TIMEOUT_S)
        except RetryError as error:
            recorder.info(call, str(error), loop.time())
            self.forget(partition)
            return call, None
        if isinstance(answer, CallRefused):
            if answer.error in DEFINITE_ERRORS:
                recorder.fail(call, answer.error, loop.time())
            else:
                recorder.info(call, answer.error, loop.time())
            if answer.error != OUT_OF_ORDER:
                self.forget(partition)
            return call, answer
        if clients.process_at is not None and self._guess.get(partition) != broker:
            self._former.setdefault(partition, []).append(broker)
        self._guess[partition] = broker
        return call, answer

    async def request(
        self,
        key: str,
        operation: Operation,
        message: Message,
        version: int,
        understand: Callable[[Any], Any],
    ) -> tuple[Call, Any]:
        """Send any request of Kafka's protocol by `call`; the guess of the broker is kept by
        `key`."""
        is_transactional = key in self.clients.transactional_ids
        sought = Sought.TRANSACTIONAL_ID if is_transactional else Sought.GROUP
        broker = await self.guess(key, sought)
        port = self.clients.ports.port(broker)

        async def handler() -> Any:
            return understand(await port.ask(message, version))

        return await self.call(key, broker, operation, handler)

    def ok(self, call: Call, result: Result) -> None:
        self.clients.recorder.ok(call, result, self.clients.loop.time())

    async def pause(self, low_s: float, high_s: float) -> None:
        await asyncio.sleep(low_s + (high_s - low_s) * self.clients.chance.random())


def new_records(clients: SimulatedClients, values: tuple[int, ...]) -> list[Record]:
    now_ms = clients.environment.now_ms()
    return [Record(0, now_ms, None, b"%d" % value) for value in values]


def _one_of(names: list[str], draw: Callable[[], float]) -> str:
    return names[int(draw() * len(names))]
