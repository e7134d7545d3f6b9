"""A member over a real socket, with a coordinator that answers as it is told."""

import asyncio
from collections.abc import Callable, Collection
from uuid import UUID

import pytest
from tests.support.driven_members import settings
from tests.unit.client.heartbeats import answer, refusal
from tests.unit.client.scripted_broker import TOPIC, ScriptedBroker, all_versions

from holdfast.client.cluster import Cluster
from holdfast.client.membership.interface import MemberSettings
from holdfast.client.membership.member import RunningMember
from holdfast.client.refusals import RequestRefused, UnsupportedByBroker
from holdfast.environment import SystemEnvironment
from holdfast.errors import ConfigurationError
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.protocol.message import Message
from holdfast.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from holdfast.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from holdfast.protocol.messages.join_group import JoinGroupResponse
from holdfast.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NODE = 7
Heartbeats = Callable[[ConsumerGroupHeartbeatRequest], ConsumerGroupHeartbeatResponse]


class Scripted:
    """A coordinator of one topic; heartbeats are answered by the test."""

    def __init__(self, heartbeats: Heartbeats | None) -> None:
        self._heartbeats = heartbeats
        self.asked: list[ConsumerGroupHeartbeatRequest] = []
        self.broker = ScriptedBroker(self._script)

    def _script(self, key: ApiKey, request: Message) -> Message | None:
        address = {"host": "127.0.0.1", "port": self.broker.port}
        match key:
            case ApiKey.API_VERSIONS if self._heartbeats is None:
                versions = all_versions()
                versions.api_keys = [
                    row
                    for row in versions.api_keys
                    if row.api_key != ApiKey.CONSUMER_GROUP_HEARTBEAT
                ]
                return versions
            case ApiKey.FIND_COORDINATOR:
                row = Coordinator(key="", node_id=NODE, **address)
                return FindCoordinatorResponse(coordinators=[row])
            case ApiKey.METADATA:
                parts = [
                    MetadataResponsePartition(partition_index=n, leader_id=NODE) for n in (0, 1)
                ]
                topic = MetadataResponseTopic(name=TOPIC, topic_id=UUID(int=7), partitions=parts)
                brokers = [MetadataResponseBroker(node_id=NODE, **address)]
                return MetadataResponse(brokers=brokers, controller_id=NODE, topics=[topic])
            case ApiKey.JOIN_GROUP:
                return JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED)
            case _:
                if not isinstance(request, ConsumerGroupHeartbeatRequest):
                    return None
                self.asked.append(request)
                assert self._heartbeats is not None
                return self._heartbeats(request)


