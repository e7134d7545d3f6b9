"""Landing on one partition: what is skipped, what is refused, what a rival changes."""

import asyncio

import pytest
from tests.support.async_tests import in_event_loop
from tests.support.landing import ENVIRONMENT, batch_of, new_store

from holdfast.errors import CallError, ConfigurationError, CorruptObject, StoreUnavailable
from holdfast.inspect.output_survey import survey
from holdfast.landing.blocking import run
from holdfast.landing.chain import Chain, Landed, NotLanded
from holdfast.landing.formats.interface import Format
from holdfast.landing.formats.jsonl import JsonLines
from holdfast.landing.formats.parquet import Parquet
from holdfast.landing.formats.raw import Raw
from holdfast.landing.landed import objects, records
from holdfast.landing.packing import ObjectBounds
from holdfast.store.counting import CountingStore
from holdfast.store.interface import Store


def chain_on(store: Store, format: Format | None = None) -> Chain:
    return Chain(store, "orders", 3, format=format or JsonLines(), environment=ENVIRONMENT)


def ranges(outcome: Landed | NotLanded) -> list[tuple[int, int]]:
    return [(facts.first_offset, facts.last_offset) for facts in outcome.created]


async def land(chain: Chain, start: int, end: int, **more) -> Landed | NotLanded:
    return await chain.land(
        [batch_of(range(start, end))], start_offset=start, end_offset=end, **more
    )


def test_objects_close_at_their_bounds_and_the_next_begins_after_the_last():
    outcome = run(land(chain_on(new_store()), 0, 10, bounds=ObjectBounds(rows_max=4)))
    assert ranges(outcome) == [(0, 3), (4, 7), (8, 9)]


@in_event_loop
async def test_landing_the_same_range_again_creates_nothing():
    store = new_store()
    await land(chain_on(store), 0, 10, bounds=ObjectBounds(rows_max=4))
    again = await land(chain_on(store), 0, 10)
    assert isinstance(again, Landed)
    assert (again.created, again.next_offset) == ((), 10)


@in_event_loop
async def test_a_batch_is_cut_where_an_object_of_another_ends_inside_it():
    store = new_store()
    await land(chain_on(store), 0, 6)
    assert ranges(await land(chain_on(store), 0, 10)) == [(6, 9)]


@in_event_loop
async def test_a_start_inside_an_object_goes_on_after_it():
    store = new_store()
    await land(chain_on(store), 0, 10, bounds=ObjectBounds(rows_max=5))
    assert ranges(await land(chain_on(store), 7, 12)) == [(10, 11)]


@in_event_loop
async def test_holes_at_the_end_of_a_range_are_covered():
    store = new_store()
    chain = chain_on(store)
    first = await chain.land([batch_of([0, 1])], start_offset=0, end_offset=5)
    empty = await chain.land([], start_offset=5, end_offset=8)
    assert ranges(first) + ranges(empty) == [(0, 4), (5, 7)]
    assert await chain.next_offset() == 8


@in_event_loop
async def test_a_start_past_the_end_of_the_chain_is_refused_with_both_numbers():
    store = new_store()
    await land(chain_on(store), 0, 5)
    outcome = await land(chain_on(store), 9, 12)
    assert isinstance(outcome, NotLanded)
    assert "5 to 8 would be missing" in outcome.reason
    assert outcome.next_offset == 5


@in_event_loop
async def test_records_that_are_gone_from_the_log_are_covered_where_the_caller_says_so():
    store = new_store()
    await land(chain_on(store), 0, 5)
    assert ranges(await land(chain_on(store), 9, 12, cover_hole=True)) == [(5, 11)]


@in_event_loop
async def test_a_start_before_the_origin_is_refused():
    store = new_store()
    await land(chain_on(store), 5, 9)
    outcome = await land(chain_on(store), 2, 9)
    assert isinstance(outcome, NotLanded)
    assert "begins at offset 5" in outcome.reason


@in_event_loop
async def test_another_format_on_the_same_chain_is_refused():
    store = new_store()
    await land(chain_on(store), 0, 5)
    with pytest.raises(ConfigurationError, match=r"go back to '\.jsonl\.zst'"):
        await land(chain_on(store, Parquet()), 5, 9)


@in_event_loop
async def test_another_layout_may_go_on_with_the_chain_and_all_is_read_back():
    store = new_store()
    await land(chain_on(store, JsonLines("value")), 0, 3)
    await land(chain_on(store, JsonLines("envelope")), 3, 5)
    values = [
        value
        async for batch in records(store, environment=ENVIRONMENT, topic="orders")
        for value in batch.column("value").to_pylist()
    ]
    assert values == batch_of(range(5)).column("value").to_pylist()


