"""From fetches to sealed batches: bounds, bad records, holes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.peers.junk import junk_batch
from tests.unit.sink.log import WHERE, fetched, fetched_values, recipe, value_of

from holdfast.client.fetch import PartitionFetch
from holdfast.columnar.schema import SCHEMA_WITH_HEADERS
from holdfast.errors import CallError, StopError
from holdfast.landing.facts import Facts
from holdfast.landing.formats.interface import Format
from holdfast.landing.formats.jsonl import JsonLines
from holdfast.landing.formats.parquet import Parquet
from holdfast.sink.encoder import PartitionEncoder, Recipe, Sealed
from holdfast.sink.settings import BatchBounds


def values_in(sealed: Sealed, format: Format | None = None) -> list[bytes]:
    format = format or JsonLines(require_json=True)
    body = b"".join(bytes(part) for part in sealed.encoded.body)
    facts = Facts(
        topic=WHERE.topic,
        partition=WHERE.partition,
        first_offset=sealed.first_offset,
        last_offset=sealed.last_offset,
        records=sealed.records,
        writer_id="",
        format=format.name,
        body_bytes=len(body),
        body_crc=0,
        after_bytes=len(sealed.encoded.after),
        after_crc=0,
    )
    whole = body + sealed.encoded.after
    return [row["value"] for batch in format.decode(whole, facts) for row in batch.to_pylist()]


def ranges(sealed: list[Sealed]) -> list[tuple[int, int]]:
    return [(batch.first_offset, batch.last_offset) for batch in sealed]


def test_a_batch_closes_at_its_count_of_records_and_the_next_begins_after_it():
    encoder = PartitionEncoder(WHERE, 0, recipe(records_max=4))
    sealed = encoder.absorb(fetched(0, 10))
    assert ranges(sealed) == [(0, 3), (4, 7)]
    assert values_in(sealed[1]) == [value_of(n) for n in range(4, 8)]
    assert encoder.open_records == 2


def test_a_batch_closes_by_the_bytes_of_its_records():
    encoder = PartitionEncoder(WHERE, 0, recipe(bytes_max=200))
    sealed = encoder.absorb(fetched(0, 100))
    assert len(sealed) > 3
    assert [n for batch in sealed for n in values_in(batch)] == [
        value_of(n) for n in range(sealed[-1].next_offset)
    ]


def test_what_is_open_is_sealed_when_asked_and_covers_all_that_was_taken_in():
    encoder = PartitionEncoder(WHERE, 0, recipe())
    assert encoder.absorb(fetched(0, 7)) == []
    sealed = encoder.seal()
    assert sealed is not None
    assert ranges([sealed]) == [(0, 6)]
    assert encoder.seal() is None


def test_a_batch_begins_where_the_one_before_ended_whatever_was_between():
    encoder = PartitionEncoder(WHERE, 0, recipe())
    encoder.absorb(fetched(0, 5))
    first = encoder.seal()
    encoder.next_offset = 9  # offsets 5 to 8 are gone from the log
    encoder.absorb(fetched(9, 12))
    second = encoder.seal()
    assert first is not None
    assert second is not None
    assert ranges([first, second]) == [(0, 4), (5, 11)]
    assert second.records == 3


def test_an_answer_that_is_not_next_is_a_bug_and_changes_nothing():
    encoder = PartitionEncoder(WHERE, 5, recipe())
    with pytest.raises(CallError, match="offset 5 is next, not 0"):
        encoder.absorb(fetched(0, 10))
    assert encoder.seal() is None


def test_a_record_that_is_no_json_is_set_aside_with_its_reason_and_its_offset_is_covered():
    encoder = PartitionEncoder(WHERE, 0, recipe())
    encoder.absorb(fetched_values(0, [b'{"n":0}', b"no json", b'{"n":2}', None]))
    sealed = encoder.seal()
    assert sealed is not None
    assert values_in(sealed) == [b'{"n":0}', b'{"n":2}']
    assert (sealed.records, ranges([sealed])) == (2, [(0, 3)])
    bad = [row for batch in sealed.bad for row in batch.to_pylist()]
    assert [(row["offset"], row["value"]) for row in bad] == [(1, b"no json"), (3, None)]
    assert "JSON" in bad[0]["reason"]
    assert "null" in bad[1]["reason"]
    assert set(SCHEMA_WITH_HEADERS.names) <= set(bad[0])


def test_bad_records_alone_make_a_batch_without_records():
    encoder = PartitionEncoder(WHERE, 0, recipe())
    encoder.absorb(fetched_values(0, [b"no", b"nor this"]))
    sealed = encoder.seal()
    assert sealed is not None
    assert (sealed.records, ranges([sealed])) == (0, [(0, 1)])
    assert sum(batch.num_rows for batch in sealed.bad) == 2


def test_where_bad_records_are_to_fail_the_first_is_named():
    strict = Recipe(
        format=JsonLines(require_json=True),
        bounds=BatchBounds(),
        read_committed=True,
        fails_on_bad_records=True,
    )
    with pytest.raises(StopError, match="orders-3: the record at offset 1 cannot be written"):
        PartitionEncoder(WHERE, 0, strict).absorb(fetched_values(0, [b"{}", b"no"]))


@pytest.mark.parametrize("format", [JsonLines(require_json=True), Parquet()])
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=8),
    st.integers(1, 12),
    st.integers(30, 400),
    st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_whatever_the_answers_and_the_bounds_batches_tile_the_log_and_hold_each_record_once(
    format: Format, sizes: list[int], records_max: int, bytes_max: int, seals: list[bool]
):
    encoder = PartitionEncoder(
        WHERE, 0, recipe(format=format, records_max=records_max, bytes_max=bytes_max)
    )
    batches: list[Sealed] = []
    position = 0
    for size, is_sealed in zip(sizes, seals, strict=False):
        batches += encoder.absorb(fetched(position, position + size, batch=7))
        position += size
        if is_sealed:
            batches += [sealed] if (sealed := encoder.seal()) else []
    batches += [sealed] if (sealed := encoder.seal()) else []
    assert [batch.first_offset for batch in batches] == [
        0,
        *(batch.next_offset for batch in batches[:-1]),
    ]
    assert batches[-1].next_offset == position
    assert [n for batch in batches for n in values_in(batch, format)] == [
        value_of(n) for n in range(position)
    ]
    assert all(batch.records <= records_max for batch in batches)


def fetched_with_junk() -> PartitionFetch:
    """Offsets 0 to 9, junk at 10 to 12, then 13 to 16."""
    good, rest = fetched(0, 10), fetched(13, 17)
    junk = junk_batch(records=3, base_offset=10)
    return good._replace(batches=memoryview(bytes(good.batches) + junk + bytes(rest.batches)))


def test_a_record_batch_that_cannot_be_read_is_one_dead_letter_and_its_offsets_are_covered():
    encoder = PartitionEncoder(WHERE, 0, recipe())
    encoder.absorb(fetched_with_junk())
    sealed = encoder.seal()
    assert sealed is not None
    assert values_in(sealed) == [value_of(n) for n in (*range(10), *range(13, 17))]
    assert ranges([sealed]) == [(0, 16)]
    ((bad,),) = [batch.to_pylist() for batch in sealed.bad]
    assert (bad["offset"], bad["value"]) == (10, junk_batch(records=3, base_offset=10))
    assert bad["headers"][1] == {"key": "holdfast.last_offset", "value": b"12"}
    assert sealed.unreadable[0].startswith("the record batch at offsets 10 to 12 cannot be read: ")


def test_a_batch_that_closes_at_an_unreadable_one_covers_it_whole():
    encoder = PartitionEncoder(WHERE, 0, recipe(records_max=11))
    sealed = encoder.absorb(fetched_with_junk())
    assert ranges(sealed) == [(0, 12)]
    rest = encoder.seal()
    assert rest is not None
    assert ranges([rest]) == [(13, 16)]
    assert not rest.bad


def test_where_bad_records_are_to_fail_an_unreadable_batch_is_named_with_its_offsets():
    strict = Recipe(
        format=JsonLines(), bounds=BatchBounds(), read_committed=True, fails_on_bad_records=True
    )
    with pytest.raises(StopError, match="orders-3: the record batch at offsets 10 to 12 cannot be"):
        PartitionEncoder(WHERE, 0, strict).absorb(fetched_with_junk())
