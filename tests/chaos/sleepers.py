"""Questions that a stopped broker finds in its sockets when it wakes up.

Owns when they count as asked: who stands still takes nothing in, so whatever it answers was decided
after its wake-up, and must be true then, however long the question had lain there. All work is done
in the observers' loop, and all answers are in their history.
"""

import asyncio
import dataclasses
from collections import Counter
from pathlib import Path

from tests.chaos import observers as observed
from tests.chaos.asking import fetch_at, list_at, produce_at
from tests.chaos.families import TOPIC
from tests.chaos.observers import OBSERVED_BYTES_MAX, Observers
from tests.peers.process import wait_until
from tests.support.warm_broker import ChaosBroker

from holdfast.client.address import Address
from holdfast.client.connection import BrokerConnection
from holdfast.errors import HoldfastError
from holdfast.protocol.api import ErrorCode
from holdfast.records.record import Record, encode_batch
from holdfast.verify.history import Call, Fetch, Listed, ListOffsets, Operation, Produce, Which

QUESTIONS = ("list", "fetch", "produce")
ANSWER_SECONDS_MAX = 300.0
"""From when a question is sent: the broker stands still for most of it."""
WAKE_SECONDS_MAX = 60.0
STOPPED = "T"


@dataclasses.dataclass(slots=True, kw_only=True)
class _Question:
    kind: str
    topic: str
    partition: int
    operation: Operation
    records: list[Record]
    call: Call | None = None
    acked_end: int = 0
    """Of the families' records, at the wake-up."""


class Sleeper:
    """One broker that is about to be stopped, and who asks it meanwhile."""

    def __init__(self, observers: Observers, broker: ChaosBroker) -> None:
        self.told: Counter[str] = Counter()
        """What it answered, after its wake-up."""
        self._observers = observers
        self._broker = broker
        self._connections: dict[str, BrokerConnection] = {}
        self._led: list[tuple[str, int]] = []
        self._asked: dict[asyncio.Task[None], _Question] = {}

    def connect(self) -> None:
        """Before it is stopped: only what it leads is asked about."""
        self._observers.do(self._connect())

    def ask(self) -> int:
        """Once it is sent SIGSTOP; returns how many questions lie in its sockets."""
        wait_until(self._is_stopped, seconds_max=10, what=f"{self._broker.name} stands still")
        self._observers.do(self._ask())
        return len(self._asked)

    def wakes(self) -> None:
        """Right before SIGCONT: from now on the questions count as asked."""
        self._observers.do(self._begin_calls())

    def hear(self) -> None:
        """Until all is answered."""
        self._observers.do(self._hear())

    def _is_stopped(self) -> bool:
        stat = Path(f"/proc/{self._broker.process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == STOPPED

    async def _connect(self) -> None:
        address = Address("127.0.0.1", self._broker.port)
        for kind in QUESTIONS:  # a connection each, since answers come in the order of requests
            self._connections[kind] = await BrokerConnection.open(
                address, timeout_ms=int(ANSWER_SECONDS_MAX * 1000)
            )
        counts = {observed.TOPIC: observed.PARTITIONS, TOPIC: self._observers.ledger.partitions}
        for topic, count in counts.items():
            for partition in range(count):
                code, _ = await list_at(self._connections["list"], topic, partition)
                if code == ErrorCode.NONE:
                    self._led.append((topic, partition))

    async def _ask(self) -> None:
        for topic, partition in self._led:
            for kind in QUESTIONS if topic == observed.TOPIC else ("list",):
                question = self._question(kind, topic, partition)
                self._asked[asyncio.ensure_future(self._answered(question))] = question
        await asyncio.sleep(0.05)  # they are on their way
        assert not any(task.done() for task in self._asked), "a stopped process has answered"

    def _question(self, kind: str, topic: str, partition: int) -> _Question:
        where = f"{topic}/{partition}"
        records: list[Record] = []
        operation: Operation
        match kind:
            case "list":
                operation = ListOffsets(where, Which.LATEST)
            case "fetch":
                operation = Fetch(where, self._observers.acked_up_to[partition])
            case _:
                values, records = self._observers.new_records(1)
                operation = Produce(where, values)
        return _Question(
            kind=kind, topic=topic, partition=partition, operation=operation, records=records
        )

    async def _begin_calls(self) -> None:
        for question in self._asked.values():
            question.call = self._observers.recorder.invoke(
                "sleeper", self._broker.name, question.operation, self._observers.now()
            )
            if question.topic == TOPIC:
                question.acked_end = self._observers.ledger.acked_end(question.partition)

    async def _answered(self, question: _Question) -> None:
        connection = self._connections[question.kind]
        topic, partition = question.topic, question.partition
        try:
            match question.operation:
                case ListOffsets():
                    code, result = await list_at(connection, topic, partition)
                case Fetch(offset=offset):
                    code, result = await fetch_at(
                        connection, topic, partition, offset, bytes_max=OBSERVED_BYTES_MAX
                    )
                case _:
                    code, result = await produce_at(
                        *(connection, topic, partition, encode_batch(question.records)),
                        timeout_ms=20_000,
                    )
        except HoldfastError as error:
            code, result, name = -1, None, type(error).__name__
        else:
            name = ErrorCode(code).name
        call, recorder, now = question.call, self._observers.recorder, self._observers.now()
        assert call is not None
        self.told[f"{question.kind}: {name}"] += 1
        if result is None:
            recorder.info(call, name, now)
            return
        recorder.ok(call, result, now)
        if isinstance(result, Listed) and result.offset < question.acked_end:
            self._observers.problems.append(
                f"hidden: {topic}/{partition}: {self._broker.name} woke up and told latest"
                f" {result.offset}, after {question.acked_end} had been acked"
            )

    async def _hear(self) -> None:
        if self._asked:
            _, late = await asyncio.wait(self._asked, timeout=WAKE_SECONDS_MAX)
            self.told.update("no answer" for _ in late)
        for connection in self._connections.values():
            await connection.close()
        if self._asked:
            for task in (await asyncio.wait(self._asked, timeout=WAKE_SECONDS_MAX))[0]:
                task.result()
