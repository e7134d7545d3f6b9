"""SIGSTOP a broker, let a second one take its lanes, wake the first: it must end, and say nothing.

`python -m tests.chaos.takeover --rounds 20`. In each round a second process claims the store of
the serving one, on another port. The first one is stopped before that with requests in its socket
buffers (asked), or stopped with nothing to do (quiet), or not stopped at all (live). It must exit
with code 3 and name the lane; it must neither ack what was sent to it while it was stopped nor
answer with an old watermark. The second one is the first of the next round.
"""

import argparse
import asyncio
import dataclasses
import json
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.asking import fetch_at, list_at, produce_at
from tests.chaos.cold_read import read_cold
from tests.chaos.ledger import NUMBER_BITS, identity_of, value_of
from tests.chaos.stores import ChaosStore
from tests.chaos.under_load import verify_store
from tests.peers.process import free_port
from tests.support.warm_broker import ChaosBroker

from holdfast.client import admin
from holdfast.client.address import Address
from holdfast.client.cluster import Cluster
from holdfast.client.connection import BrokerConnection
from holdfast.client.fetch import fetch, records_of
from holdfast.client.produce import IdempotentProducer
from holdfast.client.refusals import RequestRefused
from holdfast.environment import SystemEnvironment
from holdfast.errors import HoldfastError
from holdfast.protocol.api import ErrorCode
from holdfast.records.record import Record, encode_batch
from holdfast.verify.checkers import check
from holdfast.verify.history import (
    ColdLog,
    Fetch,
    Fetched,
    Listed,
    ListOffsets,
    MarkerKind,
    Produce,
    Produced,
    Recorder,
    Which,
)

TOPIC = "taken"
PARTITIONS = 4
KINDS = ("asked", "live", "quiet")
CLAIM_VALID_MS = 800
PRODUCER = 7
WRITES = 6
EXIT_SECONDS_MAX = 30.0


@dataclasses.dataclass(slots=True, kw_only=True)
class Figures:
    rounds: int = 0
    acked: int = 0
    asked_while_stopped: int = 0
    told_after_wake: dict[str, int] = dataclasses.field(default_factory=dict)
    told_by_live: dict[str, int] = dataclasses.field(default_factory=dict)
    takeover_ms: list[float] = dataclasses.field(default_factory=list)
    exit_ms: list[float] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)


