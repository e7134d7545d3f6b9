"""A cluster as a client sees it: bootstrap, metadata, connections and retries.

Owns the connections and the newest metadata. Retries errors that may pass (RetryError) until a
deadline, with new metadata before each try. Must never retry what is refused for good. The caller
must know that a request is safe to send twice.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar
from uuid import UUID

from holdfast.client.address import Address, parse_bootstrap
from holdfast.client.connection import BrokerConnection
from holdfast.client.refusals import BrokerUnavailable, RefusedForNow, raise_for
from holdfast.environment import Environment
from holdfast.errors import RetryError
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

T = TypeVar("T")

BACKOFF_MS_MIN = 20
BACKOFF_MS_MAX = 1_000
NOBODY = -1


class PartitionLeader(NamedTuple):
    """The leader of a partition, and what a request to it must carry."""

    node_id: int
    leader_epoch: int
    topic_id: UUID


class TopicDescription(NamedTuple):
    """The metadata of one topic."""

    name: str
    topic_id: UUID
    leaders: dict[int, PartitionLeader]
    is_internal: bool


class Cluster:
    """A cluster that is found by a bootstrap list. It connects at the first request."""

    def __init__(
        self,
        bootstrap: str,
        *,
        environment: Environment,
        client_id: str = "holdfast",
        request_timeout_ms: int = 30_000,
        deadline_ms: int = 60_000,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.environment = environment
        self.request_timeout_ms = request_timeout_ms
        self._bootstrap_list = bootstrap
        self._bootstrap = parse_bootstrap(bootstrap)
        self._client_id = client_id
        self._deadline_ms = deadline_ms
        self._tls = tls
        self._brokers: dict[int, Address] = {}
        self._controller_id = NOBODY
        self._topics: dict[str, TopicDescription] = {}
        self._connections: dict[Address, BrokerConnection] = {}
        self._opening: dict[Address, asyncio.Lock] = {}

    def sibling(self) -> "Cluster":
        """Return a client of the same cluster with separate connections.

        A broker answers the requests of a connection in order, so a request that must not wait
        behind a long poll needs another connection.
        """
        return Cluster(
            self._bootstrap_list,
            environment=self.environment,
            client_id=self._client_id,
            request_timeout_ms=self.request_timeout_ms,
            deadline_ms=self._deadline_ms,
            tls=self._tls,
        )

    async def __aenter__(self) -> "Cluster":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.close()

    @property
    def brokers(self) -> dict[int, Address]:
        """The brokers of the newest metadata, by node id."""
        return dict(self._brokers)

    async def any_connection(self) -> BrokerConnection:
        """Return a connection to any broker that answers; open connections are used first."""
        candidates = list(dict.fromkeys([*self._brokers.values(), *self._bootstrap]))
        self.environment.random().shuffle(candidates)
        candidates.sort(key=lambda address: not self._is_connected(address))
        problems: list[str] = []
        for address in candidates:
            try:
                return await self._connection_to(address)
            except BrokerUnavailable as error:
                problems.append(str(error))
        raise BrokerUnavailable(f"no broker of {len(candidates)} answers: {'; '.join(problems)}")

    async def controller(self) -> BrokerConnection:
        """Return a connection to the controller, or to any broker if no controller is known."""
        if self._controller_id not in self._brokers:
            await self.refresh([])
        address = self._brokers.get(self._controller_id)
        return await (self._connection_to(address) if address else self.any_connection())

    async def broker(self, node_id: int) -> BrokerConnection:
        """Return a connection to one broker; RefusedForNow if the metadata does not have it."""
        address = self._brokers.get(node_id)
        if address is None:
            raise RefusedForNow(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"broker {node_id} is not in the metadata, which has {sorted(self._brokers)}",
            )
        return await self._connection_to(address)

    async def refresh(self, topics: Iterable[str] | None) -> MetadataResponse:
        """Fetch new metadata of these topics, or of all (None). Never creates a topic."""
        connection = await self.any_connection()
        version = connection.version_for(MetadataRequest)
        names = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        response = await connection.request(request, MetadataResponse, version=version)
        if response.brokers:
            self._brokers = {row.node_id: Address(row.host, row.port) for row in response.brokers}
            self._controller_id = response.controller_id
        for topic in response.topics:
            if topic.name and topic.error_code == ErrorCode.NONE:
                self._topics[topic.name] = described(topic)
            elif topic.name:
                self._topics.pop(topic.name, None)
        return response

    async def describe(self, topic: str) -> TopicDescription:
        """Fetch new metadata of one topic; RefusedForNow if it does not exist (yet)."""
        response = await self.refresh([topic])
        for row in response.topics:
            if row.name == topic:
                raise_for(row.error_code, f"metadata of topic {topic!r}")
                return described(row)
        raise BrokerUnavailable(f"the metadata that was asked for topic {topic!r} does not name it")

    async def topic(self, topic: str) -> TopicDescription:
        """Return the topic from the cached metadata, which is fetched if the topic is not in it."""
        return self._topics.get(topic) or await self.describe(topic)

    async def leader(self, topic: str, partition: int) -> PartitionLeader:
        """Return the leader of the partition from the cached metadata; RefusedForNow if none."""
        known = await self.topic(topic)
        leader = known.leaders.get(partition)
        if leader is None:
            raise RefusedForNow(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has partitions {sorted(known.leaders)}, not {partition}",
            )
        if leader.node_id == NOBODY:
            raise RefusedForNow(
                ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader now"
            )
        return leader

    def learn(self, brokers: Mapping[int, Address]) -> None:
        """Add brokers that a response named to those of the newest metadata."""
        self._brokers.update(brokers)

    def learn_leader(self, topic: str, partition: int, leader: PartitionLeader | None) -> None:
        """Take in a leader that a response named; None if it named none.

        If there is none, or another broker in the same leader epoch, the topic's metadata is
        dropped, and fetched again when it is needed. An older leader epoch is ignored.
        """
        known = self._topics.get(topic)
        if known is None:
            return
        before = known.leaders.get(partition)
        if leader is None:
            del self._topics[topic]
        elif before is None or before.leader_epoch < leader.leader_epoch:
            known.leaders[partition] = leader
        elif before.leader_epoch == leader.leader_epoch and before.node_id != leader.node_id:
            del self._topics[topic]

    async def ask_leader(
        self,
        topic: str,
        partition: int,
        ask: Callable[[BrokerConnection, PartitionLeader], Awaitable[T]],
        *,
        deadline_ms: int | None = None,
    ) -> T:
        """Ask the partition's leader, and after a change the next leader, until one answers."""

        async def attempt() -> T:
            leader = await self.leader(topic, partition)
            return await ask(await self.broker(leader.node_id), leader)

        return await self.patiently(
            attempt, f"{topic}-{partition}", topic=topic, deadline_ms=deadline_ms
        )

    async def patiently(
        self,
        attempt: Callable[[], Awaitable[T]],
        what: str,
        *,
        topic: str | None = None,
        deadline_ms: int | None = None,
    ) -> T:
        """Try until it works, the error is not retriable, or the deadline has passed."""
        limit_ms = self._deadline_ms if deadline_ms is None else deadline_ms
        begun = self.environment.monotonic()
        backoff_ms = float(BACKOFF_MS_MIN)
        tries = 0
        while True:
            tries += 1
            try:
                return await attempt()
            except RetryError as error:
                self._forget(topic)
                spent_ms = (self.environment.monotonic() - begun) * 1000
                if spent_ms + backoff_ms > limit_ms:
                    message = f"{what}: gave up after {tries} tries in {spent_ms:.0f} ms: {error}"
                    if isinstance(error, RefusedForNow):
                        raise RefusedForNow(error.code, message) from error
                    raise BrokerUnavailable(message) from error
            await asyncio.sleep(backoff_ms * self.environment.random().uniform(0.5, 1.0) / 1000)
            backoff_ms = min(BACKOFF_MS_MAX, backoff_ms * 2)

    def _forget(self, topic: str | None) -> None:
        """Drop metadata that may have led to an error: it is fetched again before the next try."""
        self._controller_id = NOBODY
        if topic is not None:
            self._topics.pop(topic, None)

    def _is_connected(self, address: Address) -> bool:
        connection = self._connections.get(address)
        return connection is not None and connection.is_open

    async def _connection_to(self, address: Address) -> BrokerConnection:
        async with self._opening.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is not None and connection.is_open:
                return connection
            if connection is not None:
                del self._connections[address]
                await connection.close()
            connection = await BrokerConnection.open(
                address,
                client_id=self._client_id,
                timeout_ms=self.request_timeout_ms,
                tls=self._tls,
            )
            self._connections[address] = connection
            return connection


def described(row: MetadataResponseTopic) -> TopicDescription:
    """Return a row of a metadata response as a TopicDescription."""
    leaders = {
        partition.partition_index: PartitionLeader(
            partition.leader_id, partition.leader_epoch, row.topic_id
        )
        for partition in row.partitions
    }
    return TopicDescription(row.name or "", row.topic_id, leaders, row.is_internal)
