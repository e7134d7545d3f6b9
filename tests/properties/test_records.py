"""Record batches under arbitrary records and arbitrary bytes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import CorruptObject
from holdfast.records.batch import parse_header, walk
from holdfast.records.check import BatchRefusal, check_produced
from holdfast.records.compression import Codec, decompress
from holdfast.records.record import Record, decode, decode_batch, encode_batch, first_at_or_after
from holdfast.records.stamp import stamp
from holdfast.records.varint import decode_varint, encode_varint

octets = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=20), octets), max_size=4).map(tuple)
timestamps = st.integers(0, 2**42)
records = st.lists(
    st.builds(Record, st.just(0), timestamps, octets, octets | st.binary(max_size=5_000), headers),
    min_size=1,
    max_size=20,
)
codecs = st.sampled_from(list(Codec))


def placed(batch: list[Record], base_offset: int) -> list[Record]:
    return [record._replace(offset=base_offset + n) for n, record in enumerate(batch)]


@given(records, codecs, st.integers(0, 2**62), st.integers(-1, 2**31 - 1))
def test_a_batch_that_is_taken_and_stamped_decodes_to_its_records(
    batch: list[Record], codec: Codec, base_offset: int, leader_epoch: int
):
    raw = bytearray(encode_batch(batch, codec=codec))
    answer = check_produced(memoryview(raw), max_batch_bytes=len(raw))
    assert not isinstance(answer, BatchRefusal)
    stamp(raw, base_offset=base_offset, leader_epoch=leader_epoch)
    assert decode_batch(raw) == placed(batch, base_offset)
    header = parse_header(raw)
    assert header.leader_epoch == leader_epoch
    assert header.last_offset == base_offset + len(batch) - 1
    assert header.max_timestamp == max(record.timestamp for record in batch)


@given(st.lists(records, max_size=4), codecs)
def test_batches_back_to_back_are_walked_and_decoded_in_order(
    batches: list[list[Record]], codec: Codec
):
    raw = b"".join(
        encode_batch(batch, base_offset=100 * n, codec=codec) for n, batch in enumerate(batches)
    )
    assert [header.base_offset for _, header in walk(raw)] == [100 * n for n in range(len(batches))]
    expected = [record for n, batch in enumerate(batches) for record in placed(batch, 100 * n)]
    assert list(decode(raw)) == expected


@given(records, codecs, timestamps)
def test_a_lookup_by_time_agrees_with_a_scan(batch: list[Record], codec: Codec, timestamp: int):
    raw = encode_batch(batch, base_offset=9, codec=codec)
    matching = [r for r in placed(batch, 9) if r.timestamp >= timestamp]
    expected = (matching[0].offset, matching[0].timestamp) if matching else None
    assert first_at_or_after(raw, timestamp) == expected


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused_and_never_raise(data: bytes):
    assert isinstance(check_produced(memoryview(data), max_batch_bytes=1_000), BatchRefusal)


@given(records, codecs, st.data())
def test_a_damaged_batch_is_refused_and_never_decodes(
    batch: list[Record], codec: Codec, data: st.DataObject
):
    raw = bytearray(encode_batch(batch, codec=codec))
    position = data.draw(st.integers(16, len(raw) - 1))
    raw[position] ^= data.draw(st.integers(1, 255))
    assert isinstance(check_produced(memoryview(raw), max_batch_bytes=len(raw)), BatchRefusal)
    try:
        decode_batch(raw)
    except CorruptObject:
        return
    raise AssertionError("a damaged batch was decoded")


@given(st.binary(max_size=400), codecs, st.integers(0, 2_000))
@settings(max_examples=300)
def test_decompression_of_anything_ends_within_its_bound(data: bytes, codec: Codec, bound: int):
    try:
        found = decompress(codec, data, uncompressed_bytes_max=bound)
    except CorruptObject:
        return
    assert len(found) <= bound


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=5))
def test_a_varint_is_read_back_and_ends_where_it_should(value: int, rest: bytes):
    raw = encode_varint(value)
    assert len(raw) <= 10
    assert decode_varint(raw + rest, 0, len(raw + rest), 64) == (value, len(raw))
