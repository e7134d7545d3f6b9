"""holdfast.ack=disk through the handlers: acks, flushes, switches, and disks that fail."""

import asyncio
import logging
from typing import Any

import pytest
from simulation.faults.memory_disk import MemoryDisk
from tests.support.async_tests import simulated
from tests.support.batches import batch
from tests.support.brokers import (
    VALID_MS,
    Cluster,
    fetch,
    lane_of,
    list_offset,
    pass_time,
    produce,
    produce_request,
    simulate,
    topic,
    values_in,
)
from tests.support.stores import Hold
from tests.unit.broker.spooled import (
    LANE_OBJECTS,
    configure,
    on_disk,
    puts,
    ready,
    serving,
    values,
)

from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.protocol.api import ErrorCode


@simulated
async def test_an_ack_from_disk_makes_no_put_and_is_readable_at_once(world: Cluster):
    broker, _, _ = await ready(world)
    before = puts(world)
    for number in range(1, 6):
        done = await produce(broker, [b"%d" % number])
        assert (done.error_code, done.base_offset) == (0, number)
        assert values_in(await fetch(broker, number)) == [b"%d" % number]
        assert (await list_offset(broker)).offset == number + 1
    assert puts(world) == before


@pytest.mark.parametrize("max_bytes", [0, -1, 1])
@simulated
async def test_a_bound_of_zero_gives_the_first_batch_that_is_on_the_disk_and_only_that(
    world: Cluster, max_bytes: int
):
    broker, _, _ = await ready(world)
    for number in range(1, 4):
        await produce(broker, [b"%d" % number])
    for offset in range(4):
        part = await fetch(broker, offset, max_bytes=max_bytes)
        assert values_in(part) == [b"%d" % offset]
        assert part.high_watermark == 4


@pytest.mark.parametrize("acks", [1, -1])
@simulated
async def test_the_answer_waits_for_the_disk(world: Cluster, acks: int):
    broker, disk, _ = await ready(world)
    started = world.loop.time()
    disk._delay_seconds = (0.5, 0.5)
    assert (await produce(broker, [b"1"], acks=acks)).error_code == 0
    assert 0.5 <= world.loop.time() - started < 0.6


@simulated
async def test_store_and_disk_acked_topics_in_one_request_wait_for_their_own(world: Cluster):
    broker, _, _ = await ready(world)
    await topic(broker, "plain")
    hold = Hold("create", LANE_OBJECTS)
    world.store.before.append(hold)
    both = {("t", 0): batch([b"1"]), ("plain", 0): batch([b"p"])}
    sending = asyncio.ensure_future(
        answer(broker, produce_request(both), RequestContext(api_version=9))
    )
    await hold.reached.wait()
    await pass_time(1)
    assert not sending.done()
    assert values_in(await fetch(broker, 1)) == [b"1"]
    assert values_in(await fetch(broker, 0, name="plain")) == []
    hold.go.set()
    told = (await sending).responses
    assert [t.partition_responses[0].error_code for t in told] == [0, 0]
    assert values_in(await fetch(broker, 0, name="plain")) == [b"p"]


@simulated
async def test_a_producer_that_pipelines_reaches_the_disk_while_puts_are_under_way(world: Cluster):
    broker, _ = await serving(world)
    await topic(broker, **on_disk())

    async def slow(operation: str, key: str) -> None:
        if operation == "create" and LANE_OBJECTS in key:
            await asyncio.sleep(0.1)

    world.store.before.append(slow)
    sends: list[asyncio.Future[Any]] = []
    for number in range(60):
        sends.append(asyncio.ensure_future(produce(broker, [b"%d" % number])))
        await pass_time(0.02)
    done = await asyncio.gather(*sends)
    assert [d.base_offset for d in done] == list(range(60))
    assert sum(lane_of(broker).bypassed.values()) < 15
    assert await values(broker) == [b"%d" % number for number in range(60)]


@simulated
async def test_a_retry_of_what_is_on_the_disk_is_answered_with_its_offset_when_that_is_durable(
    world: Cluster,
):
    broker, disk, _ = await ready(world)
    disk._delay_seconds = (0.5, 0.5)
    sent = bytes(batch([b"1"], producer=(7, 0, 0), timestamp=broker.environment.now_ms()))
    first = asyncio.ensure_future(produce(broker, raw=bytearray(sent)))
    await pass_time(0.1)
    again = asyncio.ensure_future(produce(broker, raw=bytearray(sent)))
    await pass_time(0.1)
    assert not first.done() and not again.done()
    for done in (await first, await again):
        assert (done.error_code, done.base_offset) == (0, 1)


