"""Transactions over several brokers: coordinator, partitions and groups on different ones."""

import asyncio

import pytest
from tests.support.async_tests import simulated
from tests.support.brokers import VALID_MS, log_of, pass_time
from tests.support.clusters import Several, simulate
from tests.support.stores import Hold
from tests.support.transactional import BEFORE, GROUP, VERSIONS
from tests.unit.broker.spread import (
    LANES,
    PARTITIONS,
    PEER,
    TAKEN_OVER_S,
    RoutedProducer,
    Spread,
    is_end,
)

from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.client.address import Address
from holdfast.client.refusals import BrokerUnavailable
from holdfast.identifiers import BrokerId, LaneId
from holdfast.lane.keys import entry_prefix
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.message import Message
from holdfast.protocol.messages.delete_topics import DeleteTopicsRequest
from holdfast.protocol.messages.end_transaction_parts import (
    NOTHING_OPEN,
    EndedPartition,
    EndTransactionPartsRequest,
)


class Seen:
    """The messages that ended something, as they were sent."""

    def __init__(self, world: Several) -> None:
        self.ends: list[tuple[Address, Address, EndTransactionPartsRequest]] = []
        world.wires.before.append(self)

    async def __call__(self, own: Address, to: Address, request: Message) -> None:
        if isinstance(request, EndTransactionPartsRequest) and is_end(request):
            self.ends.append((own, to, request))


@VERSIONS
@pytest.mark.parametrize("where", [0, 1, 2])
@simulated
async def test_what_is_committed_is_seen_on_all_brokers_and_what_is_aborted_never_is(
    world: Several, where: int, versions: dict[str, int]
):
    spread = await Spread.start(world)
    name = spread.name_where(lambda broker: broker is spread.brokers[where])
    producer = await RoutedProducer(spread, name, versions).started()
    for i, committed in enumerate([True, False, True, False]):
        for partition in range(PARTITIONS):
            await producer.write(partition, b"%d" % i)
        await producer.commit_offset_of_group(0, i + 1)
        await (producer.commit() if committed else producer.abort())
    await pass_time(2)
    for partition in range(PARTITIONS):
        assert await spread.committed_values(partition) == [b"0", b"2"]
        assert not await spread.is_open(partition)
    assert await spread.committed_offset(0) == 3


@simulated
async def test_parts_of_several_lanes_on_one_broker_are_ended_by_one_message(world: Several):
    spread = await Spread.start(world, 2)
    here, other = spread.brokers
    name = spread.name_where(lambda broker: broker is here)
    producer = await RoutedProducer(spread, name).started()
    distant = spread.partitions_of(other)
    assert len({spread.lane(partition) for partition in distant}) > 1
    seen = Seen(world)
    for partition in distant:
        await producer.write(partition, b"value")
    await producer.commit()
    await pass_time(2)
    ((_, to, request),) = seen.ends
    assert to == world.address(other)
    assert sorted(part.partition for part in request.partitions) == distant


@VERSIONS
@pytest.mark.parametrize("committed", [True, False])
def test_a_coordinator_that_dies_between_decision_and_markers_is_followed_by_one_that_ends_it_alike(
    committed: bool, versions: dict[str, int]
):
    async def test(world: Several) -> None:
        spread = await Spread.start(world)
        doomed = next(broker for broker in spread.brokers if not broker.is_controller)
        name = spread.name_where(lambda broker: broker is doomed)
        producer = await RoutedProducer(spread, name, versions).started()
        for partition in range(PARTITIONS):
            await producer.write(partition, b"value")
        await producer.commit_offset_of_group(0, 7)

        async def die(own: Address, to: Address, request: Message) -> None:
            del to
            if own == world.address(doomed) and is_end(request):
                if doomed in spread.brokers:
                    await spread.kill(doomed)
                raise BrokerUnavailable("died")

        world.wires.before.append(die)
        await (producer.commit() if committed else producer.abort())
        await pass_time(TAKEN_OVER_S)
        assert doomed not in spread.brokers
        for partition in range(PARTITIONS):
            expected = [b"value"] if committed else []
            assert await spread.committed_values(partition) == expected
            assert not await spread.is_open(partition)
        assert await spread.committed_offset(0) == (7 if committed else -1)
        await producer.write(0, b"next")
        await producer.commit()
        await pass_time(2)
        assert (await spread.committed_values(0))[-1] == b"next"

    simulate(test)


@VERSIONS
@pytest.mark.parametrize("how", ["killed", "drained"])
@simulated
async def test_a_leader_that_goes_before_the_marker_is_followed_by_one_that_is_told_of_the_end(
    world: Several, how: str, versions: dict[str, int]
):
    spread = await Spread.start(world)
    here = next(broker for broker in spread.brokers if broker.is_controller)
    going = next(broker for broker in spread.brokers if broker is not here)
    name = spread.name_where(lambda broker: broker is here)
    producer = await RoutedProducer(spread, name, versions).started()
    partitions = spread.partitions_of(going)
    for partition in partitions:
        await producer.write(partition, b"value")
    gone: list[Address] = []

    async def go(own: Address, to: Address, request: Message) -> None:
        del own
        if to == world.address(going) and is_end(request) and not gone:
            gone.append(to)
            if how == "killed":
                await spread.kill(going)
            else:
                spread.brokers.remove(going)
                await world.leave(going)

    world.wires.before.append(go)
    await producer.commit()
    await pass_time(TAKEN_OVER_S)
    assert gone
    for partition in partitions:
        assert await spread.committed_values(partition) == [b"value"]
        assert not await spread.is_open(partition)
    known = spread.coordinator(name).transactions_of(name)
    assert not isinstance(known, ErrorCode)
    transaction = known.known(name)
    assert transaction is not None
    assert transaction.phase.value == "CompleteCommit"


