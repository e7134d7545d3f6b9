"""Memory of replies: fetches take less as it fills, and a consumer that holds nothing goes on."""

import asyncio
import random

import pytest
from tests.support.async_tests import simulated
from tests.support.brokers import (
    Ask,
    Cluster,
    fetch,
    fetch_all,
    pass_time,
    produce,
    records_in,
    simulate,
    topic,
)

from holdfast.broker.broker import Broker
from holdfast.broker.reply_memory import (
    ONE_BATCH_BYTES,
    ReplyAccount,
    ReplyMemory,
    Reservation,
)
from holdfast.errors import StoreUnavailable

MIB = 1 << 20


def test_a_fetch_takes_what_it_wants_or_half_of_what_is_free():
    memory = ReplyMemory(64 * MIB)
    small = Reservation(ReplyAccount(memory))
    assert small.allow(8 * MIB) == 8 * MIB
    assert not small.is_shrunk
    large = Reservation(ReplyAccount(memory))
    assert large.allow(50 * MIB) == 28 * MIB
    assert large.is_shrunk
    assert memory.used_bytes == 36 * MIB


def test_where_nothing_is_free_each_connection_gets_one_record_batch_and_no_second():
    memory = ReplyMemory(8 * MIB)
    ReplyAccount(memory).count(8 * MIB)
    account = ReplyAccount(memory)
    first, second = Reservation(account), Reservation(account)
    assert first.allow(MIB) == 0
    assert second.allow(MIB) is None
    assert account.used_bytes == ONE_BATCH_BYTES
    first.settle(300)
    assert account.used_bytes == 300
    assert Reservation(ReplyAccount(memory)).allow(MIB) == 0


@pytest.mark.parametrize("seed", range(30))
def test_the_bound_is_exceeded_by_one_record_batch_for_each_connection_at_most(seed: int):
    chance = random.Random(seed)
    memory = ReplyMemory(32 * MIB)
    accounts = [ReplyAccount(memory) for _ in range(20)]
    held: list[Reservation] = []
    for _ in range(2_000):
        if held and chance.random() < 0.3:
            held.pop(chance.randrange(len(held))).give_back()
            continue
        reservation = Reservation(chance.choice(accounts))
        allowed = reservation.allow(chance.choice([1_000, MIB, 50 * MIB]))
        if allowed is not None:
            reservation.settle(chance.randrange(max(allowed, ONE_BATCH_BYTES) + 1))
            held.append(reservation)
        assert memory.used_bytes <= memory.bytes_max + len(accounts) * ONE_BATCH_BYTES
        assert memory.used_bytes == sum(account.used_bytes for account in accounts)
    for reservation in held:
        reservation.give_back()
    assert memory.used_bytes == 0


async def filled(world: Cluster, **settings: object) -> Broker:
    broker = await world.broker(**settings)
    await topic(broker, partitions=2)
    for partition in range(2):
        for _ in range(8):
            await produce(broker, [b"x" * 900_000], partition=partition)
    return broker


def full_memory() -> tuple[ReplyMemory, ReplyAccount]:
    """Memory that others have taken, and the account of a connection that holds nothing."""
    memory = ReplyMemory(8 * MIB)
    ReplyAccount(memory).count(8 * MIB)
    return memory, ReplyAccount(memory)


@simulated
async def test_a_fetch_reads_less_where_others_hold_memory_and_answers_at_once(world: Cluster):
    broker = await filled(world)
    memory, account = full_memory()
    asks = [Ask(partition=i, max_bytes=50 * MIB) for i in range(2)]
    response = await fetch_all(
        broker, asks, replies=account, max_bytes=50 * MIB, min_bytes=MIB, max_wait_ms=60_000
    )
    found = [p for t in response.responses for p in t.partitions]
    assert [len(records_in(part)) for part in found] == [1, 0]
    assert world.loop.time() < 30
    memory.used_bytes = account.used_bytes = 0
    response = await fetch_all(broker, asks, replies=account, max_bytes=50 * MIB)
    found = [p for t in response.responses for p in t.partitions]
    assert [len(records_in(part)) for part in found] == [4, 2]  # half of 8 MiB, half of 4 MiB


@simulated
async def test_what_a_fetch_reserved_is_given_back_once_its_connection_counts_the_reply(
    world: Cluster,
):
    broker = await filled(world)
    account = ReplyAccount(ReplyMemory(64 * MIB))
    part = await fetch(broker, replies=account, max_bytes=3 * MIB)
    size = sum(map(len, part.records or []))
    assert account.used_bytes == size > 2 * MIB
    await asyncio.sleep(0.001)  # all that is due now has run then
    assert account.used_bytes == 0


@simulated
async def test_a_fetch_that_waits_for_records_holds_no_memory(world: Cluster):
    broker = await filled(world)
    account = ReplyAccount(ReplyMemory(64 * MIB))
    waiting = asyncio.ensure_future(
        fetch(broker, replies=account, max_wait_ms=5_000, min_bytes=50 * MIB, max_bytes=MIB)
    )
    await pass_time(1)
    assert not waiting.done()
    assert account.used_bytes == 0
    assert len(records_in(await waiting)) == 1


@simulated
async def test_a_second_fetch_of_a_connection_gets_nothing_while_its_first_holds_scarce_memory(
    world: Cluster,
):
    broker = await filled(world)
    memory, account = full_memory()
    account.count(1)
    part = await fetch(broker, replies=account, max_wait_ms=1_000)
    assert (part.records, part.error_code) == ([], 0)
    account.count(-1)
    assert len(records_in(await fetch(broker, replies=account))) == 1
    await asyncio.sleep(0.001)  # all that is due now has run then
    assert memory.used_bytes == 8 * MIB


def test_a_read_that_fails_or_is_cancelled_gives_its_memory_back():
    async def away(operation: str, key: str) -> None:
        raise StoreUnavailable(f"{operation} {key}")

    async def test(world: Cluster) -> None:
        broker = await filled(world, tail_bytes=0)
        account = ReplyAccount(ReplyMemory(64 * MIB))
        world.store.before.append(away)
        reading = asyncio.ensure_future(fetch(broker, replies=account))
        await pass_time(0.1)
        reading.cancel()
        await asyncio.wait([reading])
        part = await fetch(broker, replies=account)
        assert part.error_code != 0
        await asyncio.sleep(0.001)  # all that is due now has run then
        assert account.used_bytes == 0

    simulate(test)