@in_event_loop
async def test_a_writer_that_was_revoked_and_lands_late_changes_nothing():
    store = new_store()
    revoked, owner = chain_on(store), chain_on(store)
    await land(revoked, 0, 4)
    # The commit of 4 was lost with the partition: the new owner starts over, with its own cuts.
    taken_over = await land(owner, 0, 7, bounds=ObjectBounds(rows_max=2))
    assert ranges(taken_over) == [(4, 5), (6, 6)]
    late = await land(revoked, 4, 9)
    assert isinstance(late, Landed)
    assert (ranges(late), late.next_offset) == ([(7, 8)], 9)
    report = await survey(store, environment=ENVIRONMENT, verify=True)
    assert report.is_whole
    assert report.chains[0].records == 9


@in_event_loop
async def test_a_cold_start_on_a_long_chain_needs_few_requests():
    store = new_store()
    await land(chain_on(store), 0, 300, bounds=ObjectBounds(rows_max=1))
    counted = CountingStore(store)
    assert await chain_on(counted).next_offset() == 300
    assert sum(counted.requests.values()) < 10


@in_event_loop
async def test_an_object_that_was_copied_to_another_key_stops_the_chain():
    store = new_store()
    chain = chain_on(store)
    await land(chain, 0, 5)
    await store.create(chain.key(5), (await store.read(chain.key(0)),))
    with pytest.raises(CorruptObject, match="copied here"):
        await land(chain, 5, 9)


@in_event_loop
async def test_a_stranger_at_the_key_of_the_next_object_stops_the_chain():
    store = new_store()
    chain = chain_on(store)
    await land(chain, 0, 5)
    await store.create(chain.key(5), (b"x" * 5000,))
    with pytest.raises(CorruptObject, match="not a landed object"):
        await land(chain, 5, 9)


@in_event_loop
async def test_reading_back_stops_at_a_hole():
    store = new_store()
    chain = chain_on(store)
    await land(chain, 0, 9, bounds=ObjectBounds(rows_max=3))
    await store.delete([chain.key(3)])
    with pytest.raises(CorruptObject, match="3 to 5 are missing"):
        await objects(store, environment=ENVIRONMENT)


def test_a_range_that_ends_before_it_begins_is_a_wrong_call():
    with pytest.raises(CallError, match="are not a range"):
        run(chain_on(new_store()).land([], start_offset=5, end_offset=4))


def test_blocking_gives_up_in_time_where_that_is_asked_for():
    with pytest.raises(StoreUnavailable, match="unknown"):
        run(asyncio.Event().wait(), timeout_seconds=0.01)


def test_blocking_works_inside_a_running_loop_too():
    async def main() -> Landed | NotLanded:
        return run(land(chain_on(new_store()), 0, 3))

    assert isinstance(run(main()), Landed)


@pytest.mark.parametrize(
    "format", [JsonLines(), JsonLines(compression="none"), Raw(compression="gzip"), Parquet()]
)
@in_event_loop
async def test_a_file_that_was_filled_before_its_range_was_known_is_placed(format: Format):
    store = new_store()
    chain = chain_on(store, format)
    await land(chain, 0, 5)
    writer = format.writer()
    writer.add(batch_of([5, 6]))
    writer.add(batch_of([9]))
    encoded = writer.finish(chain.described(5, 11, 3))
    ours, is_ours = await chain.place(encoded, first_offset=5, last_offset=11, records=3)
    assert is_ours
    assert (ours.first_offset, ours.last_offset, ours.records) == (5, 11, 3)
    assert await chain.place(encoded, first_offset=5, last_offset=11, records=3) == (ours, True)
    theirs, is_theirs = await chain_on(store, format).place(
        encoded, first_offset=5, last_offset=11, records=3
    )
    assert (theirs, is_theirs) == (ours, False)
    assert await chain.next_offset() == 12
    assert (await survey(store, environment=ENVIRONMENT, verify=True)).is_whole
    found = [b async for b in records(store, environment=ENVIRONMENT, topic="orders")]
    values = [value for b in found for value in b.column("value").to_pylist()]
    assert values == batch_of([0, 1, 2, 3, 4, 5, 6, 9]).column("value").to_pylist()


@in_event_loop
async def test_a_file_without_a_range_is_not_placed():
    chain = chain_on(new_store())
    encoded = JsonLines().writer().finish({})
    for first, last, count in ((-1, 3, 0), (3, 2, 0), (3, 4, -1)):
        with pytest.raises(CallError, match="an object cannot have"):
            await chain.place(encoded, first_offset=first, last_offset=last, records=count)
