"""Records to bytes and back: strict about every length, and lookups by time."""

import struct

import pytest
from fastcrc.crc32 import iscsi

from holdfast.errors import CallError, CorruptObject
from holdfast.records.batch import HEADER_BYTES, parse_header
from holdfast.records.compression import Codec, compress
from holdfast.records.record import (
    Record,
    decode,
    decode_batch,
    encode_batch,
    encode_empty_batch,
    first_at_or_after,
    max_timestamp_record,
)
from holdfast.records.varint import decode_varint, encode_varint

PLAIN = b"\x00" + bytes(2) + b"\x01\x01\x00"


def batch_around(body: bytes, *, count: int = 1, codec: Codec = Codec.NONE) -> bytes:
    """A batch with a right header and CRC around whatever bytes are handed in."""
    payload = compress(codec, body)
    covered = struct.pack(">hiqqqhii", codec, count - 1, 0, 0, -1, -1, -1, count) + payload
    prefix = struct.pack(">qiibI", 0, 49 + len(payload), -1, 2, iscsi(covered))
    return prefix + covered


def record_around(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


def test_the_plainest_record_is_seven_bytes():
    batch = batch_around(record_around(PLAIN))
    assert len(batch) == HEADER_BYTES + 7
    assert decode_batch(batch) == [Record(0, 0, None, None)]
    assert encode_batch([Record(0, 0, None, None)]) == batch


@pytest.mark.parametrize("codec", list(Codec))
def test_records_come_back_as_they_went_in(codec: Codec):
    records = [
        Record(100, 1_000, b"key", b"value", (("a", b"1"), ("a", None), ("", b""))),
        Record(101, 990, None, b""),
        Record(102, 2**40, b"", None),
    ]
    batch = encode_batch(records, base_offset=100, codec=codec)
    assert decode_batch(batch) == records


def test_decode_goes_through_all_batches_from_a_position():
    batches = [encode_batch([Record(0, 0, None, b"v")], base_offset=n) for n in range(3)]
    offsets = [record.offset for record in decode(b"".join(batches), len(batches[0]))]
    assert offsets == [1, 2]


def test_a_header_key_that_is_not_utf8_survives_both_ways():
    body = PLAIN[:-1] + b"\x02" + record_around(b"\xff\xfe") + record_around(b"v")
    batch = batch_around(record_around(body))
    assert encode_batch(decode_batch(batch)) == batch


def test_a_batch_needs_a_record():
    with pytest.raises(CallError):
        encode_batch([])


def test_a_decode_of_a_cut_batch_is_corrupt_at_every_byte():
    batch = encode_batch([Record(0, 1, b"k", b"v", (("h", b"x"),))])
    for length in range(len(batch)):
        with pytest.raises(CorruptObject):
            decode_batch(batch[:length])


def test_records_cut_at_any_byte_are_corrupt_under_a_right_crc():
    whole = encode_batch([Record(0, 1, b"k", b"v", (("h", b"x"),))] * 2)[HEADER_BYTES:]
    for length in range(len(whole)):
        for codec in Codec:
            with pytest.raises(CorruptObject):
                decode_batch(batch_around(whole[:length], count=2, codec=codec))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\xff" * 40, id="endless varint for the length"),
        pytest.param(record_around(b"\x00" + b"\xff" * 40), id="endless varint for the timestamp"),
        pytest.param(record_around(b"\x00\x00" + b"\xff" * 40), id="endless varint for the offset"),
        pytest.param(
            record_around(b"\x00\x00\x00" + b"\xff" * 40), id="endless varint for the key"
        ),
        pytest.param(b"\xfe\xff\xff\xff\x1f" + PLAIN, id="a length of more than 32 bits"),
        pytest.param(encode_varint(-1) + PLAIN, id="a record of -1 bytes"),
        pytest.param(encode_varint(0), id="a record of 0 bytes"),
        pytest.param(encode_varint(2**31 - 1) + PLAIN, id="a record longer than what is left"),
        pytest.param(record_around(PLAIN + b"\x00"), id="a record longer than its fields"),
        pytest.param(record_around(PLAIN) + b"\x00", id="bytes after the last record"),
        pytest.param(record_around(PLAIN) * 2, id="a record more than the count"),
        pytest.param(record_around(b"\x00\x00\x00\x03\x01\x00"), id="a key of -2 bytes"),
        pytest.param(
            record_around(b"\x00\x00\x00" + encode_varint(2**31 - 1) + b"\x01\x00"),
            id="a key longer than what is left",
        ),
        pytest.param(record_around(PLAIN[:-1] + encode_varint(-1)), id="-1 headers"),
        pytest.param(record_around(PLAIN[:-1] + encode_varint(2**31 - 1)), id="2**31-1 headers"),
        pytest.param(record_around(PLAIN[:-1] + b"\x02\x01\x01"), id="a header without a key"),
        pytest.param(record_around(b"\x00\x00\x02\x01\x01\x00"), id="an offset past the last"),
        pytest.param(record_around(b"\x00\x00\x01\x01\x01\x00"), id="a negative offset delta"),
    ],
)
def test_records_that_do_not_add_up_are_corrupt(body: bytes):
    with pytest.raises(CorruptObject):
        decode_batch(batch_around(body))


