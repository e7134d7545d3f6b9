"""An administrator aborts a transaction whose coordinator may be on any of several brokers."""

from tests.support.async_tests import simulated
from tests.support.brokers import pass_time, produce
from tests.support.clusters import Several
from tests.unit.broker.spread import (
    PARTITIONS,
    TAKEN_OVER_S,
    RoutedProducer,
    Spread,
    abort_by_administrator,
)

from holdfast.protocol.api import ErrorCode

HANGING = (77, 4)


async def hang(spread: Spread, partition: int) -> None:
    """A transaction of a producer that no coordinator knows."""
    leader = spread.leader(partition)
    leader.verify_transaction = lambda append: None
    done = await produce(
        leader, [b"hanging"], partition=partition, producer=(*HANGING, 0), transactional=True
    )
    assert done.error_code == 0
    assert await spread.is_open(partition)


@simulated
async def test_a_hanging_transaction_is_aborted_when_no_broker_knows_it(world: Several):
    spread = await Spread.start(world)
    await hang(spread, 0)
    leader = spread.leader(0)
    assert await abort_by_administrator(leader, HANGING, 0) is ErrorCode.NONE
    assert not await spread.is_open(0)
    assert await spread.committed_values(0) == []


@simulated
async def test_while_a_lane_has_no_owner_nobody_knows_whether_a_transaction_hangs(world: Several):
    spread = await Spread.start(world)
    await hang(spread, 0)
    leader = spread.leader(0)
    doomed = next(each for each in spread.brokers if each is not leader and not each.is_controller)
    await spread.kill(doomed)
    told = await abort_by_administrator(leader, HANGING, 0)
    assert told is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await spread.is_open(0)
    await pass_time(TAKEN_OVER_S)
    told = await abort_by_administrator(spread.leader(0), HANGING, 0)
    assert told is ErrorCode.NONE
    assert not await spread.is_open(0)


@simulated
async def test_a_transaction_that_another_broker_coordinates_is_aborted_everywhere(world: Several):
    spread = await Spread.start(world)
    leader = spread.leader(0)
    name = spread.name_where(lambda broker: broker is not leader)
    producer = await RoutedProducer(spread, name).started()
    for partition in range(PARTITIONS):
        await producer.write(partition, b"value")
    named = (producer.producer_id, producer.producer_epoch)
    too_old = (named[0], named[1] - 1)
    told = await abort_by_administrator(leader, too_old, 0)
    assert told is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await spread.is_open(0)
    assert await abort_by_administrator(leader, named, 0) is ErrorCode.NONE
    for partition in range(PARTITIONS):
        assert not await spread.is_open(partition)
        assert await spread.committed_values(partition) == []
    assert await producer.end(committed=True) is ErrorCode.PRODUCER_FENCED


@simulated
async def test_who_does_not_lead_the_partition_says_so(world: Several):
    spread = await Spread.start(world)
    other = next(broker for broker in spread.brokers if broker is not spread.leader(0))
    told = await abort_by_administrator(other, HANGING, 0)
    assert told is ErrorCode.NOT_LEADER_OR_FOLLOWER