@VERSIONS
@simulated
async def test_an_end_that_comes_late_and_twice_does_not_end_the_next_transaction(
    world: Several, versions: dict[str, int]
):
    spread = await Spread.start(world)
    here = spread.brokers[0]
    name = spread.name_where(lambda broker: broker is here)
    partition = next(p for p in range(PARTITIONS) if spread.leader(p) is not here)
    producer = await RoutedProducer(spread, name, versions).started()
    seen = Seen(world)
    await producer.write(partition, b"first")
    await producer.commit()
    await pass_time(2)
    ((_, _, late),) = seen.ends
    await producer.write(partition, b"second")
    leader = spread.leader(partition)
    for _ in range(2):
        told = await answer(leader, late, PEER)
        assert told.partitions[0].error_code == ErrorCode.INVALID_TXN_STATE
    assert await spread.is_open(partition)
    await producer.abort()
    await pass_time(2)
    assert await spread.committed_values(partition) == [b"first"]


@simulated
async def test_an_end_of_offsets_that_comes_late_does_not_end_those_of_the_next_transaction(
    world: Several,
):
    spread = await Spread.start(world)
    name = spread.name_where(lambda broker: broker is not spread.coordinator(GROUP))
    producer = await RoutedProducer(spread, name, BEFORE).started()
    seen = Seen(world)
    await producer.commit_offset_of_group(0, 5)
    await producer.commit()
    await pass_time(2)
    ((_, _, late),) = seen.ends
    await producer.commit_offset_of_group(0, 9)
    told = await answer(spread.coordinator(GROUP), late, PEER)
    assert told.groups[0].error_code == ErrorCode.INVALID_TXN_STATE
    assert await spread.committed_offset(0) == -2
    await producer.abort()
    await pass_time(2)
    assert await spread.committed_offset(0) == 5
    again = await answer(spread.coordinator(GROUP), late, PEER)
    assert again.groups[0].error_code == ErrorCode.NONE
    assert await spread.committed_offset(0) == 5


def end_request(spread: Spread, partition: int) -> EndTransactionPartsRequest:
    topic = spread.brokers[0].state.topic_named("t")
    assert topic is not None
    part = EndedPartition(topic_id=topic.topic_id, partition=partition, first_offset=NOTHING_OPEN)
    return EndTransactionPartsRequest(
        transactional_id="any",
        producer_id=77,
        producer_epoch=1,
        coordinator_epoch=1,
        committed=True,
        partitions=[part],
    )


@simulated
async def test_a_leader_that_was_taken_over_does_not_say_that_there_is_nothing_to_end(
    world: Several,
):
    own_store = world.store_of_its_own()
    new = await world.join(1, lanes=LANES)
    old = await world.join(2, lanes=LANES, store=own_store)
    spread = await Spread.of(world, [new, old])
    partition = spread.partitions_of(old)[0]
    lane = LaneId(spread.lane(partition))
    request = end_request(spread, partition)
    told = await answer(old, request, PEER)
    assert told.partitions[0].error_code == ErrorCode.NONE
    hold = Hold("read", entry_prefix(lane))
    own_store.before.append(hold)
    await new.take(lane)
    assert lane in old.lanes
    asked = asyncio.ensure_future(answer(old, request, PEER))
    await pass_time(1)
    hold.go.set()
    told = await asked
    assert told.partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@simulated
async def test_an_end_is_confirmed_when_it_is_durable(world: Several):
    spread = await Spread.start(world)
    hold = Hold("create", entry_prefix(LaneId(spread.lane(0))))
    world.store.before.append(hold)
    asked = asyncio.ensure_future(answer(spread.leader(0), end_request(spread, 0), PEER))
    await hold.reached.wait()
    await pass_time(1)
    assert not asked.done()
    hold.go.set()
    assert (await asked).partitions[0].error_code == ErrorCode.NONE
    assert log_of(spread.leader(0)).high_watermark == 1


