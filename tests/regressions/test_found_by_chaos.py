"""What killing real processes found, played again in virtual time."""

import asyncio

from tests.support.async_tests import simulated
from tests.support.lanes import LANE, P0, P1, World, append, flush

from holdfast.lane.floor import read_floor
from holdfast.log.rewriter import RewriteSettings, rewrite, sweep_segments

LIFE_S = 2.0
OBJECTS = 100
SETTINGS = RewriteSettings(delete_delay_s=0.05, step_entries_max=8)


@simulated
async def test_a_lane_whose_owners_live_for_two_seconds_is_rewritten_and_its_objects_go(
    world: World,
):
    """Floors stayed near 310 of 4,463 objects: a rewriting that was cut short began anew."""
    lane = await world.own(tail_bytes=0)
    for i in range(OBJECTS):
        append(lane, P0, [b"%d" % i])
        append(lane, P1, [b"%d" % i])
        await flush(lane)
    records = {p: lane.log_of(p).high_watermark for p in (P0, P1)}

    async def slowly(operation: str, key: str) -> None:
        await asyncio.sleep(0.05)

    world.store.before.append(slowly)
    floors: list[int] = []
    while not floors or floors[-1] <= OBJECTS:
        assert len(floors) < 12, floors
        lane = await world.own(tail_bytes=0)
        await sweep_segments(lane)
        rewriting = asyncio.ensure_future(rewrite(lane, SETTINGS))
        await asyncio.wait({rewriting}, timeout=LIFE_S)
        rewriting.cancel()
        floors.append(await read_floor(world.memory, lane.environment, LANE))
    assert len(floors) > 2, "the lives were long enough for all of it"
    for partition, high_watermark in records.items():
        log = lane.log_of(partition)
        assert not len(log.runs)
        assert log.high_watermark == high_watermark
        cut = await lane.reader.read(log, 0, 1 << 20)
        assert cut.next_offset == high_watermark
