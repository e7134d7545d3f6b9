"""Commits of a member against a broker that answers as it is told: what is sent, and how often."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

from tests.support.driven_members import settings
from tests.support.groups import GROUP, TOPIC
from tests.unit.client.scripted_broker import HangUp, ScriptedBroker

from holdfast.client.cluster import Cluster
from holdfast.client.membership.commits import NOT_OWNED, MembershipCommits
from holdfast.client.membership.consumer_core import ConsumerCore
from holdfast.client.membership.core import TopicsSeen
from holdfast.client.membership.link import CoordinatorLink
from holdfast.environment import SystemEnvironment
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.protocol.message import Message
from holdfast.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
    HeartbeatAssignment,
)
from holdfast.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from holdfast.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

TOPIC_ID = UUID(int=7)
OURS = {TopicPartition(TOPIC, number): 40 + number for number in (0, 1)}


def heartbeat(epoch: int, *numbers: int) -> ConsumerGroupHeartbeatResponse:
    row = ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=TOPIC_ID, partitions=list(numbers))
    return ConsumerGroupHeartbeatResponse(
        member_id="me",
        member_epoch=epoch,
        heartbeat_interval_ms=1000,
        assignment=HeartbeatAssignment(topic_partitions=[row]),
    )


def member(epoch: int = 5, *numbers: int) -> ConsumerCore:
    core = ConsumerCore(settings(), member_id="me")
    core.see(TopicsSeen((TOPIC,), {TOPIC: 4}, {TOPIC_ID: TOPIC}), 0.0)
    core.ask(1)
    core.apply(heartbeat(epoch, *(numbers or (0, 1))), 0.0)
    while core.held.step(0.0):
        pass
    return core


class ScriptedCoordinator:
    """Answers commits with what it is given, one after the other."""

    def __init__(self, *answers: ErrorCode | HangUp | dict[int, ErrorCode]) -> None:
        self._answers = list(answers)
        self.commits: list[OffsetCommitRequest] = []
        self.during: Callable[[], None] = lambda: None
        self.broker = ScriptedBroker(self._script)

    def _script(self, key: ApiKey, request: Message) -> Message | HangUp | None:
        if key is ApiKey.FIND_COORDINATOR:
            row = Coordinator(key=GROUP, node_id=7, host="127.0.0.1", port=self.broker.port)
            return FindCoordinatorResponse(coordinators=[row])
        if not isinstance(request, OffsetCommitRequest):
            return None
        self.commits.append(request)
        self.during()
        answer = self._answers.pop(0)
        if isinstance(answer, HangUp):
            return answer
        rows = [
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=part.partition_index,
                        error_code=(
                            answer.get(part.partition_index, ErrorCode.NONE)
                            if isinstance(answer, dict)
                            else answer
                        ),
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return OffsetCommitResponse(topics=rows)


async def nothing_heard() -> None:
    return None


def committed(
    core: ConsumerCore,
    coordinator: ScriptedCoordinator,
    heard: Callable[[], Awaitable[None]] = nothing_heard,
    offsets: dict[TopicPartition, int] = OURS,
) -> dict[int, ErrorCode]:
    async def scenario() -> dict[TopicPartition, ErrorCode]:
        environment = SystemEnvironment()
        async with (
            coordinator.broker as broker,
            Cluster(broker.bootstrap, environment=environment) as cluster,
        ):
            link = CoordinatorLink(cluster, GROUP)
            return await MembershipCommits(core, link, settings(), environment, heard).commit(
                offsets
            )

    return {where.partition: code for where, code in asyncio.run(scenario()).items()}


def test_a_commit_goes_out_under_the_epoch_of_now_and_by_name():
    coordinator = ScriptedCoordinator(ErrorCode.NONE)
    assert committed(member(5), coordinator) == {0: ErrorCode.NONE, 1: ErrorCode.NONE}
    (request,) = coordinator.commits
    assert (request.member_id, request.generation_id_or_member_epoch) == ("me", 5)
    (topic,) = request.topics
    offsets = {part.partition_index: part.committed_offset for part in topic.partitions}
    assert (topic.name, offsets) == (TOPIC, {0: 40, 1: 41})


def test_what_is_not_owned_is_answered_and_not_sent():
    coordinator = ScriptedCoordinator(ErrorCode.NONE)
    assert committed(member(5, 1), coordinator) == {0: NOT_OWNED, 1: ErrorCode.NONE}
    assert [p.partition_index for p in coordinator.commits[0].topics[0].partitions] == [1]


def test_a_member_that_was_fenced_sends_nothing():
    core, coordinator = member(5), ScriptedCoordinator()
    core.apply(ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH), 1.0)
    assert committed(core, coordinator) == {0: NOT_OWNED, 1: NOT_OWNED}
    assert coordinator.commits == []


def test_a_stale_epoch_is_tried_once_more_under_the_newest():
    core = member(5)
    stale = ErrorCode.STALE_MEMBER_EPOCH
    coordinator = ScriptedCoordinator(stale, stale)

    async def heard() -> None:
        core.ask(1)
        core.apply(heartbeat(core.epoch + 1, 0, 1), 1.0)

    assert committed(core, coordinator, heard) == {0: stale, 1: stale}
    assert [c.generation_id_or_member_epoch for c in coordinator.commits] == [5, 6]


def test_a_stale_epoch_that_is_still_the_newest_is_not_tried_again():
    coordinator = ScriptedCoordinator({1: ErrorCode.STALE_MEMBER_EPOCH})
    assert committed(member(5), coordinator) == {0: ErrorCode.NONE, 1: NOT_OWNED}
    assert len(coordinator.commits) == 1


def test_what_was_given_up_meanwhile_is_not_tried_again():
    core = member(5)
    coordinator = ScriptedCoordinator(ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NONE)

    def give_up() -> None:
        core.ask(1)
        core.apply(heartbeat(6, 1), 1.0)
        core.held.step(1.0)
        core.given_up(1.0)
        coordinator.during = lambda: None

    coordinator.during = give_up
    assert committed(core, coordinator) == {0: NOT_OWNED, 1: ErrorCode.NONE}
    first, second = coordinator.commits
    assert [p.partition_index for p in first.topics[0].partitions] == [0, 1]
    assert [p.partition_index for p in second.topics[0].partitions] == [1]
    assert second.generation_id_or_member_epoch == 6


def test_a_coordinator_that_hangs_up_or_has_moved_is_found_again():
    coordinator = ScriptedCoordinator(HangUp(), ErrorCode.NOT_COORDINATOR, ErrorCode.NONE)
    assert committed(member(5), coordinator) == {0: ErrorCode.NONE, 1: ErrorCode.NONE}
    assert coordinator.broker.times_asked(ApiKey.FIND_COORDINATOR) == 3


def test_a_partition_that_is_refused_for_good_does_not_hold_up_the_others():
    coordinator = ScriptedCoordinator(
        {0: ErrorCode.OFFSET_METADATA_TOO_LARGE, 1: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS},
        ErrorCode.NONE,
    )
    expected = {0: ErrorCode.OFFSET_METADATA_TOO_LARGE, 1: ErrorCode.NONE}
    assert committed(member(5), coordinator) == expected
    assert [p.partition_index for p in coordinator.commits[1].topics[0].partitions] == [1]
