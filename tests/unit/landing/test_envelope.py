"""Envelopes from columns: byte for byte what the encoder of single records writes."""

import json
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.landing import batch, batch_of, row
from tests.unit.landing import old_envelope

from holdfast.landing.formats import envelope
from holdfast.landing.formats.envelope import envelopes, opened

BYTES = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.text(max_size=30).map(str.encode),
    st.lists(st.sampled_from(list('"\\\n\r\t\b\f\x00\x1f\x7f/aé€𝄞'))).map(
        lambda parts: "".join(parts).encode()
    ),
)
HEADERS = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=5), "value": BYTES}), max_size=3
)


def lines_of(records: pa.RecordBatch) -> list[bytes]:
    whole = b"".join(envelopes(records))
    lines = whole.split(b"\n")
    assert lines.pop() == b""
    return lines


@settings(max_examples=300, deadline=None)
@given(rows=st.lists(st.tuples(BYTES, BYTES, HEADERS), min_size=1, max_size=6))
def test_envelopes_are_those_of_the_encoder_of_single_records(rows: list[tuple[Any, Any, Any]]):
    records = batch(
        row(offset, key=key, value=value, headers=headers)
        for offset, (key, value, headers) in enumerate(rows)
    )
    assert lines_of(records) == old_envelope.lines(records)
    back = opened(lines_of(records)).to_pylist()
    assert back == [r | {"headers": r["headers"] or []} for r in records.to_pylist()]


@given(numbers=st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), min_size=1, max_size=5))
def test_numbers_are_written_to_their_last_digit(numbers: list[int | None]):
    records = pa.RecordBatch.from_pylist(
        [{"offset": number} for number in numbers], schema=pa.schema([("offset", pa.int64())])
    )
    assert [json.loads(line)["offset"] for line in lines_of(records)] == numbers


def test_a_slice_is_written_by_its_own_rows():
    records = batch(
        row(n, value=bytes([n]), headers=[{"key": f"h{i}", "value": b"\xff"} for i in range(n)])
        for n in range(10)
    )
    part = records.slice(3, 4)
    assert lines_of(part) == old_envelope.lines(records)[3:7]
    assert list(envelopes(records.slice(2, 0))) == []


def test_rows_larger_than_a_piece_are_written_whole():
    large = b"\x01" * (envelope.PIECE_BYTES // 2)
    records = batch([row(0), row(1, value=large), row(2, key=large, value=large + b"\xff"), row(3)])
    assert lines_of(records) == old_envelope.lines(records)


def test_many_rows_come_in_pieces_of_whole_lines():
    records = batch_of(range(20_000))
    pieces = list(envelopes(records))
    assert len(pieces) > 1
    assert all(piece.endswith(b"}\n") for piece in pieces)
    assert lines_of(records) == old_envelope.lines(records)


def test_a_column_without_type_is_null():
    records = pa.RecordBatch.from_arrays([pa.nulls(2), pa.array([1, 2])], names=["key", "offset"])
    assert lines_of(records) == [b'{"key":null,"offset":1}', b'{"key":null,"offset":2}']
