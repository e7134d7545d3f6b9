"""Produce: acknowledged means durable, refused means never there, a retry means once."""

import asyncio
import struct

import pytest
from tests.support.async_tests import simulated
from tests.support.batches import batch
from tests.support.brokers import (
    VALID_MS,
    Cluster,
    fetch,
    lane_of,
    list_offset,
    log_of,
    pass_time,
    produce,
    produce_request,
    read_log,
    simulate,
    topic,
    values_in,
)
from tests.support.stores import Hold, out_of_reach

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.lane.pending import GroupSettings
from holdfast.protocol.api import ErrorCode
from holdfast.records.record import Record, encode_batch

VALID_S = VALID_MS / 1000


async def serving(world: Cluster, **settings: object) -> Broker:
    broker = await world.broker(**settings)
    await topic(broker)
    return broker


@simulated
async def test_an_acknowledged_batch_is_in_the_store_and_readable(world: Cluster):
    broker = await serving(world)
    done = await produce(broker, [b"a", b"b"])
    assert (done.error_code, done.base_offset, done.log_start_offset) == (0, 0, 0)
    assert (await produce(broker, [b"c"])).base_offset == 2
    assert values_in(await fetch(broker)) == [b"a", b"b", b"c"]
    assert len(await world.keys("lanes/0001/")) == 3


def malformed() -> dict[str, tuple[bytearray, ErrorCode]]:
    good = batch([b"x"], timestamp=1)
    flipped = bytearray(good)
    flipped[-1] ^= 1
    control = bytearray(encode_batch([Record(0, 1, b"k", b"v")], control=True))
    transactional = bytearray(
        encode_batch(
            [Record(0, 1, None, b"v")],
            transactional=True,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
        )
    )
    old_magic = bytearray(good)
    old_magic[16] = 1
    return {
        "empty": (bytearray(), ErrorCode.INVALID_RECORD),
        "short": (good[:40], ErrorCode.INVALID_RECORD),
        "two batches": (good + good, ErrorCode.INVALID_RECORD),
        "wrong crc": (flipped, ErrorCode.CORRUPT_MESSAGE),
        "control": (control, ErrorCode.INVALID_RECORD),
        "transactional": (transactional, ErrorCode.INVALID_RECORD),
        "old magic": (old_magic, ErrorCode.INVALID_RECORD),
        "too large": (batch([b"x" * 2_000_000], timestamp=1), ErrorCode.MESSAGE_TOO_LARGE),
    }


@pytest.mark.parametrize("what", malformed())
@simulated
async def test_a_batch_that_may_not_join_leaves_no_trace(world: Cluster, what: str):
    broker = await serving(world)
    raw, expected = malformed()[what]
    done = await produce(broker, raw=raw)
    assert done.error_code == expected
    assert done.base_offset == -1
    assert log_of(broker).log_end_offset == 0
    assert (await produce(broker)).base_offset == 0


@simulated
async def test_null_records_are_refused(world: Cluster):
    broker = await serving(world)
    request = produce_request({("t", 0): None})
    response = await answer(broker, request, RequestContext(api_version=9))
    part = response.responses[0].partition_responses[0]
    assert part.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("acks", [2, -2, 100])
@simulated
async def test_unknown_acks_are_refused(world: Cluster, acks: int):
    broker = await serving(world)
    done = await produce(broker, acks=acks)
    assert done.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert log_of(broker).log_end_offset == 0


@simulated
async def test_unknown_topics_and_partitions_are_refused_and_the_others_are_served(world: Cluster):
    broker = await serving(world)
    now = broker.environment.now_ms()
    request = produce_request(
        {
            ("nope", 0): batch(timestamp=now),
            ("t", 0): batch(timestamp=now),
            ("t", 5): batch(timestamp=now),
            ("t", -1): batch(timestamp=now),
        }
    )
    response = await answer(broker, request, RequestContext(api_version=9))
    codes = [t.partition_responses[0].error_code for t in response.responses]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [unknown, 0, unknown, unknown]
    assert len(await read_log(broker)) == 1


@simulated
async def test_timestamps_too_far_ahead_or_behind_are_refused(world: Cluster):
    broker = await world.broker()
    await topic(broker, message_timestamp_before_max_ms="1000")
    now = broker.environment.now_ms()
    for timestamp, code in [
        (now + 3_600_000, 0),
        (now + 3_600_001, ErrorCode.INVALID_TIMESTAMP),
        (now - 1_000, 0),
        (now - 1_001, ErrorCode.INVALID_TIMESTAMP),
    ]:
        assert (await produce(broker, timestamp=timestamp)).error_code == code