def test_two_records_at_one_offset_are_corrupt():
    with pytest.raises(CorruptObject, match="offset delta 0"):
        decode_batch(batch_around(record_around(PLAIN) * 2, count=2))


def test_offsets_with_holes_as_a_compacted_log_has_them_are_read():
    body = record_around(b"\x00\x00\x04\x01\x01\x00")
    batch = bytearray(batch_around(body, count=1))
    struct.pack_into(">i", batch, 23, 5)
    struct.pack_into(">I", batch, 17, iscsi(bytes(batch[21:])))
    assert [record.offset for record in decode_batch(batch)] == [2]


def test_a_batch_with_no_records_left_by_compaction_is_read():
    batch = batch_around(b"", count=0)
    assert decode_batch(batch) == []
    assert max_timestamp_record(batch) == (0, 0)


def test_a_negative_count_is_corrupt():
    with pytest.raises(CorruptObject, match="-5 records"):
        decode_batch(batch_around(b"", count=-5))


def test_a_wrong_crc_is_corrupt():
    batch = bytearray(encode_batch([Record(0, 1, None, b"v")]))
    batch[-2] ^= 1
    with pytest.raises(CorruptObject, match="CRC"):
        decode_batch(batch)


@pytest.mark.parametrize("codec", list(Codec))
def test_decode_keeps_to_the_bound(codec: Codec):
    batch = encode_batch([Record(0, 0, None, bytes(100_000))], codec=codec)
    assert decode_batch(batch, uncompressed_bytes_max=100_100)
    with pytest.raises(CorruptObject, match="100000"):
        decode_batch(batch, uncompressed_bytes_max=100_000)


@pytest.mark.parametrize("codec", list(Codec))
def test_the_first_record_at_or_after_a_time_is_found(codec: Codec):
    records = [Record(0, time, None, b"v") for time in (10, 30, 20, 40)]
    batch = encode_batch(records, base_offset=5, codec=codec)
    assert first_at_or_after(batch, 0) == (5, 10)
    assert first_at_or_after(batch, 10) == (5, 10)
    assert first_at_or_after(batch, 11) == (6, 30)
    assert first_at_or_after(batch, 31) == (8, 40)
    assert first_at_or_after(batch, 41) is None


def test_the_record_with_the_greatest_timestamp_is_the_first_of_its_equals():
    records = [Record(0, time, None, b"v") for time in (10, 30, 20, 30)]
    assert max_timestamp_record(encode_batch(records, base_offset=5)) == (6, 30)
    assert max_timestamp_record(encode_batch(records[:1], base_offset=5)) == (5, 10)


def test_with_log_append_time_the_first_record_stands_for_the_batch():
    records = [Record(0, time, None, b"v") for time in (10, 30)]
    batch = encode_batch(records, base_offset=5, log_append_time_ms=99)
    assert first_at_or_after(batch, 99) == (5, 99)
    assert first_at_or_after(batch, 100) is None
    assert max_timestamp_record(batch) == (5, 99)


@pytest.mark.parametrize("bits", [32, 64])
def test_varints_of_the_greatest_width_are_read_and_one_bit_more_is_not(bits: int):
    for value in (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 0, -1, 63, 64, -64, -65):
        raw = encode_varint(value)
        assert decode_varint(raw, 0, len(raw), bits) == (value, len(raw))
    raw = encode_varint(2 ** (bits - 1))
    with pytest.raises(CorruptObject, match=f"{bits} bits"):
        decode_varint(raw, 0, len(raw), bits)


def test_a_batch_without_records_has_offsets_and_no_time():
    hole = encode_empty_batch(7, 1_000_006, leader_epoch=3)
    header = parse_header(hole)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (7, 1_000_006, 3)
    assert decode_batch(hole) == []
    assert first_at_or_after(hole, 0) is None
