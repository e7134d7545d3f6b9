"""Consumer groups without a broker: topics are set by hand, members behave as clients do."""

import itertools
from uuid import UUID

from tests.support.groups import GROUP, TOPIC, World

from holdfast.groups.caller import Caller
from holdfast.groups.consumer.consumer_group import ConsumerGroup
from holdfast.groups.outbox import Token
from holdfast.groups.rules import GroupRules
from holdfast.identifiers import PartitionId
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

SESSION_S = 45
REBALANCE_S = 60


class ConsumerWorld(World):
    """A coordinator, and the topics that it is told of."""

    def __init__(self, rules: GroupRules | None = None) -> None:
        super().__init__(rules)
        self._numbers = itertools.count(10_000)

    def beat(
        self, request: ConsumerGroupHeartbeatRequest, *, version: int = 1
    ) -> ConsumerGroupHeartbeatResponse:
        token = Token(next(self._numbers))
        caller = Caller("client", "/127.0.0.1", version)
        topics = self.matched_topics(request.subscribed_topic_regex)
        self.coordinator.consumer_heartbeat(request, caller, token, topics, self.now)
        response = self.answers[token]
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def group(self) -> ConsumerGroup:
        group = self.coordinator.consumer(GROUP)
        assert group is not None
        return group

    def owners(self) -> dict[int, str]:
        """Who owns the partitions of the topic, as the coordinator sees it."""
        return {p.partition: i for p, i in sorted(self.group().durable.owners.items())}


class Client:
    """A member as a client runs it: it owns what it was told, and says so."""

    def __init__(
        self,
        world: ConsumerWorld,
        member_id: str,
        *,
        topics: list[str] | None = None,
        regex: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self.world = world
        self.member_id = member_id
        self.topics = [TOPIC] if topics is None else topics
        self.regex = regex
        self.instance = instance
        self.assignor = assignor
        self.epoch = 0
        self.owned: frozenset[PartitionId] = frozenset()

    def request(self) -> ConsumerGroupHeartbeatRequest:
        """All that the client knows."""
        topics: dict[UUID, list[int]] = {}
        for partition in sorted(self.owned):
            topics.setdefault(partition.topic_id, []).append(partition.partition)
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=REBALANCE_S * 1000,
            subscribed_topic_names=self.topics,
            subscribed_topic_regex=self.regex,
            server_assignor=self.assignor,
            topic_partitions=[
                TopicPartitions(topic_id=topic, partitions=numbers)
                for topic, numbers in topics.items()
            ],
        )

    def lost(self) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat whose answer never arrives."""
        return self.world.beat(self.request())

    def beat(self) -> ErrorCode:
        """A heartbeat; its answer is followed at once."""
        answer = self.world.beat(self.request())
        error = ErrorCode(answer.error_code)
        if error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.abandon()
        elif error is ErrorCode.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = frozenset(
                    PartitionId(topic.topic_id, number)
                    for topic in answer.assignment.topic_partitions
                    for number in topic.partitions
                )
        return error

    def quiet_beat(self) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat that says nothing but that the member is alive."""
        return self.world.beat(
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch
            )
        )

    def abandon(self) -> None:
        """Own nothing, and join anew."""
        self.epoch, self.owned = 0, frozenset()

    def leave(self, epoch: int = -1) -> ErrorCode:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance,
        )
        answer = self.world.beat(request)
        if answer.error_code == ErrorCode.NONE:
            assert answer.member_epoch == epoch
        self.abandon()
        return ErrorCode(answer.error_code)

    @property
    def numbers(self) -> list[int]:
        return sorted(partition.partition for partition in self.owned)


def settle(*clients: Client, rounds: int = 6) -> None:
    """All heartbeat until nothing moves any more."""
    for _ in range(rounds):
        for client in clients:
            client.beat()
