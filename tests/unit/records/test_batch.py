"""The header's fields and the walk over whole batches."""

import pytest

from holdfast.errors import CorruptObject
from holdfast.records.batch import HEADER_BYTES, parse_header, walk
from holdfast.records.compression import Codec
from holdfast.records.record import Record, encode_batch


def two_records(**options: object) -> bytes:
    records = [Record(0, 1_000, b"k", b"v"), Record(0, 1_005, None, b"w")]
    return encode_batch(records, **options)  # pyright: ignore[reportArgumentType]


def test_every_field_of_a_header_is_read_back():
    batch = two_records(
        base_offset=7,
        codec=Codec.NONE,
        producer_id=2**40,
        producer_epoch=3,
        base_sequence=11,
        transactional=True,
        leader_epoch=5,
    )
    header = parse_header(b"padding" + batch, 7)
    assert header.base_offset == 7
    assert header.last_offset == 8
    assert header.size_bytes == len(batch)
    assert header.leader_epoch == 5
    assert header.magic == 2
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 1_005)
    assert (header.producer_id, header.producer_epoch) == (2**40, 3)
    assert (header.base_sequence, header.last_sequence) == (11, 12)
    assert header.record_count == 2
    assert header.is_transactional
    assert header.has_producer
    assert not header.is_control
    assert not header.is_log_append_time


@pytest.mark.parametrize("codec", list(Codec))
def test_the_codec_is_in_the_attributes(codec: Codec):
    assert parse_header(two_records(codec=codec)).codec is codec


@pytest.mark.parametrize(
    ("base_sequence", "last_sequence"),
    [(2**31 - 2, 2**31 - 1), (2**31 - 1, 0), (0, 1), (-1, -1)],
)
def test_the_last_sequence_wraps_at_two_to_the_31(base_sequence: int, last_sequence: int):
    header = parse_header(two_records(producer_id=1, producer_epoch=0, base_sequence=base_sequence))
    assert header.last_sequence == last_sequence


@pytest.mark.parametrize("attributes", [5, 6, 7])
def test_an_unknown_codec_is_corrupt(attributes: int):
    header = parse_header(two_records())._replace(attributes=attributes)
    assert header.codec_id == attributes
    with pytest.raises(CorruptObject, match=str(attributes)):
        _ = header.codec


@pytest.mark.parametrize("length", range(HEADER_BYTES))
def test_too_few_bytes_for_a_header_are_corrupt(length: int):
    with pytest.raises(CorruptObject, match="too few"):
        parse_header(two_records()[:length])


def test_a_walk_names_each_batch_and_its_position():
    batches = [two_records(base_offset=offset) for offset in (0, 2, 4)]
    found = list(walk(b"".join(batches)))
    assert [position for position, _ in found] == [0, len(batches[0]), 2 * len(batches[0])]
    assert [header.base_offset for _, header in found] == [0, 2, 4]
    assert list(walk(b"")) == []


def test_a_walk_refuses_a_cut_at_every_byte():
    batch = two_records()
    for length in range(1, len(batch)):
        with pytest.raises(CorruptObject):
            list(walk(batch + batch[:length]))


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 10_000, 2**31 - 1])
def test_a_walk_refuses_a_length_that_cannot_be(length: int):
    batch = bytearray(two_records())
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptObject, match="bytes"):
        list(walk(batch))


def test_a_walk_refuses_another_magic():
    batch = bytearray(two_records())
    batch[16] = 1
    with pytest.raises(CorruptObject, match="magic 1"):
        list(walk(batch))
