"""Record batches become exactly the rows that Spark's Kafka source would show."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from holdfast.columnar.decode import decode
from holdfast.columnar.schema import SCHEMA, SCHEMA_WITH_HEADERS
from holdfast.errors import CallError, CorruptObject
from holdfast.records.compression import Codec
from holdfast.records.record import Record, encode_batch, encode_empty_batch
from holdfast.records.stamp import stamp

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMMIT_MARKER = b"\x00\x00\x00\x01"
ABORT_MARKER = b"\x00\x00\x00\x00"


def records(count: int, *, size: int = 10) -> list[Record]:
    return [Record(0, 1_000 + i, b"k%d" % i, (b"v%d" % i).ljust(size, b".")) for i in range(count)]


def rows(*buffers: bytes, **options: object) -> list[dict[str, object]]:
    wanted = {"topic": "t", "partition": 3, "start_offset": 0, "end_offset": 2**63 - 1} | options
    found: list[dict[str, object]] = []
    for batch in decode(buffers, **wanted):  # type: ignore[arg-type]
        batch.validate(full=True)
        expected = SCHEMA_WITH_HEADERS if options.get("include_headers") else SCHEMA
        assert batch.schema.equals(expected)
        found.extend(batch.to_pylist())
    return found


def offsets(*buffers: bytes, **options: object) -> list[object]:
    return [row["offset"] for row in rows(*buffers, **options)]


def test_a_batch_without_records_is_gone_past():
    hole = encode_empty_batch(2, 999_999, leader_epoch=1)
    before, after = encode_batch(records(2)), encode_batch(records(1), base_offset=1_000_000)
    assert offsets(before, hole, after) == [0, 1, 1_000_000]
    assert offsets(before + hole + after, start_offset=500) == [1_000_000]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_record_of_each_codec_has_every_column(codec: Codec):
    batch = encode_batch(records(3), base_offset=40, codec=codec)
    assert rows(batch)[1] == {
        "key": b"k1",
        "value": b"v1........",
        "topic": "t",
        "partition": 3,
        "offset": 41,
        "timestamp": EPOCH + timedelta(milliseconds=1_001),
        "timestampType": 0,
    }


def test_null_and_empty_keys_and_values_stay_different():
    batch = encode_batch([Record(0, 5, None, b""), Record(0, 5, b"", None)])
    assert [(row["key"], row["value"]) for row in rows(batch)] == [(None, b""), (b"", None)]


def test_headers_come_in_order_and_a_record_without_any_has_null():
    several = (("a", b"1"), ("a", None), ("", b""))
    batch = encode_batch(
        [
            Record(0, 5, b"k", b"v", several),
            Record(0, 5, b"k", b"v"),
            Record(0, 5, b"", b"", several),
        ]
    )
    expected = [
        {"key": "a", "value": b"1"},
        {"key": "a", "value": None},
        {"key": "", "value": b""},
    ]
    found = [row["headers"] for row in rows(batch, include_headers=True)]
    assert found == [expected, None, expected]


def test_a_header_key_that_is_not_utf8_has_replacement_characters():
    bad = b"caf\xe9".decode("utf-8", "surrogateescape")
    batch = encode_batch([Record(0, 5, b"k", b"v", ((bad, b"1"), ("ok", b"2")))])
    (row,) = rows(batch, include_headers=True)
    assert row["headers"] == [{"key": "caf\ufffd", "value": b"1"}, {"key": "ok", "value": b"2"}]


def test_log_append_time_is_the_time_of_each_record():
    batch = encode_batch(records(2), log_append_time_ms=9_000)
    assert [(row["timestamp"], row["timestampType"]) for row in rows(batch)] == [
        (EPOCH + timedelta(seconds=9), 1)
    ] * 2


def test_no_timestamp_is_the_last_millisecond_of_1969():
    (row,) = rows(encode_batch([Record(0, -1, None, b"v")]))
    assert row["timestamp"] == datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


def test_a_timestamp_that_microseconds_cannot_hold_becomes_the_nearest():
    late = encode_batch([Record(0, 2**63 - 1, None, b"v"), Record(0, 5, None, b"v")])
    early = encode_batch([Record(0, -(2**62), None, b"v")], base_offset=2)
    (found,) = decode([late, early], topic="t", partition=0, start_offset=0, end_offset=9)
    limit = (2**63 - 1) // 1000 * 1000
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [limit, 5_000, -limit]


def test_records_outside_the_wanted_offsets_are_cut():
    stream = b"".join(encode_batch(records(10), base_offset=10 * i) for i in range(4))
    assert offsets(stream, start_offset=15, end_offset=32) == list(range(15, 32))
    assert offsets(stream, start_offset=0, end_offset=0) == []
    assert offsets(stream, start_offset=40, end_offset=50) == []


def test_gaps_that_compaction_left_stay_gaps():
    assert offsets(
        encode_batch(records(2), base_offset=5), encode_batch(records(2), base_offset=100)
    ) == [5, 6, 100, 101]


def test_control_batches_are_no_rows():
    marker = encode_batch(
        [Record(0, 5, COMMIT_MARKER, b"")], base_offset=2, control=True, transactional=True
    )
    stream = encode_batch(records(2)) + marker + encode_batch(records(1), base_offset=3)
    assert offsets(stream) == [0, 1, 3]


def transactions() -> bytes:
    def batch(base_offset: int, producer_id: int, *, transactional: bool = True) -> bytes:
        return encode_batch(
            records(2),
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=transactional,
        )

    def marker(base_offset: int, producer_id: int, key: bytes) -> bytes:
        return encode_batch(
            [Record(0, 5, key, b"")],
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=0,
            transactional=True,
            control=True,
        )

    return b"".join(
        (
            batch(0, 7),
            batch(2, 8),
            batch(4, 9, transactional=False),
            marker(6, 7, ABORT_MARKER),
            batch(7, 7),
            marker(9, 8, COMMIT_MARKER),
            marker(10, 7, COMMIT_MARKER),
            batch(11, 8),
            marker(13, 8, ABORT_MARKER),
        )
    )


def test_records_of_aborted_transactions_are_no_rows_where_they_are_named():
    stream = transactions()
    assert offsets(stream, read_committed_aborted=[(8, 11), (7, 0)]) == [2, 3, 4, 5, 7, 8]
    assert offsets(stream) == [0, 1, 2, 3, 4, 5, 7, 8, 11, 12]
    assert offsets(stream, read_committed_aborted=[]) == offsets(stream)


def test_an_aborted_transaction_goes_on_from_buffer_to_buffer():
    stream = transactions()
    first = len(encode_batch(records(2)))
    assert offsets(stream[:first], stream[first:], read_committed_aborted=[(7, 0), (8, 11)]) == [
        2, 3, 4, 5, 7, 8,
    ]  # fmt: skip


def test_output_batches_have_at_most_the_wanted_rows():
    stream = b"".join(encode_batch(records(30), base_offset=30 * i) for i in range(10))
    found = list(
        decode([stream], topic="t", partition=0, start_offset=0, end_offset=999, rows_per_batch=100)
    )
    assert [batch.num_rows for batch in found] == [90, 90, 90, 30]


def test_one_large_batch_is_split_evenly():
    big = encode_batch(records(1_001), codec=Codec.ZSTD)
    found = list(
        decode([big], topic="t", partition=0, start_offset=0, end_offset=9_999, rows_per_batch=500)
    )
    assert [batch.num_rows for batch in found] == [334, 334, 333]
    assert [offset for batch in found for offset in batch.column("offset").to_pylist()] == list(
        range(1_001)
    )


def test_output_batches_are_split_by_bytes_and_a_longer_record_stands_alone():
    sizes = [40, 40, 300, 40, 40, 40]
    stream = encode_batch([Record(0, 5, None, b"x" * size) for size in sizes])
    found = list(
        decode([stream], topic="t", partition=0, start_offset=0, end_offset=99, bytes_per_batch=100)
    )
    assert [[len(v) for v in batch.column("value").to_pylist()] for batch in found] == [
        [40, 40], [300], [40, 40], [40],
    ]  # fmt: skip


def test_mixed_codecs_in_several_buffers_are_one_stream():
    buffers = [
        bytearray(encode_batch(records(5), base_offset=5 * i, codec=codec))
        for i, codec in enumerate(Codec)
    ]
    found = rows(*buffers)  # type: ignore[arg-type]
    assert [row["offset"] for row in found] == list(range(25))
    assert [row["value"] for row in found] == [record.value for record in records(5)] * 5


@pytest.mark.parametrize("names", [["key"], ["offset", "partition", "topic"], ["value", "headers"]])
def test_wanted_columns_are_those_of_the_whole(names: list[str]):
    batch = encode_batch([Record(0, 5, b"k", b"v", (("a", b"1"),)), *records(3)])
    wanted = {"topic": "t", "partition": 3, "start_offset": 1, "end_offset": 3}
    (whole,) = decode([batch], **wanted, include_headers=True)
    (some,) = decode([batch], **wanted, include_headers=True, columns=names)
    in_order = [name for name in whole.schema.names if name in names]
    assert some.equals(whole.select(in_order))


def test_nothing_in_gives_nothing_out():
    assert rows() == []
    assert rows(b"", b"") == []


def test_a_flipped_bit_under_the_crc_is_corrupt_even_where_it_is_not_wanted():
    batch = bytearray(encode_batch(records(3), base_offset=10))
    batch[-1] ^= 1
    for start_offset in (0, 500):
        with pytest.raises(CorruptObject, match=r"t-3: the batch at offset 10: its CRC"):
            rows(bytes(batch), start_offset=start_offset)


def test_a_batch_that_is_cut_off_is_corrupt():
    batch = encode_batch(records(3))
    for end in (1, 60, 61, len(batch) - 1):
        with pytest.raises(CorruptObject):
            rows(batch[:end])


def test_offsets_that_go_back_from_batch_to_batch_are_corrupt():
    again = encode_batch(records(3), base_offset=10)
    with pytest.raises(CorruptObject, match="the batch before it ends at offset 12"):
        rows(again, again)


def test_an_offset_past_64_bits_is_corrupt():
    batch = bytearray(encode_batch(records(3)))
    stamp(batch, base_offset=2**63 - 2, leader_epoch=0)
    with pytest.raises(CorruptObject):
        rows(bytes(batch))


def test_a_compressed_batch_past_the_bound_is_corrupt():
    bomb = encode_batch([Record(0, 5, None, bytes(1_000_000))], codec=Codec.ZSTD)
    assert len(bomb) < 1_000
    with pytest.raises(CorruptObject, match="the batch at offset 0"):
        rows(bomb, uncompressed_bytes_max=100_000)


def test_a_batch_size_that_no_column_can_hold_is_refused():
    with pytest.raises(CallError, match="bytes_per_batch"):
        rows(bytes_per_batch=2**31)
    with pytest.raises(CallError, match="rows_per_batch"):
        rows(rows_per_batch=0)
