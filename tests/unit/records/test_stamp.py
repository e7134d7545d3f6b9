"""What the leader writes into a batch, and that nothing else changes."""

import pytest

from holdfast.errors import CallError
from holdfast.records.batch import parse_header
from holdfast.records.compression import Codec
from holdfast.records.record import Record, decode_batch, encode_batch
from holdfast.records.stamp import stamp, stamp_log_append_time, stamp_producer

RECORDS = [Record(0, 1_000, b"k", b"v"), Record(0, 1_001, None, b"w")]


def test_stamping_changes_the_offset_and_leader_epoch_and_no_other_byte():
    batch = bytearray(encode_batch(RECORDS))
    before = bytes(batch)
    stamp(memoryview(batch), base_offset=2**40, leader_epoch=17)
    header = parse_header(batch)
    assert (header.base_offset, header.leader_epoch) == (2**40, 17)
    assert batch[8:12] == before[8:12]
    assert batch[16:] == before[16:]
    assert [record.offset for record in decode_batch(batch)] == [2**40, 2**40 + 1]


@pytest.mark.parametrize("codec", list(Codec))
def test_log_append_time_becomes_the_time_of_every_record_and_the_crc_holds(codec: Codec):
    batch = bytearray(encode_batch(RECORDS, codec=codec))
    stamp_log_append_time(memoryview(batch), now_ms=5_000)
    header = parse_header(batch)
    assert header.is_log_append_time
    assert header.codec is codec
    assert header.max_timestamp == 5_000
    assert header.base_timestamp == 1_000
    assert [record.timestamp for record in decode_batch(batch)] == [5_000, 5_000]
    assert batch == encode_batch(RECORDS, codec=codec, log_append_time_ms=5_000)


def test_log_append_time_stops_at_the_end_of_the_first_batch():
    batch = encode_batch(RECORDS)
    both = bytearray(batch + batch)
    stamp_log_append_time(memoryview(both), now_ms=5_000)
    assert bytes(both[len(batch) :]) == batch
    assert decode_batch(both[: len(batch)])


def test_a_cut_batch_is_not_stamped():
    batch = bytearray(encode_batch(RECORDS)[:-1])
    before = bytes(batch)
    with pytest.raises(CallError, match="buffer"):
        stamp_log_append_time(batch, now_ms=5_000)
    assert bytes(batch) == before


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_producer_is_stamped_into_a_batch_that_had_none_and_again_into_one_that_has(codec: Codec):
    records = [Record(i, 1_000 + i, b"k", b"v") for i in range(3)]
    batch = bytearray(encode_batch(records, codec=codec))
    for producer_id, epoch, sequence in ((7, 2, 0), (8, 3, 2**31 - 1)):
        stamp_producer(batch, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        header = parse_header(batch)
        assert (header.producer_id, header.producer_epoch) == (producer_id, epoch)
        assert (header.base_sequence, header.is_transactional) == (sequence, True)
        assert header.codec is codec
        assert decode_batch(batch) == records
    with pytest.raises(CallError):
        stamp_producer(batch[:-1], producer_id=7, producer_epoch=0, base_sequence=0)