@simulated
async def test_each_topic_says_how_long_its_records_may_be_on_the_disk_alone(world: Cluster):
    broker, _, _ = await ready(world)
    await topic(broker, "soon", **on_disk("2000"))
    await produce(broker, [b"s0"], name="soon")
    before = puts(world)
    await produce(broker, [b"1"])
    await pass_time(10)
    assert puts(world) == before
    await produce(broker, [b"s1"], name="soon")
    await pass_time(1)
    assert puts(world) == before
    await pass_time(1.5)
    assert puts(world) == before + 1
    assert lane_of(broker).is_flushed


@simulated
async def test_a_topic_can_be_switched_back_and_forth_while_it_is_used(world: Cluster):
    broker, disk, topic_id = await ready(world)
    sends: list[asyncio.Future[Any]] = []
    for number in range(1, 80):
        if number % 10 == 0:
            ack = "store" if number % 20 == 0 else "disk"
            await configure(broker, topic_id, holdfast_ack=ack)
        sends.append(asyncio.ensure_future(produce(broker, [b"%d" % number])))
        await pass_time(0.001)
    done = await asyncio.gather(*sends)
    assert [d.base_offset for d in done] == list(range(1, 80))
    again, _ = await serving(world, 2, disk)
    assert await values(again) == [b"%d" % number for number in range(80)]


@simulated
async def test_a_topic_that_was_switched_to_the_store_needs_no_disk_any_more(world: Cluster):
    broker, _, topic_id = await ready(world)
    await produce(broker, [b"1"])
    await configure(broker, topic_id, holdfast_ack="store")
    await pass_time(10)
    again, _ = await serving(world, 2)
    assert lane_of(again).awaited == {}
    assert await values(again) == [b"0", b"1"]


@simulated
async def test_an_owner_that_stood_still_does_not_ack_once_its_successor_serves(world: Cluster):
    broker, disk, _ = await ready(world)
    disk._delay_seconds = (2 * VALID_MS / 1000, 2 * VALID_MS / 1000)
    sending = asyncio.ensure_future(produce(broker, [b"1"]))
    await pass_time(0.1)
    other = MemoryDisk(environment=world.environment())
    successor = await world.broker(2, disk=other)
    assert lane_of(successor).awaited
    assert (await sending).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_full_disk_costs_a_put_and_nothing_else(caplog: pytest.LogCaptureFixture):
    async def test(world: Cluster) -> None:
        broker, disk, _ = await ready(world)
        disk.bytes_max = 1
        for number in range(1, 4):
            assert (await produce(broker, [b"%d" % number])).base_offset == number
        await pass_time(10)
        disk.bytes_max = None
        await pass_time(10)
        before = puts(world)
        assert (await produce(broker, [b"4"])).base_offset == 4
        assert puts(world) == before
        assert await values(broker) == [b"0", b"1", b"2", b"3", b"4"]
        queue = lane_of(broker).queue
        assert queue is not None and queue.failures == 1

    with caplog.at_level(logging.WARNING, "holdfast"):
        simulate(test)
    assert "spool_failed" in caplog.text


@simulated
async def test_a_disk_that_does_not_answer_is_gone_around(world: Cluster):
    broker, disk, _ = await ready(world)
    disk._delay_seconds = (3_600, 3_600)
    started = world.loop.time()
    assert (await produce(broker, [b"1"])).base_offset == 1
    assert (await produce(broker, [b"2"])).base_offset == 2
    assert world.loop.time() - started < 10
    assert await values(broker) == [b"0", b"1", b"2"]


@simulated
async def test_while_disk_and_store_fail_produces_time_out_and_are_there_afterwards(world: Cluster):
    broker, disk, _ = await ready(world)
    disk.bytes_max = 1
    hold = Hold("create", LANE_OBJECTS)
    world.store.before.append(hold)
    refused = await produce(broker, [b"1"], timeout_ms=1_000)
    assert refused.error_code == ErrorCode.REQUEST_TIMED_OUT
    hold.go.set()
    await pass_time(1)
    assert await values(broker) == [b"0", b"1"]


@simulated
async def test_when_the_store_does_not_keep_up_produces_are_refused_and_may_be_tried_again(
    world: Cluster,
):
    broker, _, _ = await ready(world, flush_bytes="1000")
    hold = Hold("create", LANE_OBJECTS)
    world.store.before.append(hold)
    errors = [(await produce(broker, [b"x" * 500])).error_code for _ in range(12)]
    assert errors[:6] == [0] * 6
    assert errors[-1] == ErrorCode.NOT_ENOUGH_REPLICAS
    hold.go.set()
    await pass_time(1)
    assert (await produce(broker, [b"y"])).error_code == 0


def test_a_broker_without_a_disk_acks_from_the_store_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
):
    async def test(world: Cluster) -> None:
        broker = await world.broker()
        await topic(broker, **on_disk())
        for number in range(4):
            assert (await produce(broker, [b"%d" % number])).base_offset == number
            await pass_time(20)
        assert lane_of(broker).bypassed == {"no disk": 4}

    with caplog.at_level(logging.WARNING, "holdfast"):
        simulate(test)
    assert caplog.text.count("no_spool") == 1
