"""A real broker for bad inputs, and the proof after each family that nobody else noticed."""

import asyncio
import itertools
from collections.abc import Iterator

import pytest
from tests.hostile.case import Case, Target
from tests.peers.holdfast import HoldfastBroker
from tests.support.hostile_bytes import Peer

from holdfast.client import admin
from holdfast.client.cluster import Cluster
from holdfast.client.fetch import fetch, records_of
from holdfast.client.produce import IdempotentProducer
from holdfast.environment import SystemEnvironment
from holdfast.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from holdfast.records.record import Record

MEMORY_GROWTH_MAX = 64 << 20
NEIGHBOUR = "neighbour"
TOPICS = (
    admin.NewTopic(NEIGHBOUR, 2),
    admin.NewTopic("target", 2),
    admin.NewTopic("poisoned", 5),
    admin.NewTopic("compacted", 1, -1, {"cleanup.policy": "compact"}),
)
BUG_SIGNS = ("request_failed", "Traceback", "InvariantViolation")


class Broker:
    """The broker under attack, and an honest client of it."""

    def __init__(self, process: HoldfastBroker) -> None:
        self.process = process
        self.acked: list[tuple[int, int, bytes]] = []
        self._numbers = itertools.count()
        self._log_read = 0
        asyncio.run(self._prepare())
        self.use_as_a_neighbour()
        self.memory_bytes = process.process.memory_bytes()
        self.target = asyncio.run(self._describe())

    def _cluster(self) -> Cluster:
        return Cluster(self.process.bootstrap, environment=SystemEnvironment(), deadline_ms=15_000)

    async def _prepare(self) -> None:
        async with self._cluster() as cluster:
            await admin.create_topics(cluster, TOPICS)
            producer = IdempotentProducer(cluster)
            for partition in (0, 1):
                records = [Record(0, 1_700_000_000_000, b"k", b"seen") for _ in range(20)]
                await producer.send("target", partition, records)

    async def _describe(self) -> Target:
        async with self._cluster() as cluster:
            described = {topic.name: await cluster.describe(topic.name) for topic in TOPICS}
        return Target(
            port=self.process.port,
            topic_ids={name: topic.topic_id for name, topic in described.items()},
            leader_epoch=described["target"].leaders[0].leader_epoch,
            producer_id=lambda: asyncio.run(self._producer_id()),
        )

    async def _producer_id(self) -> int:
        async with self._cluster() as cluster:
            connection = await cluster.any_connection()
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
            return (await connection.request(request, InitProducerIdResponse)).producer_id

    def hold(self, case: Case) -> None:
        """Do the harm, and hold the broker to what the case expects."""
        with Peer(self.process.port) as peer:
            case.check(peer, self.target)

    def use_as_a_neighbour(self) -> None:
        asyncio.run(self._use())

    async def _use(self) -> None:
        """Write some, then read everything that was ever acked."""
        async with self._cluster() as cluster:
            producer = IdempotentProducer(cluster)
            for partition in (0, 1, 0, 1):
                values = [b"%d" % next(self._numbers) for _ in range(5)]
                records = [Record(0, -1, None, value) for value in values]
                told = await producer.send(NEIGHBOUR, partition, records)
                self.acked += [
                    (partition, told.base_offset + i, value) for i, value in enumerate(values)
                ]
            for partition in (0, 1):
                seen = await self._read(cluster, partition)
                wanted = [(o, v) for p, o, v in self.acked if p == partition]
                assert seen == wanted

    async def _read(self, cluster: Cluster, partition: int) -> list[tuple[int, bytes | None]]:
        end = (await admin.list_offset(cluster, NEIGHBOUR, partition)).offset
        seen: list[tuple[int, bytes | None]] = []
        offset = 0
        while offset < end:
            got = await fetch(cluster, NEIGHBOUR, partition, offset)
            seen += [(record.offset, record.value) for record in records_of(got)]
            offset = got.next_offset
        return seen

    def bugs_in_the_log(self) -> list[str]:
        """Lines since the last look that say the broker tripped over itself."""
        lines = self.process.process.log_text()[self._log_read :]
        self._log_read += len(lines)
        return [line for line in lines.splitlines() if any(sign in line for sign in BUG_SIGNS)]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    process = HoldfastBroker(tmp_path_factory.mktemp("hostile"))
    try:
        yield Broker(process.start())
    finally:
        process.stop()
