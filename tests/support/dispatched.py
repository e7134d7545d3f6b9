"""A client without a socket: requests and responses as bytes, through the broker's dispatch.

A broker that is dropped was killed: its lanes are not released, and the next broker on the same
store has only the store.
"""

from collections.abc import Awaitable, Sequence
from typing import Any

from tests.support.batches import batch
from tests.support.brokers import Cluster, produce_request, values_in

from holdfast.broker.broker import Broker
from holdfast.broker.dispatch import Dispatch
from holdfast.protocol.api import ApiKey
from holdfast.protocol.connection import Request
from holdfast.protocol.message import Message
from holdfast.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from holdfast.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast.protocol.messages.produce import PartitionProduceResponse
from holdfast.protocol.schemas import SCHEMAS
from holdfast.server.peer import Peer

VERSIONS = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 11,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 7,
}


async def ask(broker: Broker, message: Message) -> Any:
    """Send the request's bytes; decode the response's bytes."""
    api_key = ApiKey(message.API_KEY)
    version = VERSIONS[api_key]
    body = bytearray(b"".join(message.encode(version)))
    request = Request(api_key, version, 1, "seed", memoryview(body), len(body), version >= 9)
    reply = Dispatch(broker).dispatch(request, Peer(host="client", port=0, listener="seed"))
    if isinstance(reply, Awaitable):
        reply = await reply
    assert isinstance(reply, Sequence)
    sent = b"".join(bytes(part) for part in reply)
    return SCHEMAS[api_key][1].decode(sent, version)


async def send(
    broker: Broker, values: Sequence[bytes], *, timeout_ms: int = 30_000
) -> PartitionProduceResponse:
    records = batch(values, timestamp=broker.environment.now_ms())
    response = await ask(broker, produce_request({("t", 0): records}, timeout_ms=timeout_ms))
    return response.responses[0].partition_responses[0]


async def poll(
    broker: Broker, offset: int, *, max_bytes: int = 1 << 20, max_wait_ms: int = 0
) -> PartitionData:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[wanted])],
    )
    response = await ask(broker, request)
    return response.responses[0].partitions[0]


async def latest(broker: Broker) -> tuple[int, int]:
    """The latest offset as ListOffsets tells it, and the error code."""
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])]
    )
    part = (await ask(broker, request)).topics[0].partitions[0]
    return part.offset, part.error_code


async def value_at(broker: Broker, offset: int) -> bytes | None:
    """The value of exactly that offset, by a fetch that starts there."""
    part = await poll(broker, offset)
    assert part.error_code == 0, part
    values = values_in(part)
    assert values, f"offset {offset} cannot be read"
    return values[0]


__all__ = ["Cluster", "ask", "latest", "poll", "send", "value_at"]
