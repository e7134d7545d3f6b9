"""Seed 001 from the sink's side: a partition is revoked while its batch is open, or under way.

Two members of a sink in this process, on a real broker, over a store that can be made to stall.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast import HoldfastBroker
from tests.support.async_tests import in_event_loop

from holdfast.client.cluster import Cluster
from holdfast.client.groups import committed_offsets
from holdfast.client.membership.interface import MemberSettings
from holdfast.environment import SystemEnvironment
from holdfast.landing.formats.jsonl import JsonLines
from holdfast.landing.landed import objects, records
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.sink.settings import BatchBounds, OutputSettings, SinkLimits, SinkSettings
from holdfast.sink.watched_store import WatchedStore
from holdfast.sink.worker import SinkWorker
from holdfast.store.interface import Buffers, CreateAnswer
from holdfast.store.memory import MemoryStore

PARTITIONS = 2
RECORDS = 40
SECONDS_MAX = 60.0
PAUSE_S = 0.02
ENVIRONMENT = SystemEnvironment()
NUMBERS = itertools.count()


class StallingStore(MemoryStore):
    """A store in which creates wait while the gate is shut."""

    def __init__(self) -> None:
        super().__init__(environment=ENVIRONMENT)
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        self.waiting += 1
        # A put that is under way goes on, whoever has given up on it.
        return await asyncio.shield(self._create_when_open(key, body))

    async def _create_when_open(self, key: str, body: Buffers) -> CreateAnswer:
        await self.gate.wait()
        return await super().create(key, body)


class Incident:
    """A topic with records in each partition, a group, and members that share a store."""

    def __init__(self, broker: HoldfastBroker) -> None:
        self.bootstrap = broker.bootstrap
        self.topic = f"sink-001-{next(NUMBERS)}"
        self.store = StallingStore()
        self.threads = ThreadPoolExecutor(2)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result(30)
        self.produce(RECORDS)

    def produce(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(count):
            value = b'{"number":%d}' % number
            producer.produce(self.topic, value=value, partition=number % PARTITIONS)
        assert producer.flush(30) == 0

    @property
    def settings(self) -> SinkSettings:
        return SinkSettings(
            bootstrap=self.bootstrap,
            member=MemberSettings(
                group_id=f"group-of-{self.topic}", topics=(self.topic,), rebalance_timeout_ms=4_000
            ),
            output=OutputSettings(store="memory:"),
            batch=BatchBounds(age_ms=3_600_000),
            limits=SinkLimits(revoke_margin_ms=1_000),
        )

    @asynccontextmanager
    async def member(self) -> AsyncIterator[SinkWorker]:
        loop = asyncio.get_running_loop()
        settings = self.settings
        async with (
            Cluster(self.bootstrap, environment=ENVIRONMENT) as control,
            control.sibling() as data,
        ):
            worker = SinkWorker(
                settings,
                control=control,
                data=data,
                store=WatchedStore(self.store, environment=ENVIRONMENT),
                format=JsonLines(require_json=True),
                environment=ENVIRONMENT,
                aside=lambda work: loop.run_in_executor(self.threads, work),
            )
            stop = asyncio.Event()
            running = asyncio.ensure_future(worker.run(stop, once=False))
            try:
                yield worker
            finally:
                stop.set()
                await asyncio.wait_for(running, SECONDS_MAX)

    async def committed(self) -> dict[int, int]:
        async with Cluster(self.bootstrap, environment=ENVIRONMENT) as cluster:
            found = await committed_offsets(cluster, self.settings.member.group_id)
        return {where.partition: offset for where, offset in found.items()}

    async def landed(self) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for _, facts in await objects(self.store, environment=ENVIRONMENT):
            found.setdefault(facts.partition, []).append((facts.first_offset, facts.next_offset))
        return found

    async def values(self) -> list[bytes]:
        return [
            row["value"]
            async for batch in records(self.store, environment=ENVIRONMENT)
            for row in batch.to_pylist()
        ]


async def until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(int(SECONDS_MAX / PAUSE_S)):
        if condition():
            return
        await asyncio.sleep(PAUSE_S)
    raise AssertionError(f"not within {SECONDS_MAX} s: {what}")


def open_records(worker: SinkWorker) -> dict[int, int]:
    return {
        where.partition: part.open_records for where, part in worker.status().partitions.items()
    }


def owned(worker: SinkWorker) -> set[int]:
    return {where.partition for where in worker.status().partitions}


EACH = RECORDS // PARTITIONS
ALL_OPEN = dict.fromkeys(range(PARTITIONS), EACH)


@in_event_loop
async def test_what_is_open_at_a_revoke_lands_and_is_committed_before_another_has_the_partition(
    holdfast_broker: HoldfastBroker,
):
    incident = Incident(holdfast_broker)
    async with incident.member() as a:
        await until(lambda: open_records(a) == ALL_OPEN, "A has everything open")
        async with incident.member() as b:
            await until(lambda: len(owned(a)) == len(owned(b)) == 1, "each has one")
            (moved,) = owned(b)
            assert (await incident.landed())[moved] == [(0, EACH)]
            assert (await incident.committed())[moved] == EACH
            assert open_records(a) == {1 - moved: EACH}
            await until(lambda: b.status().partitions[_where(incident, moved)].landed == EACH, "")
    assert len(await incident.values()) == RECORDS


@in_event_loop
async def test_a_batch_that_does_not_land_in_time_is_abandoned_and_its_late_end_commits_nothing(
    holdfast_broker: HoldfastBroker,
):
    incident = Incident(holdfast_broker)
    async with incident.member() as a:
        await until(lambda: open_records(a) == ALL_OPEN, "A has everything open")
        incident.store.gate.clear()
        async with incident.member() as b:
            await until(lambda: len(owned(b)) == 1, "the rebalance goes on without the store")
            (moved,) = owned(b)
            assert moved not in owned(a)
            assert (await incident.committed())[moved] == 0
            assert a.status().batches_abandoned == 1
            commits = a.status().commits
            incident.store.gate.set()
            await until(lambda: open_records(b).get(moved) is not None, "B is at work")
            # A's put arrives now: B finds it at its key, or has begun behind it.
            b_flow = b._flows[_where(incident, moved)]
            await until(lambda: b_flow.has_taken(EACH), "B is through")
            assert a.status().commits == commits
    landed = await incident.landed()
    assert {number: spans[-1][1] for number, spans in landed.items()} == {0: EACH, 1: EACH}
    assert sorted(await incident.values()) == sorted(b'{"number":%d}' % n for n in range(RECORDS))
    assert await incident.committed() == {0: EACH, 1: EACH}


@in_event_loop
async def test_a_partition_that_comes_back_is_landed_and_committed_under_its_new_assignment(
    holdfast_broker: HoldfastBroker,
):
    incident = Incident(holdfast_broker)
    async with incident.member() as a:
        await until(lambda: open_records(a) == ALL_OPEN, "A has everything open")
        async with incident.member() as b:
            await until(lambda: len(owned(a)) == len(owned(b)) == 1, "each has one")
            (moved,) = owned(b)
        await until(lambda: len(owned(a)) == PARTITIONS, "A has both again")
        incident.produce(RECORDS)
        where = _where(incident, moved)
        await until(lambda: open_records(a).get(moved) == EACH, "the new records are open")
        assert a.status().partitions[where].committed == EACH
        assert len(a._ownership) == PARTITIONS
        assert len(a._budget) <= PARTITIONS + 1
    assert await incident.committed() == {0: 2 * EACH, 1: 2 * EACH}
    assert len(await incident.values()) == 2 * RECORDS


def _where(incident: Incident, partition: int) -> TopicPartition:
    return TopicPartition(incident.topic, partition)
