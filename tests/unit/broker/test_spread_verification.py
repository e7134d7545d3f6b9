"""What opens a transaction on a broker that does not coordinate it is verified (KIP-890)."""

import asyncio

from tests.support.async_tests import simulated
from tests.support.brokers import log_of, pass_time
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
)

from holdfast.broker.dispatch import answer
from holdfast.broker.groups.lane_groups import lane_of
from holdfast.client.address import Address
from holdfast.lane.keys import entry_prefix
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.message import Message
from holdfast.protocol.messages.join_transaction import JoinTransactionRequest


@simulated
async def test_a_coordinator_that_was_taken_over_verifies_nothing(world: Several):
    spread = await Spread.start(world)
    zombie = next(broker for broker in spread.brokers if not broker.is_controller)
    name = spread.name_where(lambda broker: broker is zombie)
    partition = next(p for p in range(PARTITIONS) if spread.leader(p) is not zombie)
    producer = await RoutedProducer(spread, name, BEFORE).started()
    assert await producer.add(partition) is ErrorCode.NONE
    world.silence(zombie)
    spread.brokers.remove(zombie)
    await pass_time(TAKEN_OVER_S)
    await producer.commit()
    log = log_of(spread.leader(partition), partition=partition)
    request = JoinTransactionRequest(
        transactional_id=name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=True,
    )
    told = await answer(zombie, request, PEER)
    assert told.error_code == ErrorCode.NOT_COORDINATOR
    assert not log.transactions.open


@simulated
async def test_a_leader_that_does_not_know_that_it_coordinates_no_more_opens_no_transaction(
    world: Several,
):
    own_store = world.store_of_its_own()
    new = await world.join(1, lanes=LANES)
    old = await world.join(2, lanes=LANES, store=own_store)
    spread = await Spread.of(world, [new, old])
    partition = spread.partitions_of(old)[0]
    lanes = {spread.lane(p) for p in spread.partitions_of(old)} - {spread.lane(partition)}
    name = next(n for i in range(99) if lane_of(n := f"billing-{i}", LANES) in lanes)
    producer = await RoutedProducer(spread, name, BEFORE).started()
    assert await producer.add(partition) is ErrorCode.NONE
    lane = old.lane_of_name(name)
    own_store.before.append(Hold("read", entry_prefix(lane)))
    await new.take(lane)
    assert await producer.end(committed=True) is ErrorCode.NONE
    await pass_time(1)
    assert lane in old.lanes
    late = await producer.send(partition, b"late")
    assert late.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert not await spread.is_open(partition)


@VERSIONS
@simulated
async def test_a_batch_whose_transaction_is_aborted_while_it_is_verified_does_not_join_the_log(
    world: Several, versions: dict[str, int]
):
    spread = await Spread.start(world)
    here = spread.brokers[0]
    name = spread.name_where(lambda broker: broker is here)
    partition = next(p for p in range(PARTITIONS) if spread.leader(p) is not here)
    producer = await RoutedProducer(spread, name, versions).started()
    if versions is BEFORE:
        assert await producer.add(partition) is ErrorCode.NONE
    verified, go = asyncio.Event(), asyncio.Event()

    async def hold(own: Address, to: Address, request: Message) -> None:
        del own, to
        if isinstance(request, JoinTransactionRequest) and not verified.is_set():
            verified.set()
            await go.wait()

    world.wires.after.append(hold)
    sending = asyncio.ensure_future(producer.send(partition, b"late"))
    await verified.wait()
    assert await producer.end(committed=False) is ErrorCode.NONE
    await pass_time(2)
    go.set()
    refused = await sending
    assert refused.error_code != ErrorCode.NONE
    await pass_time(2)
    assert not await spread.is_open(partition)
    assert await spread.committed_values(partition) == []


@VERSIONS
@simulated
async def test_offsets_whose_transaction_is_aborted_while_it_is_verified_are_refused(
    world: Several, versions: dict[str, int]
):
    spread = await Spread.start(world)
    name = spread.name_where(lambda broker: broker is not spread.coordinator(GROUP))
    producer = await RoutedProducer(spread, name, versions).started()
    if versions is BEFORE:
        assert await producer.add_group() is ErrorCode.NONE
    verified, go = asyncio.Event(), asyncio.Event()

    async def hold(own: Address, to: Address, request: Message) -> None:
        del own, to
        if isinstance(request, JoinTransactionRequest) and not verified.is_set():
            verified.set()
            await go.wait()

    world.wires.after.append(hold)
    sending = asyncio.ensure_future(producer.commit_offset(0, 5))
    await verified.wait()
    assert await producer.end(committed=False) is ErrorCode.NONE
    await pass_time(2)
    go.set()
    assert await sending is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await spread.committed_offset(0) == -1


@simulated
async def test_a_batch_of_an_older_client_for_a_partition_that_was_not_added_is_refused(
    world: Several,
):
    spread = await Spread.start(world)
    name = spread.name_where(lambda broker: broker is spread.brokers[0])
    partition = next(p for p in range(PARTITIONS) if spread.leader(p) is not spread.brokers[0])
    producer = await RoutedProducer(spread, name, BEFORE).started()
    refused = await producer.send(partition, b"value")
    assert refused.error_code == ErrorCode.INVALID_TXN_STATE
    assert log_of(spread.leader(partition), partition=partition).log_end_offset == 0


@VERSIONS
@simulated
async def test_batches_that_are_sent_at_once_are_taken_in_the_order_of_their_sending(
    world: Several, versions: dict[str, int]
):
    spread = await Spread.start(world)
    here = spread.brokers[0]
    name = spread.name_where(lambda broker: broker is here)
    partition = next(p for p in range(PARTITIONS) if spread.leader(p) is not here)
    producer = await RoutedProducer(spread, name, versions).started()
    if versions is BEFORE:
        assert await producer.add(partition) is ErrorCode.NONE
    values = [b"%d" % i for i in range(5)]
    sent = await asyncio.gather(*(producer.send(partition, value) for value in values))
    assert [done.error_code for done in sent] == [0] * len(values)
    await producer.commit()
    await pass_time(2)
    assert sorted(await spread.committed_values(partition)) == values


@VERSIONS
def test_while_a_coordinator_is_away_batches_are_told_to_come_again_and_none_takes_anothers_place(
    versions: dict[str, int],
):
    async def test(world: Several) -> None:
        spread = await Spread.start(world)
        doomed = next(broker for broker in spread.brokers if not broker.is_controller)
        name = spread.name_where(lambda broker: broker is doomed)
        partition = next(p for p in range(PARTITIONS) if spread.leader(p) is not doomed)
        producer = await RoutedProducer(spread, name, versions).started()
        if versions is BEFORE:
            assert await producer.add(partition) is ErrorCode.NONE
        await spread.kill(doomed)
        first = await producer.send(partition, b"0")
        assert first.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        await pass_time(TAKEN_OVER_S)
        second = await producer.send(partition, b"1")
        assert second.error_code != ErrorCode.NONE
        producer.sequences = {}
        for value in (b"0", b"1"):
            await producer.write(partition, value)
        await producer.commit()
        await pass_time(2)
        assert await spread.committed_values(partition) == [b"0", b"1"]

    simulate(test)
