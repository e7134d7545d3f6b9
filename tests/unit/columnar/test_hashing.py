"""Hashes of columns: equal for equal values, spread evenly, and the same in every process."""

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.columnar.hashing import hash128, hash_columns
from holdfast.errors import CallError

PUBLISHED_KEY = int.from_bytes(bytes(range(16)), "little")
# The 128-bit vectors that come with SipHash: the message of n bytes is 0, 1, ..., n - 1. OpenSSL
# gives the same.
PUBLISHED = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    2: "8177228da4a45dc7fca38bdef60affe4",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    9: "264499060ad9baabc47f8b02bb6d71ed",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
    17: "473d06e8738db89854c066c47ae47740",
    63: "5150d1772f50834a503e069a973fbd7c",
}


def hashes(column: pa.Array, seed: int = 0) -> list[tuple[int, int]]:
    low, high = hash128(column, seed)
    assert low.dtype == high.dtype == np.uint64
    return list(zip(low.tolist(), high.tolist(), strict=True))


def test_the_hash_is_siphash_as_published():
    messages = [bytes(range(size)) for size in PUBLISHED]
    low, high = hash128(pa.array(messages), PUBLISHED_KEY)
    found = [
        int(a).to_bytes(8, "little").hex() + int(b).to_bytes(8, "little").hex()
        for a, b in zip(low, high, strict=True)
    ]
    assert found == list(PUBLISHED.values())


values = st.none() | st.binary(max_size=40)


@given(st.lists(values, max_size=40), st.integers(0, 45), st.integers(0, 45))
@settings(max_examples=200, deadline=None)
def test_rows_are_equal_exactly_where_their_values_are_in_any_slice_and_width(
    rows: list[bytes | None], start: int, length: int
):
    column = pa.array(rows, pa.binary())
    found = hashes(column)
    by_value = dict(zip(rows, found, strict=True))
    assert [by_value[row] for row in rows] == found
    assert len(set(by_value.values())) == len(by_value)
    assert hashes(column.slice(start, length)) == found[start : start + length]
    assert hashes(column.cast(pa.large_binary()).slice(start, length)) == found[start:][:length]
    assert hashes(column.dictionary_encode()) == found
    assert hashes(pa.chunked_array([column.slice(0, 3), column.slice(3)])) == found


def test_text_and_bytes_of_every_width_are_the_same():
    rows = ["", "a", "é" * 9, None]
    kinds = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view()]
    assert len({tuple(hashes(pa.array(rows, pa.string()).cast(kind))) for kind in kinds}) == 1


def test_whole_numbers_of_every_width_are_the_same():
    kinds = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
    signed = {tuple(hashes(pa.array([0, 1, -1, None, 100], kind))) for kind in kinds}
    assert len(signed) == 1
    unsigned = [pa.uint8(), pa.uint32(), pa.uint64(), pa.int64()]
    assert len({tuple(hashes(pa.array([0, 1, None, 100], kind))) for kind in unsigned}) == 1