class Takeovers:
    """One store, a chain of brokers, one history."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = ChaosStore(str(folder / "store"), {})
        self.figures = Figures()
        self.recorder = Recorder()
        self.environment = SystemEnvironment()
        self._next_value = 0
        self._count = 0

    def warm(self) -> ChaosBroker:
        self._count += 1
        return ChaosBroker(
            self.folder,
            name=f"broker-{self._count:03d}",
            store=self.store.url,
            port=free_port(),
            arguments=("--claim-valid-ms", str(CLAIM_VALID_MS)),
        )

    def cluster(self, broker: ChaosBroker) -> Cluster:
        return Cluster(
            f"127.0.0.1:{broker.port}", environment=self.environment, request_timeout_ms=10_000
        )

    async def round(self, old: ChaosBroker, kind: str) -> ChaosBroker:
        """Returns the broker that serves now."""
        new = self.warm()
        async with self.cluster(old) as cluster:
            await self.use(cluster, old.name)
        connection = await BrokerConnection.open(
            Address("127.0.0.1", old.port), timeout_ms=int(EXIT_SECONDS_MAX * 1000)
        )
        asked: list[asyncio.Future[None]] = []
        if kind == "live":
            asked.append(asyncio.ensure_future(self._ask_until_it_ends(connection, old.name)))
        else:
            old.signal(signal.SIGSTOP)
            self.recorder.mark(MarkerKind.PAUSE, old.name, self._now())
        if kind == "asked":
            asked += [
                asyncio.ensure_future(self._ask_old(connection, old.name, p, what))
                for p in range(PARTITIONS)
                for what in ("list", "fetch", "produce")
            ]
            self.figures.asked_while_stopped += len(asked)
        await self._take_over(new)
        async with self.cluster(new) as cluster:
            await self.use(cluster, new.name)
            old.signal(signal.SIGCONT)
            woken = time.monotonic()
            await asyncio.gather(*asked)
            await self.use(cluster, new.name)
        await connection.close()
        await asyncio.to_thread(self._expect_end, old, woken)
        self.figures.rounds += 1
        return new

    async def _ask_until_it_ends(self, connection: BrokerConnection, broker: str) -> None:
        """A broker that was never stopped: what it says before it is overtaken counts as said."""
        while connection.is_open:
            for partition in range(PARTITIONS):
                for what in ("list", "fetch", "produce"):
                    await self._ask_old(connection, broker, partition, what, may_answer=True)

    async def _take_over(self, new: ChaosBroker) -> None:
        begun = time.monotonic()
        new.go()
        await asyncio.to_thread(new.wait_ready)
        self.figures.takeover_ms.append((time.monotonic() - begun) * 1000)
        self.recorder.mark(MarkerKind.CLAIM, new.name, self._now())

    def _expect_end(self, old: ChaosBroker, woken: float) -> None:
        code = old.exit_code(seconds_max=EXIT_SECONDS_MAX)
        self.figures.exit_ms.append((time.monotonic() - woken) * 1000)
        text = old.process.log_text()
        if code != 3 or "stopped serving: another broker with the id 0" not in text:
            self.figures.problems.append(f"{old.name} ended with {code}: {text[-400:]}")
        if "Traceback" in text:
            self.figures.problems.append(f"{old.name} ended with a trace: {text[-1500:]}")

    async def use(self, cluster: Cluster, broker: str) -> None:
        """Write, list and read through one broker, all of it in the history."""
        producer = IdempotentProducer(cluster)
        for _ in range(WRITES):
            await asyncio.gather(
                *(self._use_partition(cluster, producer, broker, p) for p in range(PARTITIONS))
            )

    async def _use_partition(
        self, cluster: Cluster, producer: IdempotentProducer, broker: str, partition: int
    ) -> None:
        where = f"{TOPIC}/{partition}"
        values, records = self._new_records(3)
        call = self.recorder.invoke("writer", broker, Produce(where, values), self._now())
        told = await producer.send(TOPIC, partition, records)
        self.recorder.ok(call, Produced(told.base_offset), self._now())
        self.figures.acked += len(values)
        call = self.recorder.invoke("poller", broker, ListOffsets(where, Which.LATEST), self._now())
        listed = await admin.list_offset(cluster, TOPIC, partition)
        self.recorder.ok(call, Listed(listed.offset), self._now())
        offset = max(0, told.base_offset - 20)
        call = self.recorder.invoke("reader", broker, Fetch(where, offset), self._now())
        got = await fetch(cluster, TOPIC, partition, offset)
        shown = tuple((r.offset, identity_of(r.value or b"")) for r in records_of(got))
        self.recorder.ok(call, Fetched(shown, got.high_watermark), self._now())

    def _new_records(self, count: int) -> tuple[tuple[int, ...], list[Record]]:
        numbers = range(self._next_value, self._next_value + count)
        self._next_value = numbers.stop
        values = tuple(PRODUCER << NUMBER_BITS | number for number in numbers)
        return values, [Record(0, -1, None, value_of(PRODUCER, number)) for number in numbers]

    async def _ask_old(
        self,
        connection: BrokerConnection,
        broker: str,
        partition: int,
        kind: str,
        *,
        may_answer: bool = False,
    ) -> None:
        """In the history from when it is sent; a stopped broker answers after its wake-up."""
        where = f"{TOPIC}/{partition}"
        match kind:
            case "list":
                call = self.recorder.invoke(
                    "sleeper", broker, ListOffsets(where, Which.LATEST), self._now()
                )
            case "fetch":
                call = self.recorder.invoke("sleeper", broker, Fetch(where, 0), self._now())
            case _:
                values, records = self._new_records(1)
                call = self.recorder.invoke("sleeper", broker, Produce(where, values), self._now())
        try:
            if kind == "list":
                code, result = await list_at(connection, TOPIC, partition)
            elif kind == "fetch":
                code, result = await fetch_at(connection, TOPIC, partition, 0)
            else:
                code, result = await produce_at(
                    connection, TOPIC, partition, encode_batch(records), timeout_ms=20_000
                )
        except HoldfastError as error:
            self._count_answer(kind, type(error).__name__, may_answer)
            self.recorder.info(call, str(error), self._now())
            return
        self._count_answer(kind, ErrorCode(code).name, may_answer)
        if result is None:
            self.recorder.info(call, str(code), self._now())
            return
        self.recorder.ok(call, result, self._now())
        if isinstance(result, Produced):
            self.figures.acked += 1
        if not may_answer:
            self.figures.problems.append(f"{broker} was fenced and answered {kind} with {result}")

    def _count_answer(self, kind: str, code: str, is_live: bool) -> None:
        told = self.figures.told_by_live if is_live else self.figures.told_after_wake
        what = f"{kind}: {code}"
        told[what] = told.get(what, 0) + 1

    def _now(self) -> float:
        return self.environment.monotonic()

    def check(self, last: ChaosBroker) -> None:
        last.kill()
        self.store = self.store.moved()
        reader = self.warm()
        reader.go()
        reader.wait_ready()
        cold = read_cold(f"127.0.0.1:{reader.port}", TOPIC, PARTITIONS)
        reader.process.stop()
        for partition, found in enumerate(cold):
            self.figures.problems += found.problems
            self.recorder.history.cold[f"{TOPIC}/{partition}"] = ColdLog(
                tuple(enumerate(found.identities)), 0, found.end
            )
        self.figures.problems += [str(violation) for violation in check(self.recorder.history)]
        self.figures.problems += verify_store(self.store)


async def _rounds(takeovers: Takeovers, rounds: int) -> ChaosBroker:
    broker = takeovers.warm()
    broker.go()
    broker.wait_ready()
    async with takeovers.cluster(broker) as cluster:
        try:
            await admin.create_topics(cluster, [admin.NewTopic(TOPIC, PARTITIONS)])
        except RequestRefused as refused:
            raise AssertionError(str(refused)) from None
    for number in range(rounds):
        broker = await takeovers.round(broker, KINDS[number % len(KINDS)])
    return broker


def run(folder: Path, *, rounds: int) -> Figures:
    takeovers = Takeovers(folder)
    takeovers.check(asyncio.run(_rounds(takeovers, rounds)))
    return takeovers.figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.takeover", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-takeover-") as scratch:
        figures = run(Path(scratch), rounds=options.rounds)
    print(json.dumps(dataclasses.asdict(figures), indent=2))
    sys.exit(1 if figures.problems else 0)


if __name__ == "__main__":
    main()
