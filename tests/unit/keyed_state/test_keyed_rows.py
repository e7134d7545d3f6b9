"""Keyed runs, aggregates and timers, case by case."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import CallError, CorruptObject
from holdfast.keyed_state.aggregates import Aggregate, AggregateSettings, Function, aggregate
from holdfast.keyed_state.dedup import LatePolicy
from holdfast.keyed_state.keyed_rows import (
    KeyedBucket,
    KeyedRun,
    decode_keyed_run,
    encode_keyed_run,
    overlay,
    tombstones,
)
from holdfast.keyed_state.pinned import TIME_MAX, TIME_MIN, run_name
from holdfast.keyed_state.timers import TimerSettings, fire_timers

NAME = run_name("orders", 0, 1, "a1")


def rows(*pairs: tuple[int, str], time: int = 0) -> KeyedRun:
    keys = np.array([key for key, _ in pairs], np.uint64)
    return KeyedRun(
        high=keys,
        low=keys,
        time=np.full(keys.size, time, np.int64),
        deleted=np.zeros(keys.size, np.bool_),
        columns=pa.table({"v": [value for _, value in pairs]}),
    )


def values(run: KeyedRun) -> dict[int, str | None]:
    return dict(zip(run.low.tolist(), run.columns.column("v").to_pylist(), strict=True))


def test_a_keyed_run_comes_back_as_it_was_written():
    run = overlay(
        [rows((1, "a"), (3, "c"), time=7), tombstones(rows((2, "b")))],
        horizon_ms=TIME_MIN,
        all_of_them=False,
    )
    info, body = encode_keyed_run(run, name=NAME, hash_seed=1)
    back = decode_keyed_run(b"".join(body), info=info, hash_seed=1)
    assert values(back) == {1: "a", 2: None, 3: "c"}
    assert back.deleted.tolist() == [False, True, False]
    assert (info.time_min_ms, info.time_max_ms) == (7, 7)


def test_a_run_of_tombstones_only_never_looks_due():
    info, _ = encode_keyed_run(tombstones(rows((1, "a"))), name=NAME, hash_seed=1)
    assert info.time_min_ms == TIME_MAX


def test_every_flipped_byte_of_a_keyed_run_is_detected():
    info, body = encode_keyed_run(rows((1, "a"), (2, "b")), name=NAME, hash_seed=1)
    data = b"".join(body)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptObject, match=NAME):
            decode_keyed_run(bytes(damaged), info=info, hash_seed=1)


def test_a_later_run_replaces_rows_of_an_earlier_one():
    runs = [rows((1, "old"), (2, "old")), rows((2, "mid"), (3, "mid")), rows((3, "new"))]
    assert values(overlay(runs, horizon_ms=TIME_MIN, all_of_them=True)) == {
        1: "old",
        2: "mid",
        3: "new",
    }


def test_a_tombstone_hides_older_rows_and_goes_only_with_the_oldest_run():
    older, gone = rows((1, "old"), (2, "old")), tombstones(rows((1, "")))
    partial = overlay([gone, rows((5, "x"))], horizon_ms=TIME_MIN, all_of_them=False)
    assert partial.deleted.tolist() == [True, False]
    assert values(overlay([older, partial], horizon_ms=TIME_MIN, all_of_them=True)) == {
        2: "old",
        5: "x",
    }
    assert KeyedBucket.load([older, gone, rows((1, "back"))]).newest is not None


def one(function: Function, column: pa.Array, **more: object) -> list[object]:
    """The aggregate of one key over two micro-batches: the values of the first half, then all."""
    settings = AggregateSettings(
        key_columns=("id",),
        aggregates=(Aggregate(name="x", function=function, column="v"),),
        **more,  # pyright: ignore[reportArgumentType]
    )
    bucket = KeyedBucket()
    out: list[object] = []
    for part in (column[: len(column) // 2], column[len(column) // 2 :]):
        ones = np.ones(len(part), np.uint64)
        table = pa.table({"id": pa.array(["k"] * len(part)), "v": part})
        done = aggregate(
            bucket,
            (ones, ones),
            np.zeros(len(part), np.int64),
            table,
            settings=settings,
            watermark_ms=None,
        )
        assert done.output is not None
        assert done.updated is not None
        out += done.output.columns.column("x").to_pylist()
        bucket = KeyedBucket.load([*bucket.runs, done.updated])
    return out


def test_a_sum_that_leaves_64_bits_is_an_error_and_never_a_wrong_number():
    big = 2**62
    assert one(Function.SUM, pa.array([big, big, -big, -big - 5][::-1] + [0, 0]))[-1] == -5
    with pytest.raises(CallError, match="'x': a sum of 'v' does not fit"):
        one(Function.SUM, pa.array([big, big, 0, 0]))
    with pytest.raises(CallError, match="does not fit"):
        one(Function.SUM, pa.array([big, big]))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, 2, 3, 4], pa.int8()), [3, 10]),
        (pa.array([1, 2, 3, 4], pa.uint64()), [3, 10]),
        (pa.array([0.5, 0.25, 1.0, None]), [0.75, 1.75]),
        (pa.array([None, None, 1, None], pa.int32()), [None, 1]),
        (
            pa.array([Decimal("1.5"), Decimal("2"), Decimal("3"), None], pa.decimal128(38, 2)),
            [Decimal("3.50"), Decimal("6.50")],
        ),
    ],
    ids=str,
)
def test_sums_of_all_kinds_of_numbers(column: pa.Array, expected: list[object]):
    assert one(Function.SUM, column) == expected


@pytest.mark.parametrize(
    ("function", "expected"),
    [(Function.MIN, [False, False]), (Function.MAX, [False, True])],
)
def test_min_and_max_of_booleans(function: Function, expected: list[bool]):
    assert one(function, pa.array([False, False, True, None])) == expected


def test_first_and_last_take_the_record_as_it_is_null_or_nested():
    nested = pa.array([None, {"a": 1}, {"a": 2}, None])
    assert one(Function.FIRST, nested) == [None, None]
    assert one(Function.LAST, nested) == [{"a": 1}, None]


def test_late_records_of_an_aggregate_are_counted_and_can_be_diverted():
    settings = AggregateSettings(
        key_columns=("v",),
        aggregates=(Aggregate(name="n", function=Function.COUNT),),
        idle_ms=10,
        late=LatePolicy.DIVERT,
    )
    keys = np.array([1, 2], np.uint64)
    done = aggregate(
        KeyedBucket(),
        (keys, keys),
        np.array([89, 90], np.int64),
        pa.table({"v": ["late", "in time"]}),
        settings=settings,
        watermark_ms=100,
    )
    assert done.late.tolist() == done.diverted.tolist() == [True, False]
    assert done.output is not None
    assert done.output.columns.to_pylist() == [{"v": "in time", "n": 1}]


def test_a_missing_column_and_a_missing_row_are_refused():
    settings = TimerSettings(key_columns=("id",), after_ms=1)
    keys = np.array([1], np.uint64)
    with pytest.raises(CallError, match="no column 'id'"):
        fire_timers(KeyedBucket(), (keys, keys), pa.table({"x": [1]}), settings=settings, now_ms=0)
    with pytest.raises(CallError, match="2 rows and 1 hashes"):
        fire_timers(
            KeyedBucket(), (keys, keys), pa.table({"id": [1, 2]}), settings=settings, now_ms=0
        )


def test_settings_that_cannot_be_are_refused():
    count = Aggregate(name="n", function=Function.COUNT)
    with pytest.raises(CallError, match="needs a column"):
        Aggregate(name="s", function=Function.SUM)
    with pytest.raises(CallError, match="names must differ"):
        AggregateSettings(key_columns=("n",), aggregates=(count,))
    with pytest.raises(CallError, match="after_ms"):
        TimerSettings(key_columns=("id",), after_ms=0)
