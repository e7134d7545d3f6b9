"""The plan of a backfill: which records, in which slices, and that it stays the same."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from tests.unit.spark.stores import TOPIC, change, made

from holdfast.errors import ConfigurationError
from holdfast.landing.ledger_entry import NO_HASH, Entry, LedgerEntryKind
from holdfast.landing.ledger_rules import AlreadyCommitted, Commit, decide
from holdfast.quantities import time_ms
from holdfast.spark.ledger.backfill_plan import (
    BackfillPlan,
    BackfillRequest,
    Slice,
    known_plan,
    new_plan,
    next_slice,
    span,
)
from holdfast.spark.source.inputs import DataLoss, SourcePartition
from holdfast.spark.source.store_input import StoreInput

ALL = BackfillRequest(topic=TOPIC)


def entry_of(piece: Slice, n: int, plan: BackfillPlan) -> Entry:
    batch = piece.micro_batch(TOPIC)
    return Entry(
        sink_id="old",
        n=n,
        previous_hash=NO_HASH,
        writer_id="w",
        kind=LedgerEntryKind.MICRO_BATCH,
        query_id=batch.query_id,
        batch_id=batch.batch_id,
        sources=batch.sources,
        files=(),
        metadata=plan.metadata() if n == 0 else {},
        committed_ms=0,
    )


def slices(plan: BackfillPlan, records_max: int) -> list[Slice]:
    found: list[Slice] = []
    head: Entry | None = None
    while (piece := next_slice(plan, head, records_max)) is not None:
        decision = decide(head, piece.micro_batch(TOPIC))
        assert decision == Commit(n=len(found))
        head = entry_of(piece, len(found), plan)
        found.append(piece)
    return found


def partitions(source: StoreInput) -> list[SourcePartition]:
    return source.topics()[TOPIC].all_partitions()


def numbers(plan: BackfillPlan) -> list[tuple[int, int]]:
    start, end = plan.positions()
    ordered: Sequence[SourcePartition] = sorted(end)
    return [(start[where], end[where]) for where in ordered]


@pytest.fixture
def store(tmp_path: Path) -> str:
    """100 records in partition 0, one batch of 20 for each ms from 1000 on; 60 in partition 1."""
    return made(tmp_path, lambda b: b.fill(5), lambda b: b.fill(3, partition=1), partitions=2)


@pytest.fixture
def source(store: str) -> StoreInput:
    return StoreInput(store)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (ALL, [(0, 100), (0, 60)]),
        (BackfillRequest(topic=TOPIC, from_offset=10, to_offset=80), [(10, 80), (10, 60)]),
        (BackfillRequest(topic=TOPIC, from_offset=70), [(70, 100), (60, 60)]),
        (BackfillRequest(topic=TOPIC, from_ms=1_001, to_ms=1_003), [(20, 60), (20, 60)]),
        (BackfillRequest(topic=TOPIC, from_ms=9_000), [(100, 100), (60, 60)]),
    ],
)
def test_a_range_is_cut_to_what_the_log_has(
    source: StoreInput, asked: BackfillRequest, expected: list[tuple[int, int]]
):
    assert numbers(new_plan(asked, source, partitions(source))) == expected


def test_an_offset_that_is_gone_is_named(tmp_path: Path):
    store = made(tmp_path, lambda b: b.fill(5), lambda b: b.delete_records(0, 40))
    source = StoreInput(store)
    with pytest.raises(DataLoss, match=r"t-0: offsets 5 to 39 are no.*remove --from-offset"):
        new_plan(BackfillRequest(topic=TOPIC, from_offset=5), source, partitions(source))
    assert numbers(new_plan(ALL, source, partitions(source))) == [(40, 100)]


def test_slices_tile_the_plan_whatever_their_size(source: StoreInput):
    plan = new_plan(ALL, source, partitions(source))
    for records_max in (1, 7, 50, 160, 1_000):
        found = slices(plan, records_max)
        assert sum(piece.records for piece in found) == 160
        assert all(piece.records <= max(records_max, 2) for piece in found)
        assert [piece.number for piece in found] == list(range(len(found)))
    assert span(*plan.positions()) == 160


def test_a_slice_that_is_run_twice_is_known(source: StoreInput):
    plan = new_plan(ALL, source, partitions(source))
    first = next_slice(plan, None, 50)
    assert first is not None
    head = entry_of(first, 0, plan)
    assert decide(head, first.micro_batch(TOPIC)) == AlreadyCommitted(n=0)


def test_the_plan_stays_although_the_topic_grows(tmp_path: Path, store: str, source: StoreInput):
    plan = new_plan(ALL, source, partitions(source))
    first = next_slice(plan, None, 50)
    assert first is not None
    entry = entry_of(first, 0, plan)
    change(tmp_path, lambda b: b.fill(2))
    assert numbers(new_plan(ALL, source, partitions(source))) == [(0, 140), (0, 60)]
    assert known_plan(entry, ALL) == plan


def test_a_ledger_of_something_else_is_refused(source: StoreInput):
    plan = new_plan(ALL, source, partitions(source))
    first = next_slice(plan, None, 50)
    assert first is not None
    entry = entry_of(first, 0, plan)
    with pytest.raises(ConfigurationError, match="from_offset was None and is now 5"):
        known_plan(entry, BackfillRequest(topic=TOPIC, from_offset=5))
    streamed = msgspec.structs.replace(entry, metadata={})
    with pytest.raises(ConfigurationError, match="choose another --sink-id"):
        known_plan(streamed, ALL)
    assert known_plan(None, ALL) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"from_offset": 1, "from_ms": 1},
        {"to_offset": 1, "to_ms": 1},
        {"from_offset": 5, "to_offset": 5},
        {"from_ms": 5, "to_ms": 4},
    ],
)
def test_ranges_that_contradict_themselves_are_refused(wrong: dict[str, int]):
    with pytest.raises(ConfigurationError, match=r"--(from|to)"):
        BackfillRequest(topic=TOPIC, **wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2026-11-01", 1_793_491_200_000),
        ("2026-11-01T01:00:00+01:00", 1_793_491_200_000),
        ("2026-11-01T00:00:00Z", 1_793_491_200_000),
    ],
)
def test_times_are_written_as_dates_or_milliseconds(text: str, expected: int):
    assert time_ms(text) == expected


def test_what_is_no_time_is_refused():
    with pytest.raises(ConfigurationError, match="2026-11-01"):
        time_ms("yesterday")