@pytest.mark.parametrize(
    "column",
    [
        pa.array([True, None, False, True, False] * 3),
        pa.array([b"ab", None, b"cd", b"ab"], pa.binary(2)),
        pa.array([datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("us", tz="UTC")),
        pa.array([date(2026, 1, 1), None, date(2026, 1, 2)], pa.date32()),
        pa.array([timedelta(seconds=1), timedelta(seconds=2)], pa.duration("ms")),
        pa.array([Decimal("1.50"), Decimal("2.50"), None], pa.decimal128(9, 2)),
        pa.array([1, None, 3, 3], pa.int16()),
        pa.nulls(3),
    ],
    ids=lambda column: str(column.type),
)
def test_columns_of_other_types_are_equal_exactly_where_their_values_are(column: pa.Array):
    rows = column.to_pylist()
    found = hashes(column)
    by_value = dict(zip(rows, found, strict=True))
    assert [by_value[row] for row in rows] == found
    assert len(set(by_value.values())) == len(by_value)
    assert hashes(column.slice(1)) == found[1:]


def test_a_null_is_not_the_empty_value_and_is_the_same_in_every_type():
    null, empty = hashes(pa.array([None, b""], pa.binary()))
    assert null != empty
    assert hashes(pa.array([None], pa.int64())) == hashes(pa.nulls(1)) == [null]


def test_an_empty_column_has_no_hashes():
    assert hashes(pa.array([], pa.binary())) == []
    assert hashes(pa.array([], pa.int32())) == []


def test_another_seed_gives_other_hashes():
    column = pa.array([b"a", b"b", None])
    seeds = [0, 1, 1 << 64, (1 << 128) - 1]
    assert len({each for seed in seeds for each in hashes(column, seed)}) == 12


def test_floats_nested_columns_and_seeds_out_of_range_are_refused():
    for column in (pa.array([1.5]), pa.array([[1]])):
        with pytest.raises(CallError, match="cannot be a key"):
            hash128(column)
    with pytest.raises(CallError, match="128 bits"):
        hash128(pa.array([b""]), 1 << 128)


pairs = st.lists(st.tuples(values, values), min_size=1, max_size=30)


@given(pairs)
@settings(max_examples=100, deadline=None)
def test_several_columns_are_equal_exactly_where_all_their_values_are(
    rows: list[tuple[bytes | None, bytes | None]],
):
    columns = [pa.array([row[i] for row in rows], pa.binary()) for i in (0, 1)]
    low, high = hash_columns(columns)
    found = list(zip(low.tolist(), high.tolist(), strict=True))
    by_value = dict(zip(rows, found, strict=True))
    assert [by_value[row] for row in rows] == found
    assert len(set(by_value.values())) == len(by_value)


def test_where_one_column_ends_and_the_next_begins_matters():
    left = pa.array([b"a", b"ab", b"", b"abc", None])
    right = pa.array([b"bc", b"c", b"abc", b"", b"abc"])
    assert len(set(hash_columns([left, right])[0].tolist())) == 5
    assert hash_columns([left, right])[0].tolist() != hash_columns([right, left])[0].tolist()
    assert hash_columns([left])[0].tolist() != hash_columns([left, left])[0].tolist()


def test_columns_that_cannot_be_one_key_are_refused():
    with pytest.raises(CallError, match="at least one"):
        hash_columns([])
    with pytest.raises(CallError, match="rows"):
        hash_columns([pa.array([1]), pa.array([1, 2])])


def short_keys(count: int) -> pa.Array:
    """The numbers below count in eight bytes each, as binary."""
    data = np.arange(count, dtype="<u8").tobytes()
    offsets = np.arange(count + 1, dtype=np.int32) * 8
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def test_five_million_short_keys_have_no_collision():
    low, high = hash128(short_keys(5_000_000))
    order = np.argsort(low)
    same = np.flatnonzero(np.diff(low[order]) == 0)
    assert not np.any(high[order][same] == high[order][same + 1])
    # By chance alone, 2**-64 of all 1.25e13 pairs share a half: none.
    assert len(same) == 0


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("buckets", [16, 1_000, 4_096])
def test_keys_fall_evenly_into_buckets(half: int, buckets: int):
    count = 400_000
    words = hash128(short_keys(count))[half]
    for part in (words % np.uint64(buckets), (words >> np.uint64(40)) % np.uint64(buckets)):
        filled = np.bincount(part.astype(np.int64), minlength=buckets)
        expected = count / buckets
        chi_squared = float(((filled - expected) ** 2 / expected).sum())
        # Seven standard deviations around the mean of the distribution: buckets - 1.
        assert abs(chi_squared - (buckets - 1)) < 7 * (2 * (buckets - 1)) ** 0.5


def test_each_bit_of_the_key_changes_half_of_the_hash():
    rng = np.random.default_rng(7)
    keys = rng.integers(0, 2**63, size=2_000, dtype=np.int64)
    before = hash128(pa.array(keys))
    for bit in (0, 1, 31, 62):
        after = hash128(pa.array(keys ^ (1 << bit)))
        changed = sum(
            int(np.bitwise_count(a ^ b).sum()) for a, b in zip(before, after, strict=True)
        )
        assert 0.49 < changed / (128 * len(keys)) < 0.51


def test_the_hash_is_the_same_in_another_process():
    program = (
        "import pyarrow as pa; from holdfast.columnar.hashing import hash128;"
        "print([x.tolist() for x in hash128(pa.array(['a', None, 'order-17']), 99)])"
    )
    other = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    ).stdout.strip()
    assert other == str([x.tolist() for x in hash128(pa.array(["a", None, "order-17"]), 99)])
