"""The same bad batches to our check and to Apache Kafka: the same error, or a named deviation."""

import asyncio
import struct

import pytest
from fastcrc.crc32 import iscsi
from tests.peers.kafka import KafkaBroker

from holdfast.client import admin
from holdfast.client.cluster import Cluster
from holdfast.environment import SystemEnvironment
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from holdfast.records.check import BatchRefusal, RefusalKind, check_produced
from holdfast.records.compression import Codec
from holdfast.records.inside import check_inside
from holdfast.records.record import Record, encode_batch

pytestmark = pytest.mark.peer

LIMIT = 1_000
TWO = [Record(0, 1_000, b"k", b"v"), Record(0, 1_001, None, b"w")]
GOOD = encode_batch(TWO)
ATTRIBUTES, LAST_DELTA, PRODUCER_ID, PRODUCER_EPOCH, SEQUENCE, COUNT = 21, 23, 43, 51, 53, 57


def changed(batch: bytes, *fields: tuple[int, str, int]) -> bytes:
    out = bytearray(batch)
    for position, layout, value in fields:
        struct.pack_into(layout, out, position, value)
    struct.pack_into(">I", out, 17, iscsi(bytes(out[21:])))
    return bytes(out)


def raw(batch: bytes, position: int, layout: str, value: int) -> bytes:
    out = bytearray(batch)
    struct.pack_into(layout, out, position, value)
    return bytes(out)


SAME: dict[str, bytes] = {
    "a sound batch": GOOD,
    **{f"a sound batch, {codec.name}": encode_batch(TWO, codec=codec) for codec in Codec},
    "a leader epoch of a producer": raw(GOOD, 12, ">i", 77),
    "empty": b"",
    "16 bytes": GOOD[:16],
    "60 bytes": GOOD[:60],
    "a byte short": GOOD[:-1],
    "two batches": GOOD + GOOD,
    "magic 0": raw(GOOD, 16, ">b", 0),
    "magic 1": raw(GOOD, 16, ">b", 1),
    "magic 3": raw(GOOD, 16, ">b", 3),
    "magic -1": raw(GOOD, 16, ">b", -1),
    "length 0": raw(GOOD, 8, ">i", 0),
    "length -1": raw(GOOD, 8, ">i", -1),
    "length 40": raw(GOOD, 8, ">i", 40),
    "length 13": raw(GOOD, 8, ">i", 13),
    "length past the end": raw(GOOD, 8, ">i", len(GOOD)),
    "wrong CRC": raw(GOOD, 17, ">I", 1),
    "base offset 1": raw(GOOD, 0, ">q", 1),
    "base offset -1": raw(GOOD, 0, ">q", -1),
    "too large": encode_batch([Record(0, 1_000, None, bytes(LIMIT))]),
    "control": encode_batch(TWO, control=True),
    "count 0": changed(GOOD, (COUNT, ">i", 0), (LAST_DELTA, ">i", -1)),
    "count -1": changed(GOOD, (COUNT, ">i", -1)),
    "count 3 of 2": changed(GOOD, (COUNT, ">i", 3)),
    "last delta 0 of 2": changed(GOOD, (LAST_DELTA, ">i", 0)),
    "a count that the bytes cannot hold": changed(
        GOOD, (COUNT, ">i", 2**31 - 1), (LAST_DELTA, ">i", 2**31 - 2)
    ),
    "a producer without a sequence": changed(
        GOOD, (PRODUCER_ID, ">q", 9), (PRODUCER_EPOCH, ">h", 0), (SEQUENCE, ">i", -1)
    ),
}