class Told:
    """An owner that writes down what it is told, and gives up when it may."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.may_give_up = asyncio.Event()
        self.changed = asyncio.Event()

    def _say(self, what: str, partitions: Collection[TopicPartition]) -> None:
        self.events.append(f"{what} {sorted(where.partition for where in partitions)}")
        self.changed.set()

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._say("assigned", partitions)

    async def revoked(self, partitions: Collection[TopicPartition], seconds: float) -> None:
        self._say("revoking", partitions)
        try:
            await self.may_give_up.wait()
        except asyncio.CancelledError:
            self._say("cancelled", partitions)
            raise
        self._say("revoked", partitions)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        self._say("lost", partitions)

    async def until(self, count: int) -> None:
        while len(self.events) < count:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 20)


def beat(epoch: int, *numbers: int, is_news: bool = True) -> ConsumerGroupHeartbeatResponse:
    response = answer(epoch, *numbers, is_news=is_news)
    response.heartbeat_interval_ms = 50
    return response


def run(
    scripted: Scripted,
    told: MemberSettings,
    scenario: Callable[[RunningMember, Told, asyncio.Event, "asyncio.Task[None]"], object]
    | None = None,
) -> list[str]:
    async def whole() -> list[str]:
        environment, owner, stop = SystemEnvironment(), Told(), asyncio.Event()
        async with (
            scripted.broker as broker,
            Cluster(broker.bootstrap, environment=environment) as cluster,
        ):
            member = RunningMember(cluster, told, owner, environment=environment)
            running = asyncio.create_task(member.run(stop))
            if scenario is not None:
                made = scenario(member, owner, stop, running)
                assert asyncio.iscoroutine(made)
                await made
            await asyncio.wait_for(running, 20)
            return owner.events

    return asyncio.run(whole())


def test_where_the_broker_has_no_consumer_protocol_the_member_is_a_classic_one():
    with pytest.raises(RequestRefused) as refused:
        run(Scripted(None), settings(protocol=None))  # pyright: ignore[reportArgumentType]
    assert refused.value.code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_where_it_is_asked_for_by_name_that_is_an_error():
    with pytest.raises(UnsupportedByBroker):
        run(Scripted(None), settings("consumer"))


def test_heartbeats_go_on_during_a_revocation_that_ends_when_the_member_is_fenced():
    def heartbeats(request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        beats = len(scripted.asked)
        if request.member_epoch == -1:
            return beat(-1, is_news=False)
        if request.member_epoch == 0:
            return beat(5, 0, 1) if beats == 1 else beat(9, 1)
        if beats == 3:
            return beat(5, 1)
        if beats == 9:
            return refusal(ErrorCode.FENCED_MEMBER_EPOCH)
        return beat(request.member_epoch, is_news=False)

    async def scenario(
        member: RunningMember, owner: Told, stop: asyncio.Event, _: "asyncio.Task[None]"
    ) -> None:
        await owner.until(5)
        assert member.description.epoch == 9
        owner.may_give_up.set()
        stop.set()

    scripted = Scripted(heartbeats)
    assert run(scripted, settings(), scenario) == [
        "assigned [0, 1]",
        "revoking [0]",
        "lost [0, 1]",
        "cancelled [0]",
        "assigned [1]",
        "revoking [1]",
        "revoked [1]",
    ]
    assert scripted.asked[-1].member_epoch == -1


def test_an_answer_that_never_came_costs_nothing_but_a_full_heartbeat():
    def heartbeats(request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        if len(scripted.asked) == 1:
            return beat(5, 0, 1)
        if len(scripted.asked) == 4:
            return refusal(ErrorCode.NOT_COORDINATOR)
        if len(scripted.asked) == 6:
            is_enough.set()
        return beat(request.member_epoch, is_news=False)

    async def scenario(
        member: RunningMember, owner: Told, stop: asyncio.Event, _: "asyncio.Task[None]"
    ) -> None:
        owner.may_give_up.set()
        await asyncio.wait_for(is_enough.wait(), 20)
        assert member.description.state == "stable"
        stop.set()

    is_enough = asyncio.Event()
    scripted = Scripted(heartbeats)
    events = run(scripted, settings(), scenario)
    assert events == ["assigned [0, 1]", "revoking [0, 1]", "revoked [0, 1]"]
    again = scripted.asked[4]
    assert (again.member_epoch, again.subscribed_topic_names) == (5, [TOPIC])
    assert again.topic_partitions is not None
    assert scripted.broker.times_asked(ApiKey.FIND_COORDINATOR) == 2


def test_a_member_that_is_cancelled_has_lost_what_it_had_and_says_no_word():
    def heartbeats(request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        return beat(5, 0, 1, is_news=request.member_epoch == 0)

    async def scenario(
        member: RunningMember, owner: Told, stop: asyncio.Event, running: "asyncio.Task[None]"
    ) -> None:
        await owner.until(1)
        running.cancel()
        await asyncio.wait([running])
        assert owner.events == ["assigned [0, 1]", "lost [0, 1]"]
        left = await member.commit({TopicPartition(TOPIC, 0): 4})
        assert left == {TopicPartition(TOPIC, 0): ErrorCode.STALE_MEMBER_EPOCH}

    scripted = Scripted(heartbeats)
    with pytest.raises(asyncio.CancelledError):
        run(scripted, settings(), scenario)
    assert all(request.member_epoch >= 0 for request in scripted.asked)


def test_a_refusal_that_stays_ends_the_member_with_words_and_nothing_owned():
    def heartbeats(request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        if len(scripted.asked) < 3:
            return beat(5, 0, 1)
        return refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    scripted = Scripted(heartbeats)
    with pytest.raises(RequestRefused, match="GROUP_AUTHORIZATION_FAILED: the broker's words"):
        run(scripted, settings())


def test_a_pattern_that_is_no_regular_expression_is_refused_before_anything_is_asked():
    with pytest.raises(ConfigurationError, match="no regular expression"):
        run(Scripted(None), settings(pattern="orders-("))
    with pytest.raises(ConfigurationError, match="neither topics nor a pattern"):
        run(Scripted(None), settings(topics=()))
