"""Record batches with a right CRC that nobody can read, and a produce that sends them."""

import asyncio
import functools
import time
from collections.abc import Sequence

import cramjam
from fastcrc.crc32 import iscsi

from holdfast.client.cluster import Cluster, PartitionLeader
from holdfast.client.connection import BrokerConnection
from holdfast.environment import SystemEnvironment
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from holdfast.records.batch import COVERED, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, PREFIX
from holdfast.records.compression import Codec
from holdfast.records.record import Record, encode_batch

BOMB_BYTES = 1 << 30
NOW_MS = int(time.time() * 1_000)
"""Old records would be taken by retention in the middle of a test."""

READABLE = encode_batch([Record(0, NOW_MS, None, b"readable")])[HEADER_BYTES:]
"""The broker looks at the first record of a batch that is not compressed: junk comes behind it."""


def junk_batch(
    body: bytes = READABLE + b"\xff" * 64,
    *,
    records: int = 3,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
) -> bytes:
    """A batch whose header and CRC are right, around any bytes."""
    covered = COVERED.pack(int(codec), records - 1, NOW_MS, NOW_MS, -1, -1, -1, records) + body
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(body)
    return PREFIX.pack(base_offset, length, -1, MAGIC, iscsi(covered)) + covered


@functools.cache
def bomb_batch() -> bytes:
    """A megabyte of gzip that stands for a gibibyte."""
    packer = cramjam.gzip.Compressor(level=6)
    piece = bytes(1 << 24)
    for _ in range(BOMB_BYTES // len(piece)):
        packer.compress(piece)
    return junk_batch(bytes(packer.finish()), codec=Codec.GZIP)


def produce_raw(bootstrap: str, topic: str, partition: int, batches: Sequence[bytes]) -> None:
    """Send batches as they are: a client library would not."""

    async def main() -> None:
        async with Cluster(bootstrap, environment=SystemEnvironment()) as cluster:
            for batch in batches:

                async def ask(
                    connection: BrokerConnection, leader: PartitionLeader, batch: bytes = batch
                ) -> None:
                    data = PartitionProduceData(index=partition, records=memoryview(batch))
                    named = TopicProduceData(
                        name=topic, topic_id=leader.topic_id, partition_data=[data]
                    )
                    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[named])
                    response = await connection.request(request, ProduceResponse)
                    (row,) = response.responses[0].partition_responses
                    assert row.error_code == ErrorCode.NONE, row

                await cluster.ask_leader(topic, partition, ask)

    asyncio.run(main())
