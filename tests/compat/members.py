"""Members of this client in one process, and a table of who holds which partition."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as TheirPartition

from holdfast.client.cluster import Cluster
from holdfast.client.membership.interface import MemberSettings
from holdfast.client.membership.member import RunningMember
from holdfast.environment import SystemEnvironment
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition

SESSION_MS = 6_000
WAIT_SECONDS_MAX = 60.0


class Table:
    """Who holds what. A partition that two hold at once is written down for good."""

    def __init__(self) -> None:
        self.holders: dict[TopicPartition, set[str]] = {}
        self.doubles: list[tuple[TopicPartition, set[str]]] = []

    def take(self, name: str, partitions: Collection[TopicPartition]) -> None:
        for where in partitions:
            holders = self.holders.setdefault(where, set())
            holders.add(name)
            if len(holders) > 1:
                self.doubles.append((where, set(holders)))

    def release(self, name: str, partitions: Collection[TopicPartition]) -> None:
        for where in partitions:
            self.holders.get(where, set()).discard(name)

    def held_by(self, name: str) -> set[int]:
        return {where.partition for where, names in self.holders.items() if name in names}

    def is_split(self, count: int, *names: str) -> bool:
        """All partitions are held, by these members, and as evenly as can be."""
        shares = [self.held_by(name) for name in names]
        sizes = [len(share) for share in shares]
        return sum(sizes) == len(set().union(*shares)) == count and max(sizes) - min(sizes) <= 1


class Ours:
    """One member, its owner and its task."""

    def __init__(self, table: Table, bootstrap: str, name: str, settings: MemberSettings) -> None:
        self.name = name
        self._table = table
        self._cluster = Cluster(bootstrap, environment=SystemEnvironment(), client_id=name)
        self.member = RunningMember(self._cluster, settings, self, environment=SystemEnvironment())
        self.stop = asyncio.Event()
        self.may_give_up = asyncio.Event()
        self.may_give_up.set()
        self.committed_at_revoke: list[ErrorCode] = []
        self.lost_ones: set[int] = set()
        self.revoked_ones: set[int] = set()
        self.seconds: list[float] = []
        self.task = asyncio.get_running_loop().create_task(self.member.run(self.stop))

    @property
    def held(self) -> set[int]:
        return self._table.held_by(self.name)

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._table.take(self.name, partitions)

    async def revoked(self, partitions: Collection[TopicPartition], seconds: float) -> None:
        self.seconds.append(seconds)
        self.revoked_ones |= {where.partition for where in partitions}
        await self.may_give_up.wait()
        answers = await self.member.commit(dict.fromkeys(partitions, 7))
        self.committed_at_revoke += answers.values()
        self._table.release(self.name, partitions)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        self.lost_ones |= {where.partition for where in partitions}
        self._table.release(self.name, partitions)

    async def leave(self) -> None:
        self.stop.set()
        await asyncio.wait_for(self.task, WAIT_SECONDS_MAX)

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        await self._cluster.close()


class Theirs:
    """A consumer of librdkafka in the same group."""

    def __init__(
        self, table: Table, bootstrap: str, name: str, group: str, topic: str, protocol: str
    ):
        self.name = name
        self._table = table
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
        if protocol == "consumer":
            settings["group.protocol"] = "consumer"
        else:
            settings["partition.assignment.strategy"] = "cooperative-sticky"
            settings["session.timeout.ms"] = SESSION_MS
            settings["heartbeat.interval.ms"] = 500
        self._consumer = Consumer(settings)
        self._consumer.subscribe(
            [topic], on_assign=self._take, on_revoke=self._release, on_lost=self._release
        )

    def _take(self, _: Consumer, partitions: list[TheirPartition]) -> None:
        self._table.take(self.name, [TopicPartition(p.topic, p.partition) for p in partitions])

    def _release(self, _: Consumer, partitions: list[TheirPartition]) -> None:
        self._table.release(self.name, [TopicPartition(p.topic, p.partition) for p in partitions])

    def poll(self) -> None:
        self._consumer.poll(0)

    def close(self) -> None:
        self._consumer.close()


class Group:
    """Members of one group, and one table for all of them."""

    def __init__(self, bootstrap: str, group: str, topic: str, protocol: str) -> None:
        self.table = Table()
        self.bootstrap = bootstrap
        self.group = group
        self.topic = topic
        self.protocol = protocol
        self.ours: list[Ours] = []
        self.theirs: list[Theirs] = []

    def settings(self, **given: object) -> MemberSettings:
        described: dict[str, object] = {
            "group_id": self.group,
            "topics": (self.topic,),
            "protocol": self.protocol,
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": 300,
            "rebalance_timeout_ms": 20_000,
            "topics_interval_ms": 1_000,
            **given,
        }
        return MemberSettings(**described)  # pyright: ignore[reportArgumentType]

    def join(self, name: str, **given: object) -> Ours:
        self.ours.append(Ours(self.table, self.bootstrap, name, self.settings(**given)))
        return self.ours[-1]

    def join_theirs(self, name: str) -> Theirs:
        self.theirs.append(
            Theirs(self.table, self.bootstrap, name, self.group, self.topic, self.protocol)
        )
        return self.theirs[-1]

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Go on until it holds; a member that ended with an error ends the test."""
        deadline = asyncio.get_running_loop().time() + WAIT_SECONDS_MAX
        while not condition():
            for consumer in self.theirs:
                consumer.poll()
            for member in self.ours:
                if member.task.done() and not member.task.cancelled():
                    member.task.result()
            if asyncio.get_running_loop().time() > deadline:
                states = [(m.name, m.member.description, sorted(m.held)) for m in self.ours]
                raise TimeoutError(f"not seen: {what}; {states}; {self.table.holders}")
            await asyncio.sleep(0.02)

    async def until_split(self, count: int, *names: str) -> None:
        await self.until(lambda: self.table.is_split(count, *names), f"{names} share {count}")
        assert self.table.doubles == []

    async def close(self) -> None:
        for member in self.ours:
            await member.close()
        for consumer in self.theirs:
            consumer.close()


@asynccontextmanager
async def group_of(bootstrap: str, topic: str, protocol: str) -> AsyncIterator[Group]:
    """A group over a topic; everybody is gone at the end."""
    group = Group(bootstrap, f"group-of-{topic}-{protocol}", topic, protocol)
    try:
        yield group
    finally:
        await group.close()
