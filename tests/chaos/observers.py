"""Our own small client against the broker under chaos, with every call in one history.

Owns the history: writers and readers of topic `observed`, and watermark polls of all partitions.
Runs in one thread with one loop, so that the order of the history is the order of events. A poll
is one try: an answer that came late, or not at all, is recorded as such.
"""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tests.chaos.families import SEQUENCE_ERRORS
from tests.chaos.ledger import NUMBER_BITS, Ledger, identity_of, value_of

from holdfast.client import admin
from holdfast.client.cluster import Cluster, PartitionLeader
from holdfast.client.connection import BrokerConnection
from holdfast.client.fetch import fetch, records_of
from holdfast.client.produce import IdempotentProducer
from holdfast.client.refusals import OutcomeUnknown, RequestRefused, raise_for
from holdfast.environment import SystemEnvironment
from holdfast.errors import HoldfastError
from holdfast.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from holdfast.records.record import Record
from holdfast.verify.history import (
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

TOPIC = "observed"
PARTITIONS = 6
OWN_PRODUCER = 1000
ONE_TRY_MS = 1
WRITE_DEADLINE_MS = 8_000
OBSERVED_BYTES_MAX = 64 * 1024
DONE_SECONDS_MAX = 400.0


class Observers(threading.Thread):
    """Starts with its first call of `start`, ends when `stopping` is set."""

    def __init__(
        self, bootstrap: str, ledger: Ledger, *, seed: int, polled_topic: str, pause_s: float
    ) -> None:
        super().__init__(name="observers", daemon=True)
        self.bootstrap = bootstrap
        self.ledger = ledger
        self.recorder = Recorder()
        self.problems: list[str] = []
        self.errors: Counter[str] = Counter()
        self.ends_told = 0
        """Answers to OffsetForLeaderEpoch."""
        self.acked_up_to = [0] * PARTITIONS
        """The offset of the last batch that was acknowledged, of each partition."""
        self.stopping = threading.Event()
        self._polled_topic = polled_topic
        self._pause_s = pause_s
        self._random = random.Random(seed)
        self._environment = SystemEnvironment()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next_value = 0

    def mark(self, kind: MarkerKind, process: str) -> None:
        """From any thread: something happened to a process."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.recorder.mark, kind, process, self.now())

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """From another thread: do something where the history is written, and wait for it."""
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(work, self._loop).result(DONE_SECONDS_MAX)

    def new_records(self, count: int) -> tuple[tuple[int, ...], list[Record]]:
        """Records that nobody else sends, and the values that the history knows them by."""
        numbers = range(self._next_value, self._next_value + count)
        self._next_value = numbers.stop
        values = tuple(OWN_PRODUCER << NUMBER_BITS | number for number in numbers)
        return values, [Record(0, -1, None, value_of(OWN_PRODUCER, number)) for number in numbers]

    def now(self) -> float:
        return self._environment.monotonic()

    def run(self) -> None:
        try:
            asyncio.run(self._observe())
        except Exception as error:
            self.problems.append(f"the observers ended: {error!r}")

    async def _observe(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            for partition in range(PARTITIONS):
                group.create_task(self._writing(partition))
                group.create_task(self._reading(partition))
                group.create_task(self._polling(TOPIC, partition))
            for partition in range(self.ledger.partitions):
                group.create_task(self._polling(self._polled_topic, partition))
                group.create_task(self._asking_for_ends(self._polled_topic, partition))

    def _cluster(self) -> Cluster:
        return Cluster(
            self.bootstrap,
            environment=self._environment,
            request_timeout_ms=3_000,
            deadline_ms=WRITE_DEADLINE_MS,
        )

    async def _writing(self, partition: int) -> None:
        async with self._cluster() as cluster:
            producer = IdempotentProducer(cluster)
            while not self.stopping.is_set():
                await self._write(producer, partition)
                await self._pause()

    async def _write(self, producer: IdempotentProducer, partition: int) -> None:
        values, records = self.new_records(self._random.randrange(1, 6))
        call = self.recorder.invoke(
            f"writer-{partition}", "broker", Produce(f"{TOPIC}/{partition}", values), self.now()
        )
        try:
            told = await producer.send(TOPIC, partition, records)
        except RequestRefused as error:
            self._note(error)
            self.recorder.fail(call, error.code.name, self.now())
        except (OutcomeUnknown, HoldfastError) as error:
            self._note(error)
            self.recorder.info(call, type(error).__name__, self.now())
        else:
            if told.base_offset < 0:
                self.recorder.info(call, "acked without an offset", self.now())
            else:
                self.recorder.ok(call, Produced(told.base_offset), self.now())
                self.acked_up_to[partition] = told.base_offset

    def _note(self, error: HoldfastError) -> None:
        self.errors[f"{type(error).__name__}: {error}"[:80]] += 1
        if any(name in str(error) for name in SEQUENCE_ERRORS):
            self.problems.append(f"spurious sequence error: {error}")

    async def _reading(self, partition: int) -> None:
        offset = 0
        where = f"{TOPIC}/{partition}"
        async with self._cluster() as cluster:
            while not self.stopping.is_set():
                call = self.recorder.invoke(
                    f"reader-{partition}", "broker", Fetch(where, offset), self.now()
                )

                async def ask(offset: int = offset) -> Fetched:
                    got = await fetch(
                        *(cluster, TOPIC, partition, offset),
                        max_wait_ms=100,
                        max_bytes=OBSERVED_BYTES_MAX,
                        deadline_ms=ONE_TRY_MS,
                    )
                    records = tuple(
                        (r.offset, identity_of(r.value or b"")) for r in records_of(got)
                    )
                    return Fetched(records, got.high_watermark, got.log_start_offset)

                got = await self._answered(call, ask)
                if got is not None and got.records:
                    offset = got.records[-1][0] + 1
                await self._pause()

    async def _polling(self, topic: str, partition: int) -> None:
        operation = ListOffsets(f"{topic}/{partition}", Which.LATEST)
        async with self._cluster() as cluster:

            async def ask() -> Listed:
                listed = await admin.list_offset(cluster, topic, partition, deadline_ms=ONE_TRY_MS)
                return Listed(listed.offset)

            while not self.stopping.is_set():
                acked_end = self.ledger.acked_end(partition) if topic != TOPIC else 0
                call = self.recorder.invoke(f"poller-{topic}", "broker", operation, self.now())
                got = await self._answered(call, ask)
                if got is not None and got.offset < acked_end:
                    self.problems.append(
                        f"hidden: {topic}/{partition}: latest {got.offset}, asked after {acked_end}"
                        " had been acked"
                    )
                await self._pause()

    async def _asking_for_ends(self, topic: str, partition: int) -> None:
        """What consumers ask after a hand-off (KIP-320): an end of the newest epoch that is below
        what was acked would be a truncated log to them."""
        async with self._cluster() as cluster:
            while not self.stopping.is_set():
                acked_end = self.ledger.acked_end(partition)
                try:
                    end = await _end_of_newest_epoch(cluster, topic, partition)
                except HoldfastError as error:
                    self._note(error)
                    await asyncio.sleep(0.02)
                else:
                    self.ends_told += 1
                    if end < acked_end:
                        self.problems.append(
                            f"truncated: {topic}/{partition}: the epoch ends at {end}, asked after"
                            f" {acked_end} had been acked"
                        )
                await asyncio.sleep(2 * self._pause_s)

    async def _answered(self, call, ask: Callable[[], Awaitable]):
        try:
            got = await ask()
        except RequestRefused as error:
            self._note(error)
            self.recorder.fail(call, error.code.name, self.now())
            if error.code.name == "OFFSET_OUT_OF_RANGE":
                self.problems.append(f"out of range: {error}")
        except HoldfastError as error:
            self._note(error)
            self.recorder.info(call, type(error).__name__, self.now())
            await asyncio.sleep(0.02)
        else:
            self.recorder.ok(call, got, self.now())
            return got
        return None

    async def _pause(self) -> None:
        await asyncio.sleep(self._pause_s * self._random.uniform(0.2, 1.0))


async def _end_of_newest_epoch(cluster: Cluster, topic: str, partition: int) -> int:
    async def ask(connection: BrokerConnection, leader: PartitionLeader) -> int:
        asked = OffsetForLeaderPartition(
            partition=partition,
            current_leader_epoch=leader.leader_epoch,
            leader_epoch=leader.leader_epoch,
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
        )
        response = await connection.request(request, OffsetForLeaderEpochResponse)
        told = response.topics[0].partitions[0]
        raise_for(told.error_code, f"the end of epoch {leader.leader_epoch} of {topic}-{partition}")
        return told.end_offset

    return await cluster.ask_leader(topic, partition, ask, deadline_ms=ONE_TRY_MS)
