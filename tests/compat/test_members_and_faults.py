"""Members of this client that are paused, and whose coordinator is killed."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat import one_member
from tests.compat.members import Group, group_of
from tests.peers.holdfast import HoldfastBroker
from tests.peers.holdfast_cluster import HoldfastCluster
from tests.peers.kafka import KafkaBroker
from tests.peers.process import Process

from holdfast.client.cluster import Cluster
from holdfast.client.groups import committed_offsets
from holdfast.environment import SystemEnvironment
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition

PARTITIONS = 6
OVERRIDES = [
    *("--override", "group.initial.rebalance.delay.ms=0"),
    *("--override", "group.consumer.heartbeat.interval.ms=500"),
]
TAKEN_OVER = 5


@pytest.fixture(params=["consumer", "classic"])
def protocol(request: pytest.FixtureRequest) -> str:
    return request.param


async def offsets_of(bootstrap: str, group: Group) -> set[int]:
    async with Cluster(bootstrap, environment=SystemEnvironment()) as client:
        return set((await committed_offsets(client, group.group)).values())


def test_a_member_that_was_paused_commits_nothing_of_what_it_lost_and_comes_back(
    cluster: KafkaBroker | HoldfastBroker,
    partitioned_topic: Callable[[int], str],
    protocol: str,
    tmp_path: Path,
):
    topic = partitioned_topic(PARTITIONS)

    async def scenario(group: Group, paused: Process) -> None:
        def said() -> list[str]:
            return paused.log_text().splitlines()

        await group.until(lambda: "assigned 6" in said(), "the process owns everything")
        os.kill(paused.pid, signal.SIGSTOP)
        before = len(said())
        ours = group.join("ours")
        await group.until_split(PARTITIONS, "ours")
        taken = {TopicPartition(topic, number): TAKEN_OVER for number in range(PARTITIONS)}
        assert set((await ours.member.commit(taken)).values()) == {ErrorCode.NONE}
        ours.may_give_up.clear()
        os.kill(paused.pid, signal.SIGCONT)
        await group.until(lambda: "lost 6" in said()[before:], "the process knows that it lost")
        # What it sends at its return is decided before its loss is known; none of it counts.
        assert await offsets_of(cluster.bootstrap, group) == {TAKEN_OVER}
        ours.may_give_up.set()
        await group.until(lambda: len(ours.held) == PARTITIONS // 2, "the process is back")
        await group.until(lambda: "assigned 3" in said()[before:], "the process has its share")
        assert set(ours.committed_at_revoke) == {ErrorCode.NONE}

    async def whole() -> None:
        async with group_of(cluster.bootstrap, topic, protocol) as group:
            command = [sys.executable, one_member.__file__ or "", cluster.bootstrap]
            command += [group.group, topic, protocol]
            paused = Process(command, log=tmp_path / "paused.log")
            try:
                await scenario(group, paused)
            finally:
                paused.kill()

    asyncio.run(whole())


def test_members_keep_what_they_have_over_a_kill_of_their_coordinator(
    tmp_path: Path, protocol: str
):
    broker = HoldfastBroker(tmp_path, arguments=OVERRIDES).start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(20)

        async def scenario() -> None:
            async with group_of(broker.bootstrap, "orders", protocol) as group:
                first, second = group.join("first"), group.join("second")
                await group.until_split(PARTITIONS, "first", "second")
                had = first.held, second.held
                broker.kill()
                mine = {TopicPartition("orders", number): 11 for number in first.held}
                committing = asyncio.create_task(first.member.commit(mine))
                await asyncio.to_thread(broker.start)
                assert set((await committing).values()) == {ErrorCode.NONE}
                third = group.join("third")
                await group.until_split(PARTITIONS, "first", "second", "third")
                assert (first.lost_ones, second.lost_ones) == (set(), set())
                assert first.held < had[0]
                assert second.held < had[1]
                broker.kill()
                await asyncio.to_thread(broker.start)
                await third.leave()
                await group.until_split(PARTITIONS, "first", "second")

        asyncio.run(scenario())
    finally:
        broker.stop()


def test_members_keep_what_they_have_when_another_broker_becomes_their_coordinator(
    tmp_path: Path, protocol: str
):
    cluster = HoldfastCluster(tmp_path, brokers=2, arguments=OVERRIDES).start()
    try:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(20)

        async def commit_all(group: Group, offset: int) -> None:
            for member in group.ours:
                mine = {TopicPartition("orders", number): offset for number in member.held}
                assert set((await member.member.commit(mine)).values()) == {ErrorCode.NONE}

        async def scenario() -> None:
            async with group_of(cluster.bootstrap, "orders", protocol) as group:
                first, second = group.join("first"), group.join("second")
                await group.until_split(PARTITIONS, "first", "second")
                had = first.held, second.held
                for turn, (end, number) in enumerate((("stop", 1), ("kill", 2))):
                    broker = cluster.brokers[number]
                    await asyncio.to_thread(broker.stop if end == "stop" else broker.kill)
                    await commit_all(group, turn)
                    await asyncio.to_thread(broker.start)
                    await commit_all(group, 10 + turn)
                assert (first.held, second.held) == had
                assert (first.lost_ones, second.lost_ones) == (set(), set())
                await second.leave()
                await group.until_split(PARTITIONS, "first")
                assert await offsets_of(cluster.bootstrap, group) == {7, 11}

        asyncio.run(scenario())
    finally:
        cluster.stop()
