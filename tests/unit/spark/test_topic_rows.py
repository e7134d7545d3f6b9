"""Rows to record batches: which partition each goes to, and what is in the batch."""

import pickle
from typing import Any

import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2

from holdfast.columnar.murmur2 import key_hashes
from holdfast.errors import CallError
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.records.batch import parse_header
from holdfast.records.compression import Codec
from holdfast.records.record import decode_batch
from holdfast.spark.topic.rows import RowEncoder, Staged

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def encoded(name: str | None = "out", *, first: int = 0, partitions: int = 3, **columns: Any):
    encoder = RowEncoder(
        topic=name,
        codec=Codec.LZ4,
        partitions_of=lambda _: partitions,
        now_ms=lambda: 1_000,
        first=first,
        batch_bytes_max=100,
    )
    encoder.add(pa.RecordBatch.from_pydict(columns))
    return encoder.finish()


def values(staged: list[Staged]) -> dict[TopicPartition, list[bytes | None]]:
    found: dict[TopicPartition, list[bytes | None]] = {}
    for one in staged:
        records = decode_batch(one.batch)
        assert len(records) == one.records == parse_header(one.batch).record_count
        found.setdefault(one.where, []).extend(record.value for record in records)
    return found


def test_a_key_goes_to_the_partition_that_kafkas_own_partitioner_gives_it():
    keys = [bytes([i % 251]) * (i % 17) for i in range(300)]
    expected = [murmur2(key) & 0x7FFFFFFF for key in keys]
    assert key_hashes(pa.array(keys)).tolist() == expected
    assert key_hashes(pa.array(keys)[5:]).tolist() == expected[5:]
    found = values(encoded(partitions=5, key=[b"a", b"b", b"a"], value=["1", "2", "3"]))
    a, b = (murmur2(key) & 0x7FFFFFFF for key in (b"a", b"b"))
    assert found[TopicPartition("out", a % 5)][0] == b"1"
    assert b"3" in found[TopicPartition("out", a % 5)]
    assert b"2" in found[TopicPartition("out", b % 5)]


def test_rows_without_a_key_stay_in_one_partition_until_a_batch_of_it_is_full():
    staged = encoded(first=1, value=[b"x" * 20] * 7)
    assert [(one.where.partition, one.records) for one in staged] == [(1, 3), (2, 3), (0, 1)]


def test_a_record_that_is_larger_than_a_batch_goes_alone():
    staged = encoded(first=1, value=[b"x", b"y" * 200, b"z"])
    assert [(one.where.partition, one.records) for one in staged] == [(1, 1), (1, 1), (2, 1)]


def test_a_column_says_the_partition_and_another_the_topic():
    found = values(
        encoded(
            None,
            topic=["a", "b", "a"],
            partition=pa.array([2, 0, None], pa.int32()),
            key=["k", None, None],
            value=[b"1", b"2", None],
        )
    )
    assert found[TopicPartition("a", 2)] == [b"1"]
    assert found[TopicPartition("b", 0)] == [b"2"]
    assert found[TopicPartition("a", 0)] == [None]


def test_headers_and_keys_are_in_the_record():
    headers = pa.array([[{"key": "h", "value": b"1"}, {"key": "g", "value": None}], None], HEADERS)
    staged = encoded(key=[b"k", None], value=["v", "w"], headers=headers)
    records = [record for one in staged for record in decode_batch(one.batch)]
    assert {(r.key, r.value, r.headers) for r in records} == {
        (b"k", b"v", (("h", b"1"), ("g", None))),
        (None, b"w", ()),
    }


def test_a_row_for_no_partition_or_no_topic_is_refused_with_its_number():
    with pytest.raises(CallError, match="partition 3 of topic 'out', which has 3"):
        encoded(partition=pa.array([3], pa.int32()), value=[b""])
    with pytest.raises(CallError, match="a row has no topic"):
        encoded(None, topic=[""], value=[b""])


def test_what_a_task_hands_over_survives_pickling():
    staged = encoded(value=["1"])
    assert pickle.loads(pickle.dumps(staged)) == staged