@simulated
async def test_a_zombie_coordinator_that_was_told_of_the_next_transaction_does_not_end_it(
    world: Several,
):
    """Its look was answered when its successor had begun the next transaction."""
    spread = await Spread.start(world)
    zombie = next(broker for broker in spread.brokers if not broker.is_controller)
    name = spread.name_where(lambda broker: broker is zombie)
    partition = next(p for p in range(PARTITIONS) if spread.leader(p) is not zombie)
    producer = await RoutedProducer(spread, name, BEFORE).started()
    await producer.write(partition, b"first")
    asked, go = asyncio.Event(), asyncio.Event()

    async def hold(own: Address, to: Address, request: Message) -> None:
        del to
        if own == world.address(zombie) and isinstance(request, EndTransactionPartsRequest):
            asked.set()
            await go.wait()

    world.wires.before.append(hold)
    await producer.commit()
    await asked.wait()
    await world.stall(zombie)
    spread.brokers.remove(zombie)
    await pass_time(TAKEN_OVER_S)
    assert await spread.committed_values(partition) == [b"first"]
    await producer.write(partition, b"second")
    looked = asyncio.Event()

    async def answered(own: Address, to: Address, request: Message) -> None:
        del to
        if own == world.address(zombie) and isinstance(request, EndTransactionPartsRequest):
            looked.set()
            assert zombie.membership is not None
            for broker in spread.brokers:
                zombie.membership.peers.heard(broker.report(), world.loop.time())

    seen = Seen(world)
    world.wires.after.append(answered)
    go.set()
    await looked.wait()
    await pass_time(1)
    assert [own for own, _, _ in seen.ends if own == world.address(zombie)] == []
    assert await spread.is_open(partition)
    await producer.abort()
    await pass_time(2)
    assert await spread.committed_values(partition) == [b"first"]


@VERSIONS
@simulated
async def test_a_transaction_that_is_open_for_too_long_is_aborted_on_all_brokers(
    world: Several, versions: dict[str, int]
):
    spread = await Spread.start(world)
    name = spread.name_where(lambda broker: broker is spread.brokers[1])
    producer = await RoutedProducer(spread, name, versions).started(timeout_ms=5_000)
    for partition in range(PARTITIONS):
        await producer.write(partition, b"value")
    await producer.commit_offset_of_group(0, 5)
    await pass_time(30)
    for partition in range(PARTITIONS):
        assert not await spread.is_open(partition)
        assert await spread.committed_values(partition) == []
    assert await spread.committed_offset(0) == -1
    assert await producer.end(committed=True) is ErrorCode.PRODUCER_FENCED


@simulated
async def test_the_next_transaction_waits_for_markers_that_a_silent_broker_has_not_taken(
    world: Several,
):
    spread = await Spread.start(world)
    here = next(broker for broker in spread.brokers if broker.is_controller)
    silent = next(broker for broker in spread.brokers if broker is not here)
    name = spread.name_where(lambda broker: broker is here)
    producer = await RoutedProducer(spread, name).started()
    partition = spread.partitions_of(silent)[0]
    near = spread.partitions_of(here)[0]
    await producer.write(partition, b"first")
    world.silence(silent)
    await producer.commit()
    spread.brokers.remove(silent)
    began = world.loop.time()
    await producer.write(near, b"second")
    assert world.loop.time() - began > VALID_MS / 1000
    assert await spread.committed_values(partition) == [b"first"]
    await producer.commit()
    await pass_time(2)
    assert await spread.committed_values(near) == [b"second"]


@simulated
async def test_parts_whose_topic_is_deleted_meanwhile_do_not_keep_a_transaction_from_ending(
    world: Several,
):
    spread = await Spread.start(world)
    assert spread.brokers[0].state.topic_named("t") is not None
    name = spread.name_where(lambda broker: broker is spread.brokers[2])
    producer = await RoutedProducer(spread, name).started()
    for partition in range(PARTITIONS):
        await producer.write(partition, b"value")
    deleting = DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000)
    deleted = await answer(spread.brokers[0], deleting, RequestContext(api_version=4))
    assert deleted.responses[0].error_code == 0
    await producer.commit()
    await pass_time(5)
    here = spread.coordinator(name).transactions_of(name)
    assert not isinstance(here, ErrorCode)
    transaction = here.known(name)
    assert transaction is not None
    assert transaction.phase.value == "CompleteCommit"


@simulated
async def test_a_lane_that_is_handed_over_while_its_transactions_end_is_ended_by_the_next_owner(
    world: Several,
):
    spread = await Spread.start(world)
    here, other = spread.brokers[1], spread.brokers[2]
    name = spread.name_where(lambda broker: broker is here)
    lane = here.lane_of_name(name)
    producer = await RoutedProducer(spread, name, BEFORE).started()
    for partition in range(PARTITIONS):
        await producer.write(partition, b"value")
    handed: list[bool] = []

    async def hand_over(own: Address, to: Address, request: Message) -> None:
        del to
        if own == world.address(here) and is_end(request) and not handed:
            handed.append(True)
            epoch = here.lanes[LaneId(lane)].leader_epoch
            world.loop.create_task(
                here.hand_over(LaneId(lane), epoch, BrokerId(other.settings.broker_id))
            )
            await asyncio.sleep(1)

    world.wires.before.append(hand_over)
    await producer.commit()
    await pass_time(TAKEN_OVER_S)
    assert handed
    for partition in range(PARTITIONS):
        assert await spread.committed_values(partition) == [b"value"]
    await producer.write(0, b"next")
    await producer.commit()
    await pass_time(2)
    assert await spread.committed_values(0) == [b"value", b"next"]
