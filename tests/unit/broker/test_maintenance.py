"""Background work: it acts only on what is durable, and one failure never ends the rest."""

import asyncio

import pytest
from tests.support.async_tests import simulated
from tests.support.brokers import (
    Cluster,
    lane_of,
    log_of,
    pass_time,
    produce,
    read_log,
    topic,
)
from tests.support.stores import Hold, out_of_reach
from tests.unit.broker.maintained import maintained

from holdfast.broker.broker import Broker
from holdfast.cluster.facts import TopicConfigured, TopicDeleted
from holdfast.errors import CorruptObject
from holdfast.log.rewriter import RewriteSettings


@simulated
async def test_records_past_their_time_go_and_the_log_start_moves_for_every_broker_after(
    world: Cluster,
):
    broker, maintenance = await maintained(world)
    await topic(broker, retention_ms="60000")
    await produce(broker, [b"old"])
    await pass_time(50)
    await produce(broker, [b"young"])
    await pass_time(30)
    assert log_of(broker).log_start_offset == 1
    await maintenance.stop()
    again = await world.broker(2)
    assert log_of(again).log_start_offset == 1
    assert [r.value for r in await read_log(again, 1)] == [b"young"]


@simulated
async def test_a_retention_setting_that_is_not_durable_deletes_nothing(world: Cluster):
    mine = world.store_of_its_own()
    broker, maintenance = await maintained(world, store=mine)
    topic_id = await topic(broker)
    await produce(broker, [b"keep me"])
    await pass_time(5)
    hold = Hold("create", "lanes/0000/")
    mine.before.append(hold)
    broker.control.add(TopicConfigured(topic_id, {"retention.ms": "1"}))
    await hold.reached.wait()
    await pass_time(60)
    await maintenance.stop()
    again = await world.broker(2)
    assert [r.value for r in await read_log(again)] == [b"keep me"]


@simulated
async def test_a_deletion_that_is_not_durable_removes_nothing(world: Cluster):
    mine = world.store_of_its_own()
    broker, maintenance = await maintained(world, store=mine)
    topic_id = await topic(broker)
    await produce(broker, [b"keep me"])
    hold = Hold("create", "lanes/0000/")
    mine.before.append(hold)
    broker.control.add(TopicDeleted(topic_id))
    await hold.reached.wait()
    await pass_time(30)
    await maintenance.stop()
    again = await world.broker(2)
    assert [r.value for r in await read_log(again)] == [b"keep me"]


@simulated
async def test_a_deletion_lost_with_the_control_lane_removes_nothing(world: Cluster):
    broker, maintenance = await maintained(world)
    topic_id = await topic(broker)
    await produce(broker, [b"keep me"])
    starting = asyncio.ensure_future(world.broker(2))
    while broker.control.failure is None:
        broker.control.doubt()
        await asyncio.gather(broker.control.validate(), return_exceptions=True)
    broker.state.apply(TopicDeleted(topic_id))
    for task in list(maintenance._tasks.values()):  # pyright: ignore[reportPrivateUsage]
        await asyncio.wait({task}, timeout=5)
    await maintenance.stop()
    again = await starting
    assert [r.value for r in await read_log(again)] == [b"keep me"]


@simulated
async def test_a_deleted_topic_leaves_nothing_in_the_store_and_is_forgotten(world: Cluster):
    rewrite = RewriteSettings(entries_max=3, delete_delay_s=0)
    broker, maintenance = await maintained(world, rewrite=rewrite)
    topic_id = await topic(broker, partitions=2)
    for i in range(6):
        await produce(broker, partition=i % 2)
    await pass_time(5)
    assert await world.keys("topics/")
    broker.control.add(TopicDeleted(topic_id))
    await pass_time(20)
    assert await world.keys("topics/") == []
    assert broker.state.deleted == {}
    assert lane_of_first(broker).state.partitions == {}
    await maintenance.stop()
    again = await world.broker(2)
    assert again.state.topics == {} and again.state.deleted == {}


def lane_of_first(broker: Broker):
    return next(iter(broker.lanes.values()))


@simulated
async def test_lane_objects_are_rewritten_when_enough_has_gathered_and_every_record_stays_readable(
    world: Cluster,
):
    rewrite = RewriteSettings(entries_max=5, delete_delay_s=2.0)
    broker, maintenance = await maintained(world, rewrite=rewrite)
    await topic(broker)
    for i in range(40):
        await produce(broker, [b"%d" % i])
        await pass_time(0.5)
        assert [r.value for r in await read_log(broker)] == [b"%d" % j for j in range(i + 1)]
    assert log_of(broker).segments
    assert len(await world.keys("lanes/0001/")) < 30
    await maintenance.stop()
    again = await world.broker(2)
    assert len(await read_log(again)) == 40


@simulated
async def test_producers_that_are_long_silent_are_forgotten_and_others_are_not(world: Cluster):
    broker, maintenance = await maintained(world, producer_id_expiration_ms=60_000)
    await topic(broker)
    await produce(broker, producer=(1, 0, 0))
    await pass_time(50)
    await produce(broker, producer=(2, 0, 0))
    await pass_time(30)
    assert list(log_of(broker).producers) == [2]
    await maintenance.stop()
    again = await world.broker(2)
    assert list(log_of(again).producers) == [2]


@simulated
async def test_work_goes_on_after_an_outage(world: Cluster):
    broker, maintenance = await maintained(
        world, rewrite=RewriteSettings(entries_max=3, delete_delay_s=0)
    )
    await topic(broker)
    for _ in range(4):
        await produce(broker)

    world.store.before.append(out_of_reach)
    await pass_time(60)
    world.store.before.clear()
    await pass_time(30)
    assert log_of(broker).segments
    assert len(await read_log(broker)) == 4
    await maintenance.stop()


@pytest.mark.parametrize("error", [RuntimeError("a bug"), CorruptObject("harmed")])
@simulated
async def test_a_failure_in_one_lane_does_not_end_the_work_on_another(
    world: Cluster, error: Exception
):
    broker, maintenance = await maintained(
        world, lanes=2, rewrite=RewriteSettings(entries_max=3, delete_delay_s=0)
    )
    await topic(broker, partitions=2)
    for i in range(8):
        await produce(broker, partition=i % 2)

    async def fails(operation: str, key: str) -> None:
        if operation == "create" and key.startswith("topics/") and "/000000/" in key:
            raise error

    world.store.before.append(fails)
    await pass_time(20)
    assert log_of(broker, partition=1).segments
    assert not log_of(broker, partition=0).segments
    world.store.before.clear()
    await pass_time(20)
    assert bool(log_of(broker).segments) == isinstance(error, RuntimeError)
    assert lane_of(broker).is_open
    await maintenance.stop()


@simulated
async def test_stopping_in_the_middle_of_any_work_harms_nothing(world: Cluster):
    broker, maintenance = await maintained(
        world, rewrite=RewriteSettings(entries_max=3, delete_delay_s=0)
    )
    await topic(broker)
    for _ in range(5):
        await produce(broker)
    hold = Hold("create", "topics/")
    world.store.before.append(hold)
    await hold.reached.wait()
    await maintenance.stop()
    world.store.before.clear()
    assert (await produce(broker)).error_code == 0
    await broker.stop(release=True)
    again = await world.broker(2)
    assert len(await read_log(again)) == 6
