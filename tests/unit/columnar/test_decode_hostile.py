"""The compiled decoder and records/record.py say the same of every batch, however damaged."""

import struct

import pyarrow as pa
import pytest
from fastcrc.crc32 import iscsi
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.columnar.decode import decode
from holdfast.errors import CorruptObject
from holdfast.records.batch import COVERED, CRC_START, HEADER_BYTES, PREFIX
from holdfast.records.compression import Codec
from holdfast.records.record import Record, decode_batch, encode_batch
from holdfast.records.stamp import CRC_FIELD_START
from holdfast.records.varint import encode_varint

LIMIT_US = (2**63 - 1) // 1000 * 1000
BOUND = 1 << 20

payloads = st.none() | st.binary(max_size=200)
header_names = st.binary(max_size=8).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
record_lists = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(-1, 2**41),
        payloads,
        payloads,
        st.lists(st.tuples(header_names, payloads), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=12,
)


def sealed(batch: bytearray) -> bytes:
    """The batch with its length and CRC made right again."""
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, CRC_FIELD_START, iscsi(memoryview(batch)[CRC_START:]))
    return bytes(batch)


def framed(body: bytes, *, count: int, last_delta: int | None = None) -> bytes:
    """A batch of these bytes, whatever they are."""
    last = count - 1 if last_delta is None else last_delta
    covered = COVERED.pack(0, last, 1_000, 1_000, -1, -1, -1, count) + body
    return PREFIX.pack(0, 49 + len(body), 0, 2, iscsi(covered)) + covered


def by_columns(batch: bytes) -> list[tuple[object, ...]] | None:
    try:
        found = list(
            decode(
                [batch],
                topic="t",
                partition=0,
                start_offset=0,
                end_offset=2**63 - 1,
                include_headers=True,
                uncompressed_bytes_max=BOUND,
            )
        )
    except CorruptObject as error:
        assert "the batch at offset" in str(error)
        return None
    answer: list[tuple[object, ...]] = []
    for part in found:
        part.validate(full=True)
        times = part.column("timestamp").cast(pa.int64()).to_pylist()
        for row, time in zip(part.drop_columns("timestamp").to_pylist(), times, strict=True):
            headers = tuple((h["key"], h["value"]) for h in row["headers"] or ())
            answer.append((row["offset"], time, row["key"], row["value"], headers))
    return answer


def by_records(batch: bytes) -> list[tuple[object, ...]] | None:
    try:
        found = decode_batch(batch, uncompressed_bytes_max=BOUND)
    except CorruptObject:
        return None
    if batch[22] & 0x20:
        return []
    return [
        (
            record.offset,
            max(-LIMIT_US, min(LIMIT_US, record.timestamp * 1000)),
            record.key,
            record.value,
            tuple(
                (name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), value)
                for name, value in record.headers
            ),
        )
        for record in found
    ]


@given(record_lists, st.sampled_from(list(Codec)), st.none() | st.integers(0, 2**41))
@settings(max_examples=150, deadline=None)
def test_both_decoders_agree_on_what_is_sound(
    records: list[Record], codec: Codec, append_time: int | None
):
    batch = encode_batch(records, base_offset=77, codec=codec, log_append_time_ms=append_time)
    expected = by_records(batch)
    assert expected is not None and len(expected) == len(records)
    assert by_columns(batch) == expected


mutations = st.lists(
    st.tuples(
        st.integers(0, 10_000),
        st.sampled_from([0x00, 0x01, 0x02, 0x7F, 0x80, 0x81, 0xFE, 0xFF]) | st.integers(0, 255),
    ),
    min_size=1,
    max_size=4,
)


@given(record_lists, mutations, st.integers(0, 12), st.binary(max_size=6), st.booleans())
@settings(max_examples=600, deadline=None)
def test_both_decoders_agree_on_what_is_damaged_under_a_right_crc(
    records: list[Record],
    changes: list[tuple[int, int]],
    cut: int,
    more: bytes,
    in_records: bool,
):
    batch = bytearray(encode_batch(records, base_offset=77))
    start = HEADER_BYTES if in_records else CRC_START
    for at, byte in changes:
        batch[start + at % (len(batch) - start)] = byte
    if cut and len(batch) - cut >= HEADER_BYTES:
        del batch[-cut:]
    damaged = sealed(batch + more)
    if damaged[22] & 0x20:
        # A control batch is skipped without a look at its records.
        assert by_columns(damaged) in ([], None)
    else:
        assert by_columns(damaged) == by_records(damaged)


