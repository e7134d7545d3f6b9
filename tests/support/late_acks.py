"""Members of a classic cooperative group on a broker without sockets, for late acknowledgements."""

import asyncio
import dataclasses

from tests.support.brokers import topic
from tests.support.dispatched import Cluster, ask, send
from tests.support.groups import subscription

from holdfast.broker.broker import Broker
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


async def two_members(world: Cluster) -> tuple[Broker, Member, Member]:
    broker = await world.broker()
    await topic(broker)
    for i in range(RECORDS):
        await send(broker, [b"record %d" % i])
    return broker, Member(broker), Member(broker)