@simulated
async def test_log_append_time_is_the_brokers_and_a_retry_is_told_the_same_one(world: Cluster):
    broker = await world.broker()
    await topic(broker, message_timestamp_type="LogAppendTime")
    first = await produce(broker, timestamp=5, producer=(1, 0, 0))
    assert first.log_append_time_ms == broker.environment.now_ms()
    await pass_time(3)
    again = await produce(broker, timestamp=5, producer=(1, 0, 0))
    assert (again.base_offset, again.log_append_time_ms) == (0, first.log_append_time_ms)
    (record,) = await read_log(broker)
    assert record.timestamp == first.log_append_time_ms


@simulated
async def test_a_retry_of_any_of_the_last_five_batches_gets_the_original_offset(world: Cluster):
    broker = await serving(world)
    for sequence in range(6):
        await produce(broker, timestamp=1, producer=(9, 0, sequence))
    for sequence in range(1, 6):
        again = await produce(broker, timestamp=1, producer=(9, 0, sequence))
        assert (again.error_code, again.base_offset) == (0, sequence)
    too_old = await produce(broker, timestamp=1, producer=(9, 0, 0))
    assert too_old.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log_of(broker).log_end_offset == 6


@simulated
async def test_a_retry_after_a_change_of_the_broker_gets_the_original_offset(world: Cluster):
    first = await serving(world)
    for sequence in range(3):
        await produce(first, timestamp=1, producer=(9, 0, sequence))
    second = await world.broker(2)
    again = await produce(second, timestamp=1, producer=(9, 0, 2))
    assert (again.error_code, again.base_offset) == (0, 2)
    assert (await produce(second, timestamp=1, producer=(9, 0, 3))).base_offset == 3


@simulated
async def test_the_same_sequence_with_another_timestamp_is_a_duplicate(world: Cluster):
    broker = await serving(world)
    await produce(broker, [b"one"], timestamp=1, producer=(9, 0, 0))
    again = await produce(broker, [b"one"], timestamp=2, producer=(9, 0, 0))
    assert (again.error_code, again.base_offset) == (0, 0)
    assert (await produce(broker, [b"two"], producer=(9, 0, 1))).base_offset == 1
    assert values_in(await fetch(broker)) == [b"one", b"two"]


@simulated
async def test_old_epochs_are_refused_and_a_new_epoch_starts_at_zero(world: Cluster):
    broker = await serving(world)
    await produce(broker, producer=(9, 1, 0))
    old = await produce(broker, producer=(9, 0, 1))
    assert old.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    not_zero = await produce(broker, producer=(9, 2, 1))
    assert not_zero.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await produce(broker, producer=(9, 2, 0))).error_code == 0


@simulated
async def test_a_retry_while_the_original_is_under_way_is_answered_with_it_and_not_before_it(
    world: Cluster,
):
    broker = await serving(world)
    hold = Hold("create", "lanes/0001/")
    world.store.before.append(hold)
    original = asyncio.ensure_future(produce(broker, timestamp=1, producer=(9, 0, 0)))
    await hold.reached.wait()
    retry = asyncio.ensure_future(produce(broker, timestamp=1, producer=(9, 0, 0)))
    await pass_time(1)
    assert not original.done() and not retry.done()
    hold.go.set()
    assert (await original).base_offset == (await retry).base_offset == 0
    assert log_of(broker).log_end_offset == 1


@simulated
async def test_a_store_that_does_not_answer_in_time_is_a_time_out_and_the_batch_may_still_land(
    world: Cluster,
):
    broker = await serving(world)
    hold = Hold("create", "lanes/0001/")
    world.store.before.append(hold)
    late = await produce(broker, timeout_ms=1_500, timestamp=1, producer=(9, 0, 0))
    assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert late.base_offset == -1
    assert 1 < world.loop.time() < 3
    assert (await fetch(broker)).high_watermark == 0
    hold.go.set()
    again = await produce(broker, timestamp=1, producer=(9, 0, 0))
    assert (again.error_code, again.base_offset) == (0, 0)
    assert log_of(broker).log_end_offset == 1


