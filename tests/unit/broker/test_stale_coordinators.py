"""What a broker that has lost its lanes, and does not know yet, may tell members of groups."""

from typing import Any

from tests.support.async_tests import simulated
from tests.support.brokers import Cluster, topic
from tests.unit.broker.heartbeats import GROUP, beat, commit, given

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.heartbeat import HeartbeatRequest
from holdfast.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

PARTITIONS = 2


@simulated
async def test_a_stale_broker_does_not_give_back_what_a_newer_one_gave_to_another_member(
    world: Cluster,
):
    old = await world.broker(lanes=1)
    await topic(old, partitions=PARTITIONS)
    assert given(await beat(old, "a", 0, None)) == [0, 1]
    new = await world.broker(2)
    await beat(new, "b", 0, None)
    (kept,) = given(await beat(new, "a", 1, [0, 1]))
    await beat(new, "a", 1, [kept])  # its answer is lost
    (moved,) = given(await beat(new, "b", 2, None))
    assert {kept, moved} == {0, 1}
    response = await beat(old, "a", 1, [kept])
    assert response.error_code == ErrorCode.NOT_COORDINATOR
    assert response.assignment is None


async def shared(broker: Broker) -> int:
    """Members a and b have one partition each, in member epoch 2; the one that b has."""
    await topic(broker, partitions=PARTITIONS)
    await beat(broker, "a", 0, None)
    await beat(broker, "b", 0, None)
    (kept,) = given(await beat(broker, "a", 1, [0, 1]))
    await beat(broker, "a", 1, [kept])
    (moved,) = given(await beat(broker, "b", 2, None))
    return moved


@simulated
async def test_a_stale_broker_refuses_no_commit_for_what_another_member_owned_before(
    world: Cluster,
):
    old = await world.broker(lanes=1)
    moved = await shared(old)
    assert await commit(old, "a", 2, moved) is ErrorCode.STALE_MEMBER_EPOCH
    new = await world.broker(2)
    await beat(new, "b", -1, None)
    assert await commit(old, "a", 2, moved) is ErrorCode.NOT_COORDINATOR
    assert await commit(new, "a", 2, moved) is ErrorCode.NONE


async def join(broker: Broker, member_id: str = "") -> Any:
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    return await answer(broker, request, RequestContext(api_version=3))


async def sync(broker: Broker, member_id: str, given: dict[str, bytes]) -> Any:
    request = SyncGroupRequest(
        group_id=GROUP,
        generation_id=1,
        member_id=member_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=i, assignment=data) for i, data in given.items()
        ],
    )
    return await answer(broker, request, RequestContext(api_version=3))


@simulated
async def test_a_stale_broker_tells_no_assignment_of_a_generation_but_that_a_member_is_alive(
    world: Cluster,
):
    old = await world.broker(lanes=1)
    member_id = (await join(old)).member_id
    mine = b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"
    assert (await sync(old, member_id, {member_id: mine})).assignment == mine
    assert (await sync(old, member_id, {})).assignment == mine
    await world.broker(2)
    response = await sync(old, member_id, {})
    assert (response.error_code, response.assignment) == (ErrorCode.NOT_COORDINATOR, b"")
    alive = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member_id)
    told = await answer(old, alive, RequestContext(api_version=4))
    assert told.error_code in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)
