"""Offsets by time: the first record at or after, and the newest, wherever the records are."""

import asyncio

import pytest
from fastcrc import crc32
from tests.support.async_tests import simulated
from tests.support.lanes import P0, World, append, append_batch, flush
from tests.support.stores import Hold

from holdfast.log.data_lane import DataLane
from holdfast.log.facts import LogStartMoved
from holdfast.log.rewriter import RewriteSettings, rewrite
from holdfast.log.times import TimedOffset, offset_for_time, offset_of_max_timestamp
from holdfast.records.batch import CRC_START, HEADER_BYTES
from holdfast.records.compression import Codec
from holdfast.records.record import Record, encode_batch

NOW = RewriteSettings(delete_delay_s=0)


async def timed(world: World, *timestamps: int, tail_bytes: int = 1 << 20) -> DataLane:
    """A lane with one object, of one record, for each timestamp."""
    lane = await world.own(tail_bytes=tail_bytes)
    for timestamp in timestamps:
        append(lane, timestamp=timestamp)
        await flush(lane)
    return lane


@pytest.mark.parametrize("where", ["tail", "lane objects", "segments", "both"])
@simulated
async def test_the_first_record_at_or_after_a_time_is_found(world: World, where: str):
    lane = await timed(world, 10, 30, 20, 40, tail_bytes=0 if where == "lane objects" else 1000)
    if where in ("segments", "both"):
        await rewrite(lane, NOW)
    if where == "both":
        append(lane, timestamp=50)
        await flush(lane)
    log = lane.log_of(P0)
    expected = {0: (0, 10), 10: (0, 10), 11: (1, 30), 30: (1, 30), 31: (3, 40), 40: (3, 40)}
    for timestamp, (offset, found) in expected.items():
        assert await offset_for_time(lane.reader, log, timestamp) == TimedOffset(offset, found)
    last = TimedOffset(4, 50) if where == "both" else None
    assert await offset_for_time(lane.reader, log, 41) == last
    newest = TimedOffset(4, 50) if where == "both" else TimedOffset(3, 40)
    assert await offset_of_max_timestamp(lane.reader, log) == newest


@simulated
async def test_an_empty_partition_has_no_offset_for_any_time(world: World):
    lane = await world.own()
    log = lane.log_of(P0)
    assert await offset_for_time(lane.reader, log, 0) is None
    assert await offset_of_max_timestamp(lane.reader, log) is None


@simulated
async def test_records_without_a_timestamp_have_no_newest(world: World):
    lane = await timed(world, -1, -1)
    assert await offset_of_max_timestamp(lane.reader, lane.log_of(P0)) is None


@simulated
async def test_the_first_of_several_newest_records_is_the_newest(world: World):
    lane = await timed(world, 10, 30, 30, 20)
    found = await offset_of_max_timestamp(lane.reader, lane.log_of(P0))
    assert found == TimedOffset(1, 30)


@simulated
async def test_a_record_below_the_log_start_is_never_the_answer(world: World):
    lane = await timed(world, 90, 30, 20, 25)
    await rewrite(lane, NOW)
    lane.add(LogStartMoved(P0, 2))
    await flush(lane)
    log = lane.log_of(P0)
    assert await offset_for_time(lane.reader, log, 10) == TimedOffset(2, 20)
    assert await offset_for_time(lane.reader, log, 26) is None
    assert await offset_of_max_timestamp(lane.reader, log) == TimedOffset(3, 25)


@pytest.mark.parametrize("delay_s", [0.0, 60.0])
@simulated
async def test_a_lookup_that_runs_while_the_log_is_rewritten_misses_nothing(
    world: World, delay_s: float
):
    lane = await timed(world, 10, 20, 30)
    await rewrite(lane, NOW)
    append(lane, timestamp=40)
    append(lane, timestamp=50)
    await flush(lane)
    hold = Hold("read", "topics/")
    world.store.before.append(hold)
    log = lane.log_of(P0)
    first = asyncio.ensure_future(offset_for_time(lane.reader, log, 35))
    newest = asyncio.ensure_future(offset_of_max_timestamp(lane.reader, log))
    await hold.reached.wait()
    world.store.before.clear()
    await rewrite(lane, RewriteSettings(delete_delay_s=delay_s))
    assert len(log.runs) == 0
    hold.go.set()
    assert await first == TimedOffset(3, 40)
    assert await newest == TimedOffset(4, 50)


def poisoned(timestamp: int) -> bytearray:
    """A batch whose CRC is right and whose compressed records are garbage."""
    record = Record(0, timestamp, None, b"value" * 100)
    data = bytearray(encode_batch([record, record], codec=Codec.ZSTD))
    data[HEADER_BYTES:] = b"\xff" * (len(data) - HEADER_BYTES)
    data[CRC_START - 4 : CRC_START] = crc32.iscsi(data[CRC_START:]).to_bytes(4, "big")
    return data


@simulated
async def test_a_batch_that_cannot_be_opened_is_found_by_its_start_and_hides_nothing(world: World):
    lane = await timed(world, 10)
    append_batch(lane, poisoned(20))
    append(lane, timestamp=30)
    await flush(lane)
    log = lane.log_of(P0)
    assert await offset_for_time(lane.reader, log, 15) == TimedOffset(1, 20)
    assert await offset_for_time(lane.reader, log, 25) == TimedOffset(3, 30)
    assert await offset_of_max_timestamp(lane.reader, log) == TimedOffset(3, 30)
