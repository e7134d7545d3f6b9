"""Our batches beside those of kafka-python and aiokafka: the same bytes, read both ways."""

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_python_records
import pytest

from holdfast.records.batch import parse_header
from holdfast.records.check import check_produced
from holdfast.records.compression import Codec
from holdfast.records.record import Record, decode_batch, encode_batch

AIOKAFKA_BUILDERS = [
    aiokafka_records.DefaultRecordBatchBuilder,
    aiokafka_records._DefaultRecordBatchBuilderPy,
]
BUILDERS = [*AIOKAFKA_BUILDERS, kafka_python_records.DefaultRecordBatchBuilder]
READERS = [
    aiokafka_records.DefaultRecordBatch,
    aiokafka_records._DefaultRecordBatchPy,
    kafka_python_records.DefaultRecordBatch,
]
KAFKA_PYTHON_CODECS = {Codec.NONE, Codec.GZIP}
"""The others need optional packages that we do not ask for; aiokafka covers them."""
SAME_LIBRARY_AND_LEVEL = [Codec.NONE, Codec.SNAPPY, Codec.ZSTD]
"""gzip writes the time of day, and lz4 is at another level here."""

RECORDS = [
    Record(
        offset,
        1_700_000_000_000 + offset * 7 % 31,
        None if offset % 3 == 0 else b"key-%d" % offset,
        None if offset % 5 == 4 else b"value " * (offset % 40),
        () if offset % 4 else (("trace", b"id-%d" % offset), ("null", None)),
    )
    for offset in range(300)
]
PRODUCER = {"producer_id": 4_000, "producer_epoch": 2, "base_sequence": 70}


def peer_batch(builder_type: type, codec: Codec, *, transactional: bool) -> bytes:
    builder = builder_type(
        magic=2,
        compression_type=int(codec),
        is_transactional=transactional,
        batch_size=1_000_000,
        **PRODUCER,
    )
    for record in RECORDS:
        builder.append(
            record.offset,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
    return bytes(builder.build())


def pairs(peers: list[type], codecs: list[Codec]) -> list[tuple[type, Codec]]:
    return [
        (peer, codec)
        for peer in peers
        for codec in codecs
        if codec in KAFKA_PYTHON_CODECS or not peer.__module__.startswith("kafka.")
    ]


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize(("builder_type", "codec"), pairs(BUILDERS, SAME_LIBRARY_AND_LEVEL))
def test_the_bytes_are_those_of_the_peer(builder_type: type, codec: Codec, transactional: bool):
    theirs = peer_batch(builder_type, codec, transactional=transactional)
    ours = encode_batch(
        RECORDS,
        codec=codec,
        transactional=transactional,
        leader_epoch=parse_header(theirs).leader_epoch,
        **PRODUCER,
    )
    assert ours == theirs


@pytest.mark.parametrize(("builder_type", "codec"), pairs(BUILDERS, list(Codec)))
def test_we_read_and_take_what_the_peer_builds(builder_type: type, codec: Codec):
    theirs = peer_batch(builder_type, codec, transactional=True)
    assert decode_batch(theirs) == RECORDS
    answer = check_produced(memoryview(theirs), max_batch_bytes=1_000_000)
    assert answer == [parse_header(theirs)]
    assert parse_header(theirs).codec is codec


@pytest.mark.parametrize(("reader_type", "codec"), pairs(READERS, list(Codec)))
def test_the_peer_reads_what_we_build(reader_type: type, codec: Codec):
    batch = encode_batch(RECORDS, codec=codec, **PRODUCER)
    theirs = reader_type(bytearray(batch))
    assert theirs.validate_crc()
    found = [
        Record(row.offset, row.timestamp, row.key, row.value, tuple(map(tuple, row.headers)))
        for row in theirs
    ]
    assert found == RECORDS