@given(record_lists, mutations, st.sampled_from([Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]))
@settings(max_examples=200, deadline=None)
def test_both_decoders_agree_on_damaged_compressed_bytes(
    records: list[Record], changes: list[tuple[int, int]], codec: Codec
):
    batch = bytearray(encode_batch(records, codec=codec))
    for at, byte in changes:
        batch[HEADER_BYTES + at % (len(batch) - HEADER_BYTES)] = byte
    damaged = sealed(batch)
    assert by_columns(damaged) == by_records(damaged)


@given(st.binary(max_size=64), st.integers(0, 6), st.integers(-2, 6))
@example(b"\x0e" + b"\x00" * 7, 1, 0)
@settings(max_examples=600, deadline=None)
def test_both_decoders_agree_on_arbitrary_bodies(body: bytes, count: int, last_delta: int):
    batch = framed(body, count=count, last_delta=last_delta)
    assert by_columns(batch) == by_records(batch)


def record_bytes(*, timestamp: bytes = b"\x00", delta: bytes = b"\x00", rest: bytes) -> bytes:
    body = b"\x00" + timestamp + delta + rest
    return encode_varint(len(body)) + body


SOUND = b"\x01\x01\x00"
"""A null key, a null value and no headers."""


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (framed(record_bytes(rest=SOUND), count=2), "cannot be in"),
        (framed(record_bytes(rest=SOUND) * 2, count=1), "follow the records"),
        (framed(record_bytes(rest=SOUND) * 2, count=2), "offset delta 0 does not rise"),
        (framed(record_bytes(delta=b"\x02", rest=SOUND), count=1), "past the batch's last"),
        (framed(record_bytes(delta=b"\x01", rest=SOUND), count=1), "offset delta -1"),
        (framed(b"\x01" + bytes(10), count=1), "it says -1 bytes"),
        (framed(b"\x7e" + bytes(10), count=1), "it says 63 bytes"),
        (framed(b"\xff" * 10, count=1), "varint of too many bits"),
        (framed(record_bytes(timestamp=b"\xff" * 11, rest=SOUND), count=1), "too many bits"),
        (framed(record_bytes(timestamp=b"\xff" * 9 + b"\x02", rest=SOUND), count=1), "too many"),
        (framed(record_bytes(rest=b"\x03\x01\x00"), count=1), "a field of it says -2 bytes"),
        (framed(record_bytes(rest=b"\x64\x01\x00"), count=1), "a field of it says 50 bytes"),
        (framed(record_bytes(rest=b"\x01\x01\x01"), count=1), "it says -1 headers"),
        (framed(record_bytes(rest=b"\x01\x01\x7e"), count=1), "it says 63 headers"),
        (framed(record_bytes(rest=b"\x01\x01\x02\x01\x00"), count=1), "has no key"),
        (framed(record_bytes(rest=SOUND + b"\x00"), count=1), "1 bytes follow its headers"),
        (framed(record_bytes(rest=b"\x01\x01") + b"\x00", count=1), "end inside a varint"),
        (framed(b"", count=2**31 - 1, last_delta=2**31 - 1), "2147483647 records"),
        (framed(b"", count=-1), "-1 records"),
    ],
)  # fmt: skip
def test_each_lie_is_named(batch: bytes, reason: str):
    assert by_records(batch) is None
    with pytest.raises(CorruptObject, match=reason) as caught:
        list(decode([batch], topic="t", partition=4, start_offset=0, end_offset=99))
    assert "t-4: the batch at offset 0" in str(caught.value)


def test_a_varint_of_more_bytes_than_it_needs_is_taken_as_it_is():
    batch = framed(record_bytes(timestamp=b"\x82" + b"\x80" * 8 + b"\x00", rest=SOUND), count=1)
    assert by_columns(batch) == by_records(batch)
    assert by_columns(batch) is not None


def test_a_batch_without_records_has_no_rows():
    batch = framed(b"", count=0, last_delta=9)
    assert by_columns(batch) == []


def test_no_row_is_given_out_of_a_batch_whose_last_record_is_corrupt():
    good = encode_batch([Record(0, 5, None, b"v")] * 3)
    damaged = bytearray(encode_batch([Record(0, 5, None, b"v")] * 3, base_offset=3))
    damaged[-1] = 0x7E
    found = decode(
        [good + sealed(damaged)],
        topic="t",
        partition=0,
        start_offset=0,
        end_offset=4,
        rows_per_batch=3,
    )
    assert next(found).column("offset").to_pylist() == [0, 1, 2]
    with pytest.raises(CorruptObject):
        next(found)
