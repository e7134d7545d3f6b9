"""One question on one connection, one try: the error code, and the answer where there was none.

Must never retry and never look for another broker: the caller wants to hear this one.
"""

from tests.chaos.ledger import identity_of

from holdfast.client.connection import BrokerConnection
from holdfast.client.fetch import without_cut_batch
from holdfast.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from holdfast.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from holdfast.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from holdfast.records.record import decode
from holdfast.verify.history import Fetched, Listed, Produced

PRODUCE_VERSION = 11
FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 9
FETCH_BYTES_MAX = 1 << 20
MANY_TIMEOUT_MS = 100_000


async def list_at(
    connection: BrokerConnection, topic: str, partition: int
) -> tuple[int, Listed | None]:
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
    )
    answer = await connection.request(request, ListOffsetsResponse, version=LIST_OFFSETS_VERSION)
    row = answer.topics[0].partitions[0]
    return row.error_code, None if row.error_code else Listed(row.offset)


async def fetch_at(
    connection: BrokerConnection,
    topic: str,
    partition: int,
    offset: int,
    *,
    bytes_max: int = FETCH_BYTES_MAX,
) -> tuple[int, Fetched | None]:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=bytes_max,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    answer = await connection.request(request, FetchResponse, version=FETCH_VERSION)
    row = answer.responses[0].partitions[0]
    if row.error_code:
        return row.error_code, None
    batches = without_cut_batch(memoryview(b"".join(row.records or ())))
    records = tuple(
        (record.offset, identity_of(record.value or b""))
        for record in decode(batches)
        if record.offset >= offset
    )
    return 0, Fetched(records, row.high_watermark)


async def produce_at(
    connection: BrokerConnection, topic: str, partition: int, batch: bytes, *, timeout_ms: int
) -> tuple[int, Produced | None]:
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    answer = await connection.request(request, ProduceResponse, version=PRODUCE_VERSION)
    row = answer.responses[0].partition_responses[0]
    return row.error_code, None if row.error_code else Produced(row.base_offset)


async def list_all_at(connection: BrokerConnection, topic: str, count: int) -> list[int]:
    """The error code of each of the first partitions, asked for in one request."""
    wanted = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(count)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)]
    )
    answer = await connection.request(
        request, ListOffsetsResponse, version=LIST_OFFSETS_VERSION, timeout_ms=MANY_TIMEOUT_MS
    )
    return [row.error_code for row in answer.topics[0].partitions]


async def fetch_all_at(connection: BrokerConnection, topic: str, count: int) -> int:
    """How many of the first partitions came with records, asked for in one request."""
    wanted = [
        FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=FETCH_BYTES_MAX)
        for i in range(count)
    ]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=50 * FETCH_BYTES_MAX,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=wanted)],
    )
    answer = await connection.request(
        request, FetchResponse, version=FETCH_VERSION, timeout_ms=MANY_TIMEOUT_MS
    )
    return sum(bool(row.records) for row in answer.responses[0].partitions)
