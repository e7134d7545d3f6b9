"""Simulated members of KIP-848 groups: one heartbeat for everything, and the broker assigns.

Owns how such a member behaves. If it must give partitions up, it sometimes commits them, stops
reading them, and reports that. It reads new partitions from the committed offset on. Some members
pause, crash, or leave and come back.
"""

from typing import Any
from uuid import UUID

from holdfast.protocol.messages import metadata
from holdfast.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from holdfast.verify.vocabulary import Assigned, ConsumerHeartbeat, Partition
from simulation.clients.client import CallRefused, SimulatedClients
from simulation.clients.member import LOSES_MEMBERSHIP, SimulatedMember
from simulation.clients.transaction_requests import refusal

REBALANCE_MS = 1_500
HEARTBEAT_VERSION = 1
METADATA_VERSION = 12
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


class SimulatedConsumerMember(SimulatedMember):
    """A member of a consumer group; its generation is its member epoch."""

    def __init__(
        self,
        clients: SimulatedClients,
        name: str,
        group: str,
        topics: list[str],
        *,
        instance: str | None,
        is_late: bool,
    ) -> None:
        super().__init__(clients, name, group, instance=instance, is_late=is_late)
        self._topics = topics
        self._ids: dict[str, UUID] = {}
        self._lives = 0
        self._begin()

    def _begin(self) -> None:
        """Become a new process, which has a new member id."""
        self._lives += 1
        self.member_id, self.generation = f"{self.name}.{self._lives}", 0
        self.positions.clear()
        self.unplaced.clear()
        self.lost.clear()

    async def take_part(self, pause_s: float) -> None:
        """Take part until the simulation is over, or another process has the instance id."""
        await self.pause(0.0, 2 * pause_s)
        while not self._ids and not self.clients.is_over:
            await self._learn_ids()
            await self.pause(0.0, pause_s)
        while not self.clients.is_over and not self.is_gone:
            await self.beat()
            if self.generation > 0:
                await self.work()
            await self._misbehave()
            await self.pause(0.0, pause_s)

    async def _misbehave(self) -> None:
        draw = self.clients.chance.random()
        if draw < 0.05:
            await self.pause(0.5, 4.0)
        elif draw < 0.08:
            self._begin()
        elif draw < 0.11 and self.generation > 0:
            self.generation = LEAVE_EPOCH if self.instance is None else STATIC_LEAVE_EPOCH
            await self.beat()
            self._begin()
            await self.pause(0.2, 2.0)

    async def _learn_ids(self) -> None:
        topics = [metadata.MetadataRequestTopic(name=name) for name in self._topics]
        request = metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        operation = ConsumerHeartbeat(self.group, self.member_id, self.generation)

        def understand(response: metadata.MetadataResponse) -> Any:
            found = {t.name or "": t.topic_id for t in response.topics if not t.error_code}
            return found if len(found) == len(self._topics) else CallRefused("UNKNOWN_TOPIC_ID")

        call, answer = await self.request(
            self.group, operation, request, METADATA_VERSION, understand
        )
        if isinstance(answer, dict):
            self._ids = answer
            self.ok(call, Assigned(self.member_id, self.generation, None))

    async def beat(self) -> None:
        """Report what the member owns, and adopt the assignment in the answer."""
        is_joining = self.generation == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.generation,
            instance_id=self.instance,
            rebalance_timeout_ms=REBALANCE_MS if is_joining else -1,
            subscribed_topic_names=self._topics if is_joining else None,
            topic_partitions=[] if is_joining else self._reported(),
        )
        names = {topic_id: name for name, topic_id in self._ids.items()}
        member_id = self.member_id

        def understand(response: ConsumerGroupHeartbeatResponse) -> Any:
            refused = refusal(response.error_code)
            if refused is not None:
                return refused
            given = response.assignment
            partitions = (
                tuple(
                    sorted(
                        f"{names[topic.topic_id]}/{number}"
                        for topic in given.topic_partitions
                        for number in topic.partitions
                    )
                )
                if given is not None
                else None
            )
            return Assigned(member_id, response.member_epoch, partitions)

        operation = ConsumerHeartbeat(self.group, member_id, self.generation)
        call, answer = await self.request(
            self.group, operation, request, HEARTBEAT_VERSION, understand
        )
        if not isinstance(answer, Assigned):
            self.heed(answer)
            return
        self.ok(call, answer)
        if self.generation >= 0:
            self.generation = answer.generation
            if answer.partitions is not None:
                await self._adopt(set(answer.partitions))

    async def _adopt(self, wanted: set[Partition]) -> None:
        revoked = {p: o for p, o in self.positions.items() if p not in wanted}
        if revoked and self.chance(0.6):
            await self.commit(revoked)
        added = wanted - self.owned
        self.lose(self.owned - wanted)
        self.own(added)

    def _reported(self) -> list[TopicPartitions]:
        return [
            TopicPartitions(
                topic_id=topic_id,
                partitions=sorted(
                    int(p.rpartition("/")[2]) for p in self.owned if p.rpartition("/")[0] == name
                ),
            )
            for name, topic_id in self._ids.items()
        ]

    def heed(self, answer: Any) -> None:
        super().heed(answer)
        if isinstance(answer, CallRefused) and answer.error in LOSES_MEMBERSHIP:
            self.lose(self.owned)
            self.generation = 0
