"""Control batches: the bytes that Kafka's clients know, and nothing else taken for a marker."""

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_python_records
import pytest

from holdfast.errors import CorruptObject
from holdfast.records.batch import parse_header
from holdfast.records.check import BatchRefusal, check_produced
from holdfast.records.control import TransactionMarker, decode_marker, encode_marker
from holdfast.records.record import Record, encode_batch

READERS = [
    aiokafka_records.DefaultRecordBatch,
    aiokafka_records._DefaultRecordBatchPy,
    kafka_python_records.DefaultRecordBatch,
]
COMMIT = TransactionMarker(4_000, 7, True, 3, 1_700_000_000_000)
ABORT = COMMIT._replace(committed=False)


def by_hand(kind: int) -> bytes:
    """The record of a marker after its length: no attributes, deltas 0, key, value, no headers."""
    key = bytes([0, 0, 0, kind])
    value = bytes([0, 0, 0, 0, 0, 3])
    return bytes([0, 0, 0, 8]) + key + bytes([12]) + value + bytes([0])


@pytest.mark.parametrize(("marker", "kind"), [(ABORT, 0), (COMMIT, 1)])
def test_the_record_of_a_marker_is_the_bytes_that_kafka_writes(
    marker: TransactionMarker, kind: int
):
    batch = encode_marker(marker, base_offset=12, leader_epoch=5)
    header = parse_header(batch)
    assert batch[61:] == bytes([2 * len(by_hand(kind))]) + by_hand(kind)
    assert header.attributes == 0x30
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4_000, 7, -1)
    assert (header.base_offset, header.last_offset, header.record_count) == (12, 12, 1)
    assert (header.leader_epoch, header.max_timestamp) == (5, 1_700_000_000_000)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("marker", [ABORT, COMMIT])
def test_clients_read_our_control_batch(reader: type, marker: TransactionMarker):
    read = reader(bytearray(encode_marker(marker, base_offset=12)))
    assert read.validate_crc()
    assert read.is_control_batch
    assert read.is_transactional
    (record,) = list(read)
    assert (record.offset, record.key) == (12, bytes([0, 0, 0, int(marker.committed)]))


@pytest.mark.parametrize("marker", [ABORT, COMMIT])
def test_a_marker_that_was_written_is_read(marker: TransactionMarker):
    assert decode_marker(encode_marker(marker)) == marker


def test_a_control_record_of_another_kind_is_no_marker():
    other = Record(0, 1, bytes([0, 0, 0, 4]), b"\0\0")
    assert decode_marker(encode_batch([other], control=True)) is None


@pytest.mark.parametrize(
    "record",
    [
        Record(0, 1, None, b"\0\0\0\0\0\0"),
        Record(0, 1, b"\0\0", b"\0\0\0\0\0\0"),
        Record(0, 1, b"\0\0\0\1", None),
        Record(0, 1, b"\0\0\0\1", b"\0\0"),
    ],
)
def test_a_marker_that_says_too_little_is_corrupt(record: Record):
    with pytest.raises(CorruptObject):
        decode_marker(encode_batch([record], control=True, transactional=True))


def test_a_batch_of_records_is_no_control_batch():
    with pytest.raises(CorruptObject, match="no control batch"):
        decode_marker(encode_batch([Record(0, 1, b"\0\0\0\1", b"\0\0\0\0\0\0")]))


def test_a_producer_may_not_send_a_marker():
    refused = check_produced(
        memoryview(bytearray(encode_marker(COMMIT))), max_batch_bytes=1_000, zstd_allowed=True
    )
    assert isinstance(refused, BatchRefusal)
    assert "control batch" in refused.message
