"""Seed 001: a batch in flight was acknowledged after its partition had gone to another consumer.

There the late ack moved the committed offset past records that the new owner had not read, and
they were lost. Here the broker refuses it, for that partition alone, and takes the rightful last
commit of a cooperative revoke.
"""

import asyncio
import dataclasses

from tests.seeds.wire import Cluster, ask, poll, send
from tests.unit.broker.cluster import simulate, topic, values_in
from tests.unit.groups.world import assignment, subscription

from holdfast.broker.broker import Broker
from holdfast.groups.commits import NOT_OWNED
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from holdfast.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from holdfast.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

GROUP = "to-s3"
RECORDS = 10


@dataclasses.dataclass
class Member:
    """A consumer, by what it has been told."""

    broker: Broker
    member_id: str = ""
    generation: int = -1

    async def join(self) -> JoinGroupResponse:
        protocol = JoinGroupRequestProtocol(name="cooperative", metadata=subscription("t"))
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        answer: JoinGroupResponse = await ask(self.broker, request)
        self.member_id = answer.member_id
        if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            assert answer.error_code == 0
            self.generation = answer.generation_id
        return answer

    async def sync(self, given: dict[str, bytes]) -> bytes:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=i, assignment=data)
                for i, data in given.items()
            ],
        )
        answer = await ask(self.broker, request)
        assert answer.error_code == 0
        return answer.assignment

    async def commit(self, offset: int) -> int:
        """Commit the one partition; the error for it."""
        wanted = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=None
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[wanted])],
        )
        return (await ask(self.broker, request)).topics[0].partitions[0].error_code


async def rebalance(*members: tuple[Member, bytes]) -> None:
    """New ones get their ids; then all join, the leader first, it assigns, and all sync."""
    for member, _ in members:
        if not member.member_id:
            await member.join()
    leader = asyncio.ensure_future(members[0][0].join())
    await asyncio.sleep(0.01)  # virtual: the others hear of the rebalance, and join again
    await asyncio.gather(leader, *(member.join() for member, _ in members[1:]))
    given = {member.member_id: data for member, data in members}
    got = await asyncio.gather(*(member.sync(given) for member, _ in members))
    assert got == [data for _, data in members]


async def committed(broker: Broker) -> int:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    answer = await ask(broker, OffsetFetchRequest(group_id=GROUP, topics=topics))
    part = answer.topics[0].partitions[0]
    assert part.error_code == 0
    return part.committed_offset


async def read_from(broker: Broker, offset: int) -> list[bytes | None]:
    return values_in(await poll(broker, max(0, offset)))


async def two_members(world: Cluster) -> tuple[Broker, Member, Member]:
    broker = await world.broker()
    await topic(broker)
    for i in range(RECORDS):
        await send(broker, [b"record %d" % i])
    return broker, Member(broker), Member(broker)


def test_a_late_ack_after_the_hand_off_skips_nothing_though_both_restart():
    async def test(world: Cluster) -> None:
        broker, a, b = await two_members(world)
        await rebalance((a, assignment(0, topic="t")))
        in_flight = await read_from(broker, 0)
        assert len(in_flight) == RECORDS

        # The partition is revoked from A, whose batch is still in flight, and given to B.
        await rebalance((a, assignment()), (b, assignment()))
        await rebalance((a, assignment()), (b, assignment(0, topic="t")))

        landed_by_b = (await read_from(broker, await committed(broker)))[:4]
        assert await a.commit(RECORDS) == NOT_OWNED
        assert await committed(broker) == -1
        assert await b.commit(4) == 0
        assert await a.commit(RECORDS) == NOT_OWNED
        refused = broker.groups_of(GROUP).coordinator.refused_commits
        assert refused == {GROUP: 2}

        # Everybody dies, the broker included. A's batch never landed.
        again = await world.broker()
        assert await committed(again) == 4
        rest = await read_from(again, 4)
        assert landed_by_b + rest == [b"record %d" % i for i in range(RECORDS)]

    simulate(test)


def test_the_last_commit_in_a_cooperative_revoke_callback_counts():
    async def test(world: Cluster) -> None:
        broker, a, b = await two_members(world)
        await rebalance((a, assignment(0, topic="t")))
        await rebalance((a, assignment()), (b, assignment()))
        # A hears in this generation that the partition is no longer its own: the callback runs.
        assert await a.commit(6) == 0
        await rebalance((a, assignment()), (b, assignment(0, topic="t")))
        assert await committed(broker) == 6
        assert await b.commit(8) == 0

    simulate(test)


def test_an_ack_of_a_generation_that_is_over_moves_nothing():
    async def test(world: Cluster) -> None:
        broker, a, b = await two_members(world)
        await rebalance((a, assignment(0, topic="t")))
        late = dataclasses.replace(a)
        await rebalance((a, assignment()), (b, assignment(0, topic="t")))
        assert await late.commit(RECORDS) == ErrorCode.ILLEGAL_GENERATION
        assert await committed(broker) == -1

    simulate(test)
