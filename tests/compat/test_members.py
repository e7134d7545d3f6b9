"""Members of this client in groups of both protocols, alone and with librdkafka."""

import asyncio
import random
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.members import Group, group_of
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker
from tests.support.async_tests import in_event_loop

from holdfast.client.cluster import Cluster
from holdfast.client.groups import committed_offsets
from holdfast.client.refusals import RequestRefused
from holdfast.environment import SystemEnvironment
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition

PARTITIONS = 6
AnyCluster = KafkaBroker | HoldfastBroker


@pytest.fixture(params=["consumer", "classic"])
def protocol(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def topic(partitioned_topic: Callable[[int], str]) -> str:
    return partitioned_topic(PARTITIONS)


@in_event_loop
async def test_members_share_the_partitions_and_no_two_ever_hold_the_same(
    cluster: AnyCluster, topic: str, protocol: str
):
    async with group_of(cluster.bootstrap, topic, protocol) as group:
        first = group.join("first")
        await group.until_split(PARTITIONS, "first")
        kept = first.held
        group.join("second")
        await group.until_split(PARTITIONS, "first", "second")
        assert first.held == kept - first.revoked_ones
        third = group.join("third")
        await group.until_split(PARTITIONS, "first", "second", "third")
        assert len(first.revoked_ones) == 4
        await third.leave()
        assert third.held == set()
        await group.until_split(PARTITIONS, "first", "second")
        await first.leave()
        await group.until_split(PARTITIONS, "second")
        for member in group.ours:
            assert set(member.committed_at_revoke) <= {ErrorCode.NONE}
            assert member.lost_ones == set()


@in_event_loop
async def test_an_owner_commits_and_after_it_gave_up_nothing_is_sent(
    cluster: AnyCluster, topic: str, protocol: str
):
    async with group_of(cluster.bootstrap, topic, protocol) as group:
        first = group.join("first")
        await group.until_split(PARTITIONS, "first")
        all_of_it = {TopicPartition(topic, number): 41 for number in range(PARTITIONS)}
        answers = await first.member.commit(all_of_it)
        assert set(answers.values()) == {ErrorCode.NONE}
        group.join("second")
        await group.until_split(PARTITIONS, "first", "second")
        answers = await first.member.commit(dict.fromkeys(all_of_it, 43))
        refused = {where.partition for where, code in answers.items() if code != 0}
        assert refused == first.revoked_ones
        async with Cluster(cluster.bootstrap, environment=SystemEnvironment()) as client:
            found = await committed_offsets(client, group.group)
        expected = {n: 7 if n in refused else 43 for n in range(PARTITIONS)}
        assert {where.partition: offset for where, offset in found.items()} == expected


@in_event_loop
async def test_a_member_stays_in_while_its_owner_takes_long_to_give_up(
    cluster: AnyCluster, topic: str, protocol: str
):
    async with group_of(cluster.bootstrap, topic, protocol) as group:
        slow = group.join("slow", rebalance_timeout_ms=30_000)
        await group.until_split(PARTITIONS, "slow")
        slow.may_give_up.clear()
        group.join("other", rebalance_timeout_ms=30_000)
        await group.until(lambda: slow.revoked_ones != set(), "partitions are to be given up")
        given_up = set(slow.revoked_ones)
        assert 29 < slow.seconds[0] <= 30
        # Longer than the session: only heartbeats keep the member in.
        loop = asyncio.get_running_loop()
        ended_at = loop.time() + (11 if protocol == "consumer" else 7)
        await group.until(lambda: loop.time() > ended_at, "a session would have ended")
        assert slow.held == set(range(PARTITIONS))
        assert group.table.held_by("other") == set()
        slow.may_give_up.set()
        await group.until_split(PARTITIONS, "slow", "other")
        assert group.table.held_by("other") == given_up
        assert slow.lost_ones == set()
        assert set(slow.committed_at_revoke) == {ErrorCode.NONE}


@in_event_loop
async def test_what_a_member_had_that_stopped_without_a_word_goes_to_the_others(
    cluster: AnyCluster, topic: str, protocol: str
):
    async with group_of(cluster.bootstrap, topic, protocol) as group:
        gone = group.join("gone")
        group.join("left")
        await group.until_split(PARTITIONS, "gone", "left")
        had = gone.held
        gone.task.cancel()
        await asyncio.wait([gone.task])
        assert gone.lost_ones == had
        await group.until_split(PARTITIONS, "left")


@in_event_loop
async def test_a_group_with_consumers_of_librdkafka_shares_the_partitions(
    cluster: AnyCluster, topic: str, protocol: str
):
    async with group_of(cluster.bootstrap, topic, protocol) as group:
        group.join_theirs("theirs")
        await group.until_split(PARTITIONS, "theirs")
        ours = group.join("ours")
        await group.until_split(PARTITIONS, "theirs", "ours")
        group.join_theirs("also theirs")
        await group.until_split(PARTITIONS, "theirs", "ours", "also theirs")
        group.theirs.pop(0).close()
        await group.until_split(PARTITIONS, "ours", "also theirs")
        group.join("also ours")
        await group.until_split(PARTITIONS, "ours", "also theirs", "also ours")
        await ours.leave()
        await group.until_split(PARTITIONS, "also theirs", "also ours")


@in_event_loop
async def test_consumers_of_librdkafka_are_given_partitions_by_a_leader_of_this_client(
    cluster: AnyCluster, topic: str
):
    async with group_of(cluster.bootstrap, topic, "classic") as group:
        ours = group.join("ours")
        await group.until_split(PARTITIONS, "ours")
        group.join_theirs("theirs")
        await group.until_split(PARTITIONS, "theirs", "ours")
        group.join_theirs("also theirs")
        await group.until_split(PARTITIONS, "theirs", "ours", "also theirs")
        assert len(ours.revoked_ones) == 4


@in_event_loop
async def test_topics_that_match_a_pattern_are_taken_in_when_they_come(
    cluster: AnyCluster, topic: str, protocol: str, admin: AdminClient
):
    async with group_of(cluster.bootstrap, topic, protocol) as group:
        group.join("first", topics=(), pattern=f"{topic}.*", topics_interval_ms=300)
        group.join("second", topics=(), pattern=f"{topic}.*", topics_interval_ms=300)
        await group.until_split(PARTITIONS, "first", "second")
        admin.create_topics([NewTopic(f"{topic}-more", 2, 1)])[f"{topic}-more"].result(20)
        more = {TopicPartition(f"{topic}-more", number) for number in range(2)}

        def are_held() -> bool:
            return all(len(group.table.holders.get(where, ())) == 1 for where in more)

        await group.until(are_held, "the new topic's partitions are held")
        assert group.table.doubles == []


@in_event_loop
async def test_a_static_member_comes_back_to_what_it_had_and_nobody_else_may_be_it(
    cluster: AnyCluster, topic: str, protocol: str
):
    async with group_of(cluster.bootstrap, topic, protocol) as group:
        first = group.join("first", instance_id="one")
        group.join("second", instance_id="two")
        await group.until_split(PARTITIONS, "first", "second")
        had = first.held
        await first.leave()
        await group.until(lambda: first.task.done(), "the first has left")
        back = group.join("back", instance_id="one")
        await group.until_split(PARTITIONS, "back", "second")
        assert back.held == had
        if protocol == "consumer":
            double = group.join("double", instance_id="one")
            with pytest.raises(RequestRefused, match="instance id") as refusal:
                await asyncio.wait_for(double.task, 20)
            assert refusal.value.code == ErrorCode.UNRELEASED_INSTANCE_ID
        else:
            group.join("double", instance_id="one")
            with pytest.raises(RequestRefused, match="instance id") as refusal:
                await asyncio.wait_for(back.task, 20)
            assert refusal.value.code == ErrorCode.FENCED_INSTANCE_ID
            assert back.lost_ones == had


@pytest.mark.parametrize("seed", [1, 2])
def test_whoever_comes_and_goes_no_partition_is_held_by_two_and_in_the_end_each_by_one(
    cluster: AnyCluster, topic: str, protocol: str, seed: int
):
    chance = random.Random(seed)

    async def turn(group: Group, number: int) -> None:
        running = [member for member in group.ours if not member.task.done()]
        match chance.choice(["join", "join", "leave", "cancel", "theirs", "slow"]):
            case "join" if len(running) < 4:
                group.join(f"member-{number}")
            case "leave" if len(running) > 1:
                await chance.choice(running).leave()
            case "cancel" if len(running) > 1:
                chance.choice(running).task.cancel()
            case "theirs" if len(group.theirs) < 2:
                group.join_theirs(f"theirs-{number}")
            case "slow" if running:
                slow = chance.choice(running)
                slow.may_give_up.clear()
                asyncio.get_running_loop().call_later(1.0, slow.may_give_up.set)
            case _:
                pass
        rest = asyncio.get_running_loop().time() + chance.uniform(0.0, 0.8)
        await group.until(lambda: asyncio.get_running_loop().time() > rest, "some time")

    async def scenario() -> None:
        async with group_of(cluster.bootstrap, topic, protocol) as group:
            group.join("first")
            for number in range(15):
                await turn(group, number)
                assert group.table.doubles == []
            left = [member.name for member in group.ours if not member.task.done()]
            await group.until_split(PARTITIONS, *left, *(other.name for other in group.theirs))
            for member in group.ours:
                assert set(member.committed_at_revoke) <= {ErrorCode.NONE}

    asyncio.run(scenario())