OK = ErrorCode.NONE
SECOND_RECORD = 62 + (GOOD[61] >> 1)
SAME["a first record that does not add up under a right CRC"] = changed(raw(GOOD, 61, ">b", 0))
DEVIATIONS: dict[str, tuple[bytes, ErrorCode, ErrorCode]] = {
    "bytes after the batch: Kafka drops them and acknowledges": (
        GOOD + GOOD[:40],
        ErrorCode.INVALID_RECORD,
        OK,
    ),
    "an unknown codec: Kafka has no error of its own for it": (
        changed(GOOD, (ATTRIBUTES, ">h", 5)),
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    "log append time from a producer: Kafka clears the mark": (
        encode_batch(TWO, log_append_time_ms=1_000),
        ErrorCode.INVALID_TIMESTAMP,
        OK,
    ),
    "a producer without an epoch: Kafka takes it as a first epoch": (
        changed(GOOD, (PRODUCER_ID, ">q", 2**50), (PRODUCER_EPOCH, ">h", -1), (SEQUENCE, ">i", 0)),
        ErrorCode.INVALID_RECORD,
        OK,
    ),
    "transactional without a producer: Kafka says that it is not authorized": (
        encode_batch(TWO, transactional=True),
        ErrorCode.INVALID_RECORD,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "records that do not add up after the first: only Kafka opens them": (
        changed(raw(GOOD, SECOND_RECORD, ">b", 0)),
        OK,
        ErrorCode.INVALID_RECORD,
    ),
    "a compressed body that is not one, under a right CRC: only Kafka opens it": (
        changed(GOOD, (ATTRIBUTES, ">h", 4)),
        OK,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
}
CASES = {**SAME, **{name: records for name, (records, _, _) in DEVIATIONS.items()}}


def ours(records: bytes) -> ErrorCode:
    answer = check_produced(memoryview(records), max_batch_bytes=LIMIT)
    return ErrorCode(answer.error.value) if isinstance(answer, BatchRefusal) else ErrorCode.NONE


@pytest.fixture(scope="module")
def kafkas(kafka_broker: KafkaBroker) -> dict[str, ErrorCode]:
    """What Apache Kafka answers to each case, one after the other on one topic."""

    async def ask(cluster: Cluster) -> dict[str, ErrorCode]:
        topic = "records-check"
        await admin.create_topics(
            cluster, [admin.NewTopic(topic, 1, 1, {"max.message.bytes": str(LIMIT)})]
        )
        described = await admin.describe_topic(cluster, topic)
        answers: dict[str, ErrorCode] = {}
        for name, records in CASES.items():
            data = PartitionProduceData(index=0, records=memoryview(records))
            request = ProduceRequest(
                acks=-1,
                timeout_ms=5_000,
                topic_data=[
                    TopicProduceData(name=topic, topic_id=described.topic_id, partition_data=[data])
                ],
            )
            connection = await cluster.any_connection()
            response = await connection.request(request, ProduceResponse)
            row = response.responses[0].partition_responses[0]
            answers[name] = ErrorCode(row.error_code)
        return answers

    async def main() -> dict[str, ErrorCode]:
        async with Cluster(kafka_broker.bootstrap, environment=SystemEnvironment()) as cluster:
            return await asyncio.wait_for(ask(cluster), 60)

    return asyncio.run(main())


@pytest.mark.parametrize("name", SAME)
def test_the_answer_is_kafkas(kafkas: dict[str, ErrorCode], name: str):
    assert ours(SAME[name]) is kafkas[name]


@pytest.mark.parametrize("name", DEVIATIONS)
def test_a_deviation_is_the_one_that_is_named(kafkas: dict[str, ErrorCode], name: str):
    records, our_answer, kafka_answer = DEVIATIONS[name]
    assert (ours(records), kafkas[name]) == (our_answer, kafka_answer)


@pytest.mark.parametrize("name", [name for name in DEVIATIONS if "only Kafka opens" in name])
def test_a_look_inside_refuses_what_kafka_refuses(name: str):
    refusal = check_inside(memoryview(DEVIATIONS[name][0]), uncompressed_bytes_max=10_000)
    assert refusal is not None
    assert refusal.error is RefusalKind.INVALID_RECORD
