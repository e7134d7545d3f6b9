"""Batches of an idempotent producer that come before an earlier one are told to try again, and are
called out of order only where the gap stays: librdkafka then sends all again."""

import asyncio
import dataclasses

import pytest
from tests.support.async_tests import simulated
from tests.support.batches import batch
from tests.support.brokers import Cluster, pass_time, produce, read_log, topic
from tests.support.clusters import Several
from tests.support.lanes import P0, P1
from tests.unit.broker.hand_over import HandOver

from holdfast.broker.broker import Broker
from holdfast.broker.cluster.waiting_room import WAIT_S_MAX
from holdfast.broker.gaps import CLOSES_S, GAPS_MAX, Gaps
from holdfast.environment import SystemEnvironment
from holdfast.identifiers import PartitionId
from holdfast.log.append import Early
from holdfast.protocol.api import ErrorCode, Refused
from holdfast.protocol.messages.produce import PartitionProduceResponse
from holdfast.records.batch import parse_header

PRODUCER = 7
TRY_AGAIN = ErrorCode.NOT_ENOUGH_REPLICAS
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@dataclasses.dataclass
class Sender:
    """An idempotent producer on one partition, with one record to a batch."""

    broker: Broker
    partition: int = 0

    async def send(self, sequence: int) -> PartitionProduceResponse:
        return await produce(
            self.broker,
            [b"%d" % sequence],
            partition=self.partition,
            producer=(PRODUCER, 0, sequence),
        )


async def sent_in_order(sender: Sender, first: int, count: int) -> None:
    told = [await sender.send(first + n) for n in range(count)]
    assert [(each.error_code, each.base_offset) for each in told] == [
        (0, first + n) for n in range(count)
    ]
    records = await read_log(sender.broker, partition=sender.partition)
    assert [record.value for record in records] == [b"%d" % n for n in range(first + count)]


@pytest.mark.parametrize("known", [0, 2])
@simulated
async def test_the_next_batches_are_at_the_new_leader_while_the_first_is_still_with_the_old_one(
    world: Several, known: int
):
    """A client goes to the leader that it is told of, and does not wait for what it has under way.
    A producer that the partition does not know yet may begin with any sequence."""
    over = await HandOver.ready(world)
    before, after = (Sender(each, over.partition) for each in (over.giver, over.taker))
    for sequence in range(known):
        assert (await before.send(sequence)).error_code == 0
    release = over.hold_puts()
    over.giver.is_draining = True
    await release.reached.wait()
    first = asyncio.ensure_future(before.send(known))
    behind = [asyncio.ensure_future(after.send(known + n)) for n in (1, 2)]
    await pass_time(0.1)
    assert not any(each.done() for each in (first, *behind))
    release.go.set()
    assert [each.error_code for each in await asyncio.gather(*behind)] == [TRY_AGAIN] * 2
    assert (await first).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await sent_in_order(after, known, 4)


@pytest.mark.parametrize("known", [0, 2])
@simulated
async def test_the_first_batch_comes_a_moment_before_its_lane_and_the_next_ones_a_moment_after(
    world: Several, known: int
):
    over = await HandOver.ready(world)
    for sequence in range(known):
        assert (await Sender(over.giver, over.partition).send(sequence)).error_code == 0
    sender = Sender(over.taker, over.partition)
    release = over.hold_puts()
    over.giver.is_draining = True
    await release.reached.wait()
    early = asyncio.ensure_future(sender.send(known))
    await pass_time(WAIT_S_MAX + 0.5)
    assert (await early).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    behind = [asyncio.ensure_future(sender.send(known + n)) for n in (1, 2)]
    await pass_time(0.1)
    release.go.set()
    assert [each.error_code for each in await asyncio.gather(*behind)] == [TRY_AGAIN] * 2
    await sent_in_order(sender, known, 4)


@simulated
async def test_a_gap_that_stays_is_called_out_of_order(world: Cluster):
    broker = await world.broker()
    await topic(broker)
    sender = Sender(broker)
    assert (await sender.send(0)).error_code == 0
    for _ in range(round(CLOSES_S)):
        assert (await sender.send(2)).error_code == TRY_AGAIN
        await pass_time(1)
    assert (await sender.send(2)).error_code == OUT_OF_ORDER
    assert (await sender.send(1)).error_code == 0
    assert (await sender.send(3)).error_code == TRY_AGAIN


@simulated
async def test_a_producer_that_nobody_remembers_goes_on_where_it_was_after_a_while(world: Cluster):
    broker = await world.broker()
    await topic(broker)
    sender = Sender(broker)
    for _ in range(round(CLOSES_S)):
        assert (await sender.send(123)).error_code == TRY_AGAIN
        await pass_time(1)
    assert (await sender.send(123)).base_offset == 0
    assert (await sender.send(124)).base_offset == 1


class Clock(SystemEnvironment):
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@dataclasses.dataclass
class Watched:
    """Gaps with a clock, and batches of one record that find one."""

    clock: Clock = dataclasses.field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.gaps = Gaps(self.clock)

    def is_out_of_order(
        self,
        *,
        expected: int = 5,
        producer_id: int = PRODUCER,
        epoch: int = 0,
        partition: PartitionId = P0,
    ) -> bool:
        header = parse_header(batch([b"x"], producer=(producer_id, epoch, expected + 3)))
        early = Early(Refused(OUT_OF_ORDER, "a gap"), expected)
        told = self.gaps.judge(partition, header, early)
        assert isinstance(told, Refused)
        assert told is early.otherwise or told.error == TRY_AGAIN
        return told is early.otherwise

    def tried_for(self, seconds: float) -> bool:
        """Every second; whether it was called out of order at the end."""
        for _ in range(round(seconds)):
            assert not self.is_out_of_order()
            self.clock.now += 1
        return self.is_out_of_order()


def test_a_gap_is_as_old_as_the_first_look_at_it():
    assert Watched().tried_for(CLOSES_S)
    assert not Watched().tried_for(CLOSES_S - 1)


def test_another_gap_another_epoch_another_producer_and_another_partition_are_others():
    watched = Watched()
    assert watched.tried_for(CLOSES_S)
    assert not watched.is_out_of_order(producer_id=PRODUCER + 1)
    assert not watched.is_out_of_order(partition=P1)
    assert watched.is_out_of_order()
    assert not watched.is_out_of_order(epoch=1)
    assert not watched.is_out_of_order(expected=6)


def test_what_was_not_tried_for_a_while_has_a_gap_that_is_new():
    watched = Watched()
    assert watched.tried_for(CLOSES_S)
    watched.clock.now += CLOSES_S + 1
    assert not watched.is_out_of_order()


def test_the_oldest_go_where_there_are_too_many():
    watched = Watched()
    for producer_id in range(GAPS_MAX + 1):
        watched.is_out_of_order(producer_id=producer_id)
    watched.clock.now += CLOSES_S
    assert watched.is_out_of_order(producer_id=1)
    assert watched.is_out_of_order(producer_id=GAPS_MAX)
    assert not watched.is_out_of_order(producer_id=0)
