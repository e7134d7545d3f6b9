"""One partition on its way into the store: what lands, what is dropped, what may be committed."""

import pytest
from tests.support.async_tests import in_event_loop
from tests.support.landing import batch_of
from tests.unit.sink.log import (
    ENVIRONMENT,
    WHERE,
    Desk,
    dead_letters,
    fetched,
    fetched_values,
    new_store,
    ready,
    until,
    value_of,
)

from holdfast.errors import StopError
from holdfast.landing.chain import Chain
from holdfast.landing.formats.interface import Format
from holdfast.landing.formats.jsonl import JsonLines
from holdfast.landing.formats.parquet import Parquet
from holdfast.store.interface import Store


@in_event_loop
async def test_what_was_fetched_and_not_encoded_is_left_to_whoever_comes_next():
    desk = Desk(new_store())
    flow = await ready(desk.flow())
    flow.offer(fetched(0, 10))
    await flow.finish()
    assert flow.committable == 0
    assert await desk.chain().next_offset() is None
    await flow.end()
    assert desk.counters.batches_abandoned == 0


@in_event_loop
async def test_what_was_taken_in_lands_and_only_then_may_be_committed():
    desk = Desk(new_store())
    flow = await ready(desk.flow())
    flow.offer(fetched(0, 10))
    await until(lambda: flow.status().open_records == 10)
    assert flow.committable == 0
    await flow.finish()
    assert flow.committable == 10
    assert [facts.next_offset async for facts in desk.chain().follow(0)] == [10]
    await flow.end()
    assert (desk.errors, desk.counters.batches_abandoned) == ([], 0)
    assert (desk.budget.held, len(desk.budget)) == (0, 0)


@in_event_loop
async def test_a_flow_that_ends_before_its_batch_landed_abandons_it():
    desk = Desk(new_store())
    flow = await ready(desk.flow())
    flow.offer(fetched(0, 10))
    await until(lambda: flow.status().open_records == 10)
    await flow.end()
    assert desk.counters.batches_abandoned == 1
    assert await desk.chain().next_offset() is None
    assert desk.budget.held == 0


@pytest.mark.parametrize("format", [JsonLines(), Parquet()], ids=lambda f: type(f).__name__)
@in_event_loop
async def test_an_answer_counts_with_what_it_becomes_so_encoding_never_passes_the_budget(
    format: Format,
):
    values: list[bytes | None] = [
        ENVIRONMENT.random().randbytes(500).hex().encode() for _ in range(64)
    ]
    desk = Desk(new_store(), format=format)
    flow = await ready(desk.flow())
    flow.offer(fetched_values(0, values))
    counted = desk.budget.held
    await until(lambda: flow.status().open_records == len(values))
    assert 0 < desk.budget.held <= counted == desk.budget.peak
    flow.seal()
    await until(lambda: flow.landed == len(values))
    assert desk.budget.peak == counted
    await flow.end()
    assert desk.errors == []


@in_event_loop
async def test_a_flow_begins_at_the_end_of_the_chain():
    desk = Desk(new_store())
    await desk.chain().land([batch_of(range(20))], start_offset=0, end_offset=20)
    flow = await ready(desk.flow(begin=5))
    assert flow.position == 20
    await flow.end()


@in_event_loop
async def test_where_another_has_landed_at_our_key_what_is_held_is_dropped_and_its_end_is_next():
    desk = Desk(new_store())
    flow = await ready(desk.flow())
    flow.offer(fetched(0, 10))
    await until(lambda: flow.status().open_records == 10)
    rival = desk.chain()
    await rival.land([batch_of(range(4))], start_offset=0, end_offset=4)
    await rival.land([batch_of(range(4, 6))], start_offset=4, end_offset=6)
    flow.seal()
    await until(lambda: flow.position == 6)
    assert flow.committable == 6
    flow.offer(fetched(6, 12))
    await until(lambda: flow.has_taken(12))
    await flow.finish()
    covered = [(f.first_offset, f.last_offset) async for f in desk.chain().follow(0)]
    assert covered == [(0, 3), (4, 5), (6, 11)]
    await flow.end()
    assert desk.errors == []


