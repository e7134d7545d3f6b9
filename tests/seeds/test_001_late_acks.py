"""Seed 001: a batch in flight was acknowledged after its partition had gone to another consumer.

There the late ack moved the committed offset past records that the new owner had not read, and
they were lost. Here the broker refuses it, for that partition alone, and takes the rightful last
commit of a cooperative revoke.
"""

import dataclasses

from tests.support.async_tests import simulated
from tests.support.brokers import values_in
from tests.support.dispatched import Cluster, ask, poll
from tests.support.groups import assignment
from tests.support.late_acks import GROUP, RECORDS, rebalance, two_members

from holdfast.broker.broker import Broker
from holdfast.groups.commits import NOT_OWNED
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic


async def committed(broker: Broker) -> int:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    answer = await ask(broker, OffsetFetchRequest(group_id=GROUP, topics=topics))
    part = answer.topics[0].partitions[0]
    assert part.error_code == 0
    return part.committed_offset


async def read_from(broker: Broker, offset: int) -> list[bytes | None]:
    return values_in(await poll(broker, max(0, offset)))


@simulated
async def test_a_late_ack_after_the_hand_off_skips_nothing_though_both_restart(world: Cluster):
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


@simulated
async def test_the_last_commit_in_a_cooperative_revoke_callback_counts(world: Cluster):
    broker, a, b = await two_members(world)
    await rebalance((a, assignment(0, topic="t")))
    await rebalance((a, assignment()), (b, assignment()))
    # A hears in this generation that the partition is no longer its own: the callback runs.
    assert await a.commit(6) == 0
    await rebalance((a, assignment()), (b, assignment(0, topic="t")))
    assert await committed(broker) == 6
    assert await b.commit(8) == 0


@simulated
async def test_an_ack_of_a_generation_that_is_over_moves_nothing(world: Cluster):
    broker, a, b = await two_members(world)
    await rebalance((a, assignment(0, topic="t")))
    late = dataclasses.replace(a)
    await rebalance((a, assignment()), (b, assignment(0, topic="t")))
    assert await late.commit(RECORDS) == ErrorCode.ILLEGAL_GENERATION
    assert await committed(broker) == -1
