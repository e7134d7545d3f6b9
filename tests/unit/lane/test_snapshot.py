"""Snapshots: trusted for exactly the number they name, and never needed to be whole."""

import pytest
from tests.support.async_tests import simulated
from tests.support.lanes import LANE, P0, World, append, append_all, flush

from holdfast.errors import CorruptObject
from holdfast.identifiers import LaneId, LaneNumber
from holdfast.lane.floor import raise_floor, read_floor
from holdfast.lane.keys import entry_key, snapshot_key
from holdfast.lane.recovery import Recovered, recover
from holdfast.lane.snapshot import decode_snapshot, encode_snapshot
from holdfast.log.state import LogState, LogStateKind


async def recovered(world: World) -> Recovered[LogState]:
    return await recover(world.store, world.environment(), LANE, LogStateKind())


@simulated
async def test_each_flipped_byte_and_each_truncation_of_a_snapshot_is_detected(world: World):
    lane = await world.own()
    await append_all(lane, 2)
    number = await lane.snapshot_now()
    key = snapshot_key(LANE, number)
    data = await world.body(key)
    assert decode_snapshot(data, key=key, lane=LANE, number=number).state
    for position in range(len(data)):
        harmed = bytearray(data)
        harmed[position] ^= 0x10
        with pytest.raises(CorruptObject, match=key):
            decode_snapshot(bytes(harmed), key=key, lane=LANE, number=number)
        with pytest.raises(CorruptObject, match=key):
            decode_snapshot(data[:position], key=key, lane=LANE, number=number)


@simulated
async def test_a_snapshot_under_another_number_or_lane_is_refused(world: World):
    lane = await world.own()
    await append_all(lane, 2)
    data = encode_snapshot(lane.cursor, lane.state.encode())
    for other_lane, number in ((LANE, 1), (LANE, 3), (LaneId(2), 2)):
        with pytest.raises(CorruptObject, match="number 2 of lane 1"):
            decode_snapshot(data, key="k", lane=other_lane, number=LaneNumber(number))


@simulated
async def test_a_snapshot_carries_the_cursor_back_whole(world: World):
    lane = await world.own()
    await append_all(lane, 3)
    cursor = lane.cursor
    number = LaneNumber(cursor.next_number - 1)
    data = encode_snapshot(cursor, b"state")
    snapshot = decode_snapshot(data, key="k", lane=LANE, number=number)
    assert (snapshot.cursor, snapshot.state, snapshot.number) == (cursor, b"state", number)


@simulated
async def test_recovery_starts_at_the_snapshot_and_replays_only_what_follows(world: World):
    lane = await world.own()
    await append_all(lane, 5)
    number = await lane.snapshot_now()
    await append_all(lane, 3)
    found = await recovered(world)
    assert (found.snapshot_number, found.entries_read) == (number, 3)
    assert found.state.encode() == lane.state.encode()


@simulated
async def test_a_snapshot_put_under_a_later_number_is_not_trusted(world: World):
    lane = await world.own()
    await append_all(lane, 2)
    number = await lane.snapshot_now()
    body = await world.body(snapshot_key(LANE, number))
    await append_all(lane, 3)
    await world.memory.create(snapshot_key(LANE, number + 3), [body])
    found = await recovered(world)
    assert found.state.log_of(P0).log_end_offset == 5
    assert found.snapshot_number == number


@simulated
async def test_where_the_newest_snapshot_is_corrupt_the_one_before_serves(world: World):
    lane = await world.own()
    await append_all(lane, 2)
    older = await lane.snapshot_now()
    await append_all(lane, 2)
    newer = await lane.snapshot_now()
    await world.replace(snapshot_key(LANE, newer), b"not a snapshot")
    found = await recovered(world)
    assert found.snapshot_number == older
    assert found.state.encode() == lane.state.encode()


@simulated
async def test_where_every_snapshot_is_corrupt_the_whole_lane_serves(world: World):
    lane = await world.own()
    await append_all(lane, 4)
    number = await lane.snapshot_now()
    await world.replace(snapshot_key(LANE, number), b"")
    found = await recovered(world)
    assert found.snapshot_number == -1
    assert found.state.encode() == lane.state.encode()


@simulated
async def test_where_every_snapshot_is_corrupt_and_objects_are_gone_the_error_names_the_place(
    world: World,
):
    lane = await world.own()
    await append_all(lane, 4)
    number = await lane.snapshot_now()
    await lane.drop_up_to(LaneNumber(3), lane.state.claims)
    for key in await world.keys("snapshots/"):
        await world.replace(key, b"harmed")
    with pytest.raises(CorruptObject, match="snapshots/0001/"):
        await recovered(world)
    assert number >= 3


@simulated
async def test_a_corrupt_object_after_the_snapshot_is_named_and_never_skipped(world: World):
    lane = await world.own()
    await append_all(lane, 3)
    key = entry_key(LANE, 2)
    body = bytearray(await world.body(key))
    body[100] ^= 1
    await world.replace(key, bytes(body))
    with pytest.raises(CorruptObject, match=key):
        await recovered(world)


@simulated
async def test_objects_swapped_in_the_store_are_recognised(world: World):
    lane = await world.own()
    await append_all(lane, 3)
    two, three = [await world.body(entry_key(LANE, n)) for n in (2, 3)]
    await world.replace(entry_key(LANE, 2), three)
    await world.replace(entry_key(LANE, 3), two)
    with pytest.raises(CorruptObject, match=entry_key(LANE, 2)):
        await recovered(world)


@simulated
async def test_snapshots_are_taken_by_the_way_and_only_two_are_kept(world: World):
    lane = await world.own(snapshot_every=3)
    await append_all(lane, 20)
    await lane.snapshot_now()
    kept = await world.keys("snapshots/")
    assert len(kept) == 2
    found = await recovered(world)
    assert found.snapshot_number >= 0
    assert found.state.encode() == lane.state.encode()


@simulated
async def test_every_snapshot_is_the_state_of_exactly_its_number_also_under_load(world: World):
    lane = await world.own(snapshot_every=2)
    taken: dict[str, bytes] = {}

    async def remember(operation: str, key: str) -> None:
        if operation == "create" and key.startswith("snapshots/"):
            taken[key] = await world.body(key)

    world.store.after.append(remember)
    for i in range(40):
        append(
            lane,
            values=[b"%d" % i] * (1 + i % 3),
            producer=(i % 4, 0, 0) if i < 4 else (-1, -1, -1),
        )
        if i % 3 == 0:
            await flush(lane)
    await flush(lane)
    await lane.snapshot_now()
    assert len(taken) > 3
    for key, body in taken.items():
        number = LaneNumber(int(key[-20:]))
        snapshot = decode_snapshot(body, key=key, lane=LANE, number=number)
        assert snapshot.state == (await replayed_to(world, number)).encode()


async def replayed_to(world: World, number: int) -> LogState:
    """The state as of a number, from the lane objects alone."""
    other = World(world.loop)
    for n in range(number + 1):
        await other.memory.create(entry_key(LANE, n), [await world.body(entry_key(LANE, n))])
    return (await recovered(other)).state


@simulated
async def test_the_floor_only_rises_and_one_key_stands_for_it(world: World):
    environment = world.environment()
    assert await read_floor(world.store, environment, LANE) == 0
    for number in (5, 9, 7):
        await raise_floor(world.store, environment, LANE, LaneNumber(number))
    assert await read_floor(world.store, environment, LANE) == 9
    await raise_floor(world.store, environment, LANE, LaneNumber(12))
    assert len(await world.keys("floors/")) == 1