@in_event_loop
async def test_an_answer_that_comes_after_a_restart_is_not_taken_in():
    desk = Desk(new_store())
    flow = await ready(desk.flow())
    flow.offer(fetched(0, 10))
    flow.offer(fetched(5, 15))
    await until(lambda: flow.has_taken(10))
    await flow.finish()
    assert flow.committable == 10
    await flow.end()


@in_event_loop
async def test_bad_records_are_in_their_own_chain_before_the_batch_that_covers_them():
    store = new_store()
    desk = Desk(store)
    flow = await ready(desk.flow())
    flow.offer(fetched_values(0, [b"{}", b"no json", b"{}"]))
    await until(lambda: flow.has_taken(3))
    await flow.finish()
    await flow.end()
    dead = dead_letters(store).chain
    found = [facts async for facts in dead.follow(0)]
    assert [(facts.records, facts.next_offset) for facts in found] == [(1, 2)]
    assert (desk.counters.records_landed, desk.counters.bad_records) == (2, 1)
    assert desk.errors == []


@in_event_loop
async def test_a_batch_whose_dead_letters_landed_before_a_crash_is_landed_without_doubling_them():
    store = new_store()
    first = Desk(store)
    flow = await ready(first.flow())
    flow.offer(fetched_values(0, [b"{}", b"no json"]))
    await until(lambda: flow.has_taken(2))
    await flow.finish()
    await flow.end()
    # The next member finds no object of records: only the dead letters had landed.
    await store.delete([first.chain().key(0)])
    second = Desk(store)
    flow = await ready(second.flow())
    flow.offer(fetched_values(0, [b"{}", b"no json", b"{}", b"nor this"]))
    await until(lambda: flow.has_taken(4))
    await flow.finish()
    await flow.end()
    dead = dead_letters(store).chain
    found = [(f.first_offset, f.next_offset, f.records) async for f in dead.follow(0)]
    assert found == [(0, 2, 1), (2, 4, 1)]
    assert second.errors == []


@in_event_loop
async def test_a_corrupt_answer_stops_the_sink():
    desk = Desk(new_store())
    flow = await ready(desk.flow())
    good = fetched(0, 10)
    broken = bytearray(good.batches)
    broken[-1] ^= 1
    flow.offer(good._replace(batches=memoryview(bytes(broken))))
    await until(lambda: bool(desk.errors))
    assert isinstance(desk.errors[0], StopError)
    await flow.end()
    assert await desk.chain().next_offset() is None


@in_event_loop
async def test_two_owners_of_one_partition_in_turns_land_every_record_once():
    store = new_store()
    zombie_desk, desk = Desk(store, records_max=7), Desk(store, records_max=5)
    zombie = await ready(zombie_desk.flow())
    owner = await ready(desk.flow())
    position = {zombie: 0, owner: 0}
    for _ in range(40):
        for flow in (zombie, owner):
            if flow.wants is not None and flow.position is not None and flow.position < 60:
                position[flow] = flow.position
                flow.offer(fetched(flow.position, min(60, flow.position + 9)))
        await until(lambda: not zombie.has_cargo and not owner.has_cargo)
    await until(lambda: owner.has_taken(60))
    await owner.finish()
    await zombie.finish()
    ends = [f.next_offset async for f in desk.chain().follow(0)]
    assert ends[-1] == 60
    found = [row["value"] for batch in await _batches(store) for row in batch.to_pylist()]
    assert sorted(found) == sorted(value_of(n) for n in range(60))
    await owner.end()
    await zombie.end()


async def _batches(store: Store) -> list:
    chain = Chain(store, *WHERE, format=JsonLines(), environment=ENVIRONMENT)
    batches: list = []
    async for facts in chain.follow(0):
        body = await store.read(chain.key(facts.first_offset))
        batches += list(JsonLines().decode(body, facts))
    return batches
