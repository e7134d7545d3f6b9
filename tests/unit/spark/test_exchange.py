"""Rows cut by bucket come out as they went in, each in its bucket, in their order."""

from typing import Any

import pyarrow as pa
import pytest

from holdfast.columnar.hashing import hash_columns
from holdfast.keyed_state.pinned import bucket_of
from holdfast.spark.ledger.exchange import (
    SCHEMA,
    Cutter,
    Piece,
    halves,
    opened,
    times,
    without_keys,
)

SEED = 7


def cutter(buckets: int = 4, event_time: str | None = None) -> Cutter:
    return Cutter(by=("id",), event_time=event_time, buckets=buckets, tasks=3, hash_seed=SEED)


def batch(ids: list[bytes | None]) -> Any:
    columns = {"id": pa.array(ids, pa.binary()), "at": pa.array(range(len(ids)), pa.int64())}
    return pa.RecordBatch.from_pydict(columns)


def cut(wanted: Cutter, *batches: Any) -> list[Piece]:
    return list(opened(wanted.pieces(batches, task=2)))


@pytest.mark.parametrize("buckets", [1, 4, 40_000])
def test_each_row_is_in_the_piece_of_its_bucket_and_in_no_other(buckets: int):
    rows = batch([b"%d" % (i % 700) for i in range(1_000)])
    low, _ = hash_columns([rows.column("id")], SEED)
    expected = bucket_of(low, buckets).tolist()
    found: dict[int, int] = {}
    for piece in cut(cutter(buckets), rows):
        positions = piece.rows.column("at").to_pylist()
        assert positions == sorted(positions)
        for at, row in zip(positions, without_keys(piece.rows).to_pylist(), strict=True):
            assert row == rows.slice(at, 1).to_pylist()[0]
            assert expected[at] == piece.bucket
            found[at] = found.get(at, 0) + 1
    assert found == dict.fromkeys(range(1_000), 1)


def test_the_hashes_and_times_of_a_piece_are_those_of_its_rows():
    (piece,) = cut(cutter(1, event_time="at"), batch([b"a", b"b", b"c"]))
    low, high = hash_columns([pa.array([b"a", b"b", b"c"], pa.binary())], SEED)
    assert [half.tolist() for half in halves(piece.rows)] == [high.tolist(), low.tolist()]
    assert times(piece.rows).tolist() == [0, 1, 2]


def test_rows_without_a_key_travel_apart_from_those_with_one():
    pieces = cut(cutter(1), batch([b"a", None, b"b", None]))
    assert {piece.keyless: piece.rows.column("at").to_pylist() for piece in pieces} == {
        False: [0, 2],
        True: [1, 3],
    }


def test_small_batches_are_joined_and_their_order_is_kept():
    exchanged = list(cutter(1).pieces([batch([b"a"]), batch([b"b"]), batch([])], task=5))
    assert [rows.schema for rows in exchanged] == [SCHEMA]
    (piece,) = opened(exchanged)
    assert piece.rows.column("id").to_pylist() == [b"a", b"b"]
    assert piece.origin == 5 << 32
