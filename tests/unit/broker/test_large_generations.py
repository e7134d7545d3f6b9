"""A generation of many members: its responses wait for one write, and leave in slices."""

import asyncio

from tests.support.async_tests import simulated
from tests.support.brokers import Cluster
from tests.unit.broker.turns import Turns, the_lane

from holdfast.broker.groups.lane_groups import SLICE_ANSWERS, _Waiting
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.join_group import JoinGroupResponse

MEMBERS = 10 * SLICE_ANSWERS


def refused(error: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error)


@simulated
async def test_responses_that_wait_for_one_write_leave_in_slices(world: Cluster):
    """All left in one turn of the loop: other clients waited for thousands of them."""
    broker = await world.broker(lanes=1)
    groups = broker.groups[the_lane(broker).lane]
    loop = asyncio.get_running_loop()
    durable = loop.create_future()
    durable.set_result(None)
    waiting = [_Waiting("large", refused, loop.create_future()) for _ in range(MEMBERS)]
    held = [(each, JoinGroupResponse(member_id=str(i))) for i, each in enumerate(waiting)]
    groups._held[durable] = held
    turns = Turns(groups._release(durable, held))
    await turns
    assert turns.count >= MEMBERS // SLICE_ANSWERS
    told = [each.future.result().member_id for each in waiting]
    assert told == [str(i) for i in range(MEMBERS)]
