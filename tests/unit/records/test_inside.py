"""The records inside a batch: each kind of wrong record is refused, sound ones never."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.hostile_bytes import batch, record, varint

from holdfast.errors import CorruptObject
from holdfast.records.check import RefusalKind, check_produced
from holdfast.records.compression import Codec
from holdfast.records.inside import RECORDS_MAX, check_inside, name_records_out_of_time
from holdfast.records.record import Record, decode_batch, encode_batch

OPTIONAL = st.none() | st.binary(max_size=300)
RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 2**41),
        OPTIONAL,
        OPTIONAL,
        st.lists(st.tuples(st.text(max_size=9), OPTIONAL), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=80,
)


def body_of(*, attributes: int = 0, after: bytes = b"\x00\x00\x01\x02v\x00") -> bytes:
    """One record from its bytes after the attributes."""
    inner = bytes([attributes]) + after
    return varint(len(inner)) + inner


X = record(b"x")
WRONG = {
    "junk": batch(body=b"\x01" * 40, count=3),
    "more records than are there": batch(body=X + record(b"x" * 40, delta=1), count=3),
    "fewer records than are there": batch(body=X + record(b"x", delta=1), count=1),
    "a gap in the offset deltas": batch(body=X + record(b"x", delta=2), count=2),
    "the same offset delta twice": batch(body=X + X, count=2),
    "a first offset delta that is not 0": batch(body=record(b"x", delta=1), count=1),
    "a length that is too short": batch(body=b"\x02" + X[1:], count=1),
    "a length that is too long": batch(body=b"\x7e" + X[1:], count=1),
    "a negative length": batch(body=b"\x01" + X[1:], count=1),
    "a byte after the last record": batch(body=X + b"\x00", count=1),
    "a key that is longer than its record": batch(
        body=body_of(after=b"\x00\x00\x40k\x02v\x00"), count=1
    ),
    "a key of a negative length": batch(body=body_of(after=b"\x00\x00\x03\x02v\x00"), count=1),
    "a value of a negative length": batch(body=body_of(after=b"\x00\x00\x01\x05v\x00"), count=1),
    "a header without a key": batch(body=body_of(after=b"\x00\x00\x01\x01\x02\x01\x01"), count=1),
    "more headers than bytes": batch(body=body_of(after=b"\x00\x00\x01\x01\x40"), count=1),
    "a varint without an end": batch(body=varint(30) + b"\x00" + b"\xff" * 29, count=1),
    "junk that says gzip": batch(body=b"junkjunkjunk", count=1, attributes=1),
    "junk that says snappy": batch(body=b"junkjunkjunk", count=1, attributes=2),
    "junk that says lz4": batch(body=b"junkjunkjunk", count=1, attributes=3),
    "junk that says zstd": batch(body=b"junkjunkjunk", count=1, attributes=4),
}
ALWAYS_REFUSED = (
    "junk",
    "a first offset delta that is not 0",
    "a length that is too short",
    "a length that is too long",
    "a negative length",
    "fewer records than are there",
    "a byte after the last record",
    "a varint without an end",
)
"""Seen by the look at the first record of an uncompressed batch, which every topic has."""


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_record_is_refused(name: str):
    refusal = check_inside(WRONG[name])
    assert refusal is not None
    assert refusal.error is RefusalKind.INVALID_RECORD
    assert refusal.message


@pytest.mark.parametrize("name", WRONG)
def test_the_first_record_of_an_uncompressed_batch_is_looked_at_in_every_topic(name: str):
    is_taken = isinstance(check_produced(WRONG[name], max_batch_bytes=1_000_000), list)
    assert is_taken == (name not in ALWAYS_REFUSED)


@settings(max_examples=150, deadline=None)
@given(RECORDS, st.sampled_from(list(Codec)))
def test_what_our_own_encoder_writes_is_sound(records: list[Record], codec: Codec):
    data = encode_batch(records, codec=codec)
    assert isinstance(check_produced(data, max_batch_bytes=1 << 20), list)
    assert check_inside(data) is None
    keyless = [i for i, each in enumerate(records) if each.key is None]
    refusal = check_inside(data, keys_required=True)
    named = [] if refusal is None else [at for at, _ in refusal.record_errors]
    assert named == keyless


@settings(max_examples=300, deadline=None)
@given(RECORDS, st.data())
def test_what_passes_can_be_read(records: list[Record], data: st.DataObject):
    """Bytes are changed at random: whatever the check lets through, a reader can decode."""
    body = bytearray(encode_batch(records)[61:])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    harmed = batch(body=bytes(body), count=len(records))
    if check_inside(harmed) is None:
        assert len(decode_batch(harmed)) == len(records)
    else:
        with pytest.raises(CorruptObject):
            found = decode_batch(harmed)
            if [each.offset for each in found] != list(range(len(records))):
                raise CorruptObject("a reader takes gaps in the offsets; a producer must not")


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_bomb_is_refused_at_its_bound(codec: Codec):
    data = encode_batch([Record(0, 0, None, bytes(1_000_000))], codec=codec)
    refusal = check_inside(data, uncompressed_bytes_max=10_000)
    assert refusal is not None
    assert "10000" in refusal.message


def test_a_batch_with_more_records_than_can_be_checked_is_refused_unread():
    refusal = check_inside(batch(body=b"never read", count=RECORDS_MAX + 1, attributes=4))
    assert refusal is not None
    assert "send smaller batches" in refusal.message


def test_records_out_of_time_are_named():
    data = encode_batch([Record(0, at, None, b"v") for at in (1_000, 5_000, 2_000, 9_000)])
    found = name_records_out_of_time(data, oldest=1_000, newest=4_000)
    assert [at for at, _ in found] == [1, 3]
    assert name_records_out_of_time(WRONG["junk"], oldest=0, newest=1) == ()
