"""Lengths inside messages: negative, more than is left, endless, and every kind of cut."""

import struct

from tests.hostile.case import Case, closed
from tests.support.hostile_bytes import batch, frame, header, raw, request, uvarint

from holdfast.protocol.api import ApiKey
from holdfast.protocol.message import Message
from holdfast.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

ARRAY_LENGTHS = {
    "minus two": -2,
    "the lowest": -(2**31),
    "a million": 10**6,
    "the highest": 2**31 - 1,
}
COMPACT_LENGTHS = {
    "a million": uvarint(10**6),
    "the highest": uvarint(2**32 - 1),
    "endless": b"\xff" * 10,
    "of six bytes": b"\x80\x80\x80\x80\x80\x01",
    "cut": b"\xff",
}
PRODUCE_HEAD = struct.pack(">hhi", -1, -1, 1000)
"""No transactional id, acks=all, a second: what comes before the topics of Produce v3."""
FETCH_HEAD = struct.pack(">iiiibii", -1, 0, 0, 100, 0, 0, -1)
"""What comes before the topics of Fetch v7."""


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def _classic(api: ApiKey, version: int, head: bytes) -> list[Case]:
    return [
        closed(
            f"{api.name} v{version} with an array of {name} elements",
            raw(api, version, head + struct.pack(">i", length) + b"12345678"),
        )
        for name, length in ARRAY_LENGTHS.items()
    ]


def _compact(api: ApiKey, version: int, head: bytes) -> list[Case]:
    return [
        closed(
            f"{api.name} v{version} with a compact length that is {name}",
            raw(api, version, head + length, flexible=True),
        )
        for name, length in COMPACT_LENGTHS.items()
    ]


def _records_length(length: int) -> bytes:
    head = PRODUCE_HEAD + struct.pack(">i", 1) + _string(b"target") + struct.pack(">ii", 1, 0)
    return raw(ApiKey.PRODUCE, 3, head + struct.pack(">i", length) + batch(b"x"))


def _nested() -> bytes:
    """Topics, each with partitions, each array claiming all the bytes that are left."""
    body = bytearray(PRODUCE_HEAD)
    for _ in range(200):
        body += struct.pack(">i", 60_000) + _string(b"t")
    return raw(ApiKey.PRODUCE, 3, bytes(body))


def _cuts(message: Message, version: int, count: int) -> list[Case]:
    """A valid request, cut and framed again as if it were whole."""
    whole = request(message, version)[4:]
    start = len(header(message.API_KEY, version, flexible=message.is_flexible(version)))
    cuts = sorted({start + (len(whole) - start) * i // count for i in range(count)})
    name = ApiKey(message.API_KEY).name
    return [
        closed(f"{name} v{version} cut at byte {cut} of {len(whole)}", frame(whole[:cut]))
        for cut in cuts
    ]


PRODUCE = ProduceRequest(
    acks=-1,
    timeout_ms=1000,
    topic_data=[
        TopicProduceData(
            name="target",
            partition_data=[PartitionProduceData(index=0, records=memoryview(batch(b"cut")))],
        )
    ],
)
FETCH = FetchRequest(
    topics=[FetchTopic(topic="target", partitions=[FetchPartition(fetch_offset=0)])]
)
LIST = ListOffsetsRequest(
    replica_id=-1,
    topics=[ListOffsetsTopic(name="target", partitions=[ListOffsetsPartition(timestamp=-1)])],
)
CREATE = CreateTopicsRequest(
    topics=[CreatableTopic(name="never-made", num_partitions=1, replication_factor=1)]
)

CASES = [
    *_classic(ApiKey.METADATA, 4, b""),
    *_classic(ApiKey.PRODUCE, 3, PRODUCE_HEAD),
    *_classic(ApiKey.FETCH, 7, FETCH_HEAD),
    *_compact(ApiKey.METADATA, 9, b""),
    *_compact(ApiKey.PRODUCE, 9, b"\x00" + PRODUCE_HEAD[2:]),
    *_compact(ApiKey.CREATE_TOPICS, 7, b""),
    *(
        closed(
            f"a topic name of length {length}",
            raw(ApiKey.METADATA, 4, struct.pack(">ih", 1, length) + b"ab"),
        )
        for length in (-2, 3, 32767)
    ),
    closed(
        "a topic name that is not UTF-8",
        raw(ApiKey.METADATA, 4, struct.pack(">i", 1) + _string(b"\xff\xfe") + b"\x00"),
    ),
    *(
        closed(f"records of length {length}", _records_length(length))
        for length in (-2, -(2**31), 10**6, 2**31 - 1)
    ),
    closed("two hundred nested arrays that each claim the rest", _nested()),
    *_cuts(PRODUCE, 3, 8),
    *_cuts(PRODUCE, 9, 12),
    *_cuts(FETCH, 12, 8),
    *_cuts(LIST, 6, 6),
    *_cuts(CREATE, 7, 8),
]