@simulated
async def test_more_than_memory_should_hold_is_refused_and_taken_again_when_the_store_is_back(
    world: Cluster,
):
    broker = await serving(
        world, group=GroupSettings(claim_valid_ms=VALID_MS, pending_bytes_max=5_000)
    )
    world.store.before.append(out_of_reach)
    done = [asyncio.ensure_future(produce(broker, [b"x" * 1_000])) for _ in range(50)]
    await pass_time(1)
    refused = [t.result() for t in done if t.done()]
    assert len(refused) >= 40
    assert {r.error_code for r in refused} == {ErrorCode.NOT_ENOUGH_REPLICAS}
    assert lane_of(broker).pending_bytes < 10_000
    world.store.before.clear()
    await asyncio.wait(done)
    accepted = [t.result() for t in done if t.result().error_code == 0]
    assert len(accepted) == 50 - len(refused) == len(await read_log(broker))
    assert lane_of(broker).pending_bytes == 0


@simulated
async def test_without_acks_there_is_no_answer_and_the_records_land_all_the_same(world: Cluster):
    broker = await serving(world)
    request = produce_request({("t", 0): batch(timestamp=broker.environment.now_ms())}, acks=0)
    assert await answer(broker, request, RequestContext(api_version=9)) is None
    await lane_of(broker).flush()
    assert len(await read_log(broker)) == 1


@simulated
async def test_a_stale_owner_never_acknowledges_and_what_it_took_appears_nowhere(world: Cluster):
    old = await serving(world)
    await produce(old, [b"before"])
    new = await world.broker(2)
    done = await produce(old, [b"by the stale one"])
    assert done.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert done.base_offset == -1
    assert [r.value for r in await read_log(new)] == [b"before"]


def test_a_put_that_landed_before_the_claim_but_was_heard_of_after_it_is_the_successors_to_tell():
    async def test(world: Cluster) -> None:
        mine = world.store_of_its_own()
        old = await world.broker(1, store=mine)
        await topic(old)
        hold = Hold("create", "lanes/0001/")
        mine.after.append(hold)
        producing = asyncio.ensure_future(produce(old, timestamp=1, producer=(9, 0, 0)))
        await hold.reached.wait()
        new = await world.broker(2)
        assert (await list_offset(old)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        hold.go.set()
        assert (await producing).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        again = await produce(new, timestamp=1, producer=(9, 0, 0))
        assert (again.error_code, again.base_offset) == (0, 0)
        assert len(await read_log(new)) == 1

    simulate(test)


@pytest.mark.parametrize("sequence", [5, 0])
@simulated
async def test_a_refusal_by_sequence_of_a_stale_owner_becomes_not_leader(
    world: Cluster, sequence: int
):
    old = await serving(world)
    await produce(old, timestamp=1, producer=(9, 1, 0))
    new = await world.broker(2)
    for i in range(1, 5):
        await produce(new, timestamp=1, producer=(9, 1, i))
    epoch = 1 if sequence else 0
    done = await produce(old, timestamp=1, producer=(9, epoch, sequence))
    assert done.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@simulated
async def test_a_refusal_by_sequence_while_the_store_is_away_can_be_tried_again(world: Cluster):
    broker = await serving(world)
    await produce(broker, producer=(9, 0, 0))
    await pass_time(VALID_S + 1)
    world.store.before.append(out_of_reach)
    done = await produce(broker, producer=(9, 0, 5))
    assert done.error_code == ErrorCode.KAFKA_STORAGE_ERROR


@simulated
async def test_requests_that_arrive_together_share_an_object_and_keep_their_order(world: Cluster):
    broker = await serving(world)
    hold = Hold("create", "lanes/0001/")
    world.store.before.append(hold)
    done = [asyncio.ensure_future(produce(broker, [b"%d" % i])) for i in range(20)]
    await hold.reached.wait()
    await pass_time(1)
    hold.go.set()
    offsets = [(await t).base_offset for t in done]
    assert sorted(offsets) == list(range(20))
    records = await read_log(broker)
    assert [records[o].value for o in offsets] == [b"%d" % i for i in range(20)]
    assert len(await world.keys("lanes/0001/")) <= 4


@simulated
async def test_after_a_stop_every_produce_is_refused_as_not_leader(world: Cluster):
    broker = await serving(world)
    await broker.stop(release=True)
    assert (await produce(broker)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await fetch(broker)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await list_offset(broker)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@simulated
async def test_the_stamped_offset_and_epoch_are_in_the_stored_bytes(world: Cluster):
    await serving(world)
    broker = await world.broker(2)
    await produce(broker)
    await produce(broker)
    part = await fetch(broker, 1)
    (stored,) = part.records
    base_offset, _, leader_epoch = struct.unpack_from(">qii", stored)
    assert (base_offset, leader_epoch) == (1, 1)
