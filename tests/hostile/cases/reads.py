"""Fetches and offset lookups that ask for what is not there, or for nothing sensible."""

from uuid import UUID

from tests.hostile.case import Case, Target, one_of, still_there, told
from tests.support.hostile_bytes import Peer, request

from holdfast.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from holdfast.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

FETCH = 12
FETCH_BY_ID = 13
LIST = 9
UNKNOWN_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION"
OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
MIB = 1 << 20
NO_ID = UUID(int=0)


def fetch(
    offset: int = 0,
    *,
    topic: str = "target",
    topic_id: UUID = NO_ID,
    partition: int = 0,
    partition_bytes: int = MIB,
    leader_epoch: int = -1,
    times: int = 1,
    **fields,
) -> FetchRequest:
    wanted = [
        FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=partition_bytes,
            current_leader_epoch=leader_epoch,
        )
        for _ in range(times)
    ]
    settings = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": MIB, "session_epoch": -1, **fields}
    return FetchRequest(
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=wanted)], **settings
    )


def has_records(response) -> bool:
    return any(row.records for topic in response.responses for row in topic.partitions)


def list_offsets(
    timestamp: int = -1,
    *,
    topic: str = "target",
    partition: int = 0,
    leader_epoch: int = -1,
    times: int = 1,
) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, current_leader_epoch=leader_epoch
    )
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted] * times)]
    )


def epoch_end(leader_epoch: int, *, topic: str = "target", partition: int = 0):
    wanted = OffsetForLeaderPartition(partition=partition, leader_epoch=leader_epoch)
    return OffsetForLeaderEpochRequest(
        replica_id=-2, topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
    )


def _others_are_served_meanwhile(peer: Peer, target: Target) -> None:
    for waiting in (
        FetchRequest(max_wait_ms=3_600_000, min_bytes=1, topics=[]),
        fetch(times=0, max_wait_ms=3_600_000, min_bytes=1),
    ):
        peer.send(request(waiting, FETCH))
    with Peer(target.port) as another:
        still_there(another)


_TOPICS = ("nobody-made-it", "../x", "..", "", "x" * 20_000, "a\x00b")
_FETCHES: list[Case] = [
    *(
        told(f"fetch at offset {offset}", FETCH, fetch(offset), OUT_OF_RANGE)
        for offset in (10**6, 2**63 - 1, -1, -2, -(2**63))
    ),
    *(
        told(f"fetch with max_bytes {count}", FETCH, fetch(max_bytes=count), also=has_records)
        for count in (0, -1, -(2**31), 1, 2**31 - 1)
    ),
    *(
        told(
            f"fetch with partition_max_bytes {count}",
            FETCH,
            fetch(partition_bytes=count),
            also=has_records,
        )
        for count in (0, -1, -(2**31), 1, 2**31 - 1)
    ),
    *(
        told(f"fetch with min_bytes {count}", FETCH, fetch(min_bytes=count))
        for count in (-1, -(2**31), 2**31 - 1)
    ),
    *(
        told(f"fetch with max_wait_ms {ms}", FETCH, fetch(max_wait_ms=ms, min_bytes=2**31 - 1))
        for ms in (-1, -(2**31))
    ),
    *(
        told(f"fetch from the topic {topic[:16]!r}", FETCH, fetch(topic=topic), UNKNOWN_TOPIC)
        for topic in _TOPICS
    ),
    *(
        told(f"fetch from partition {number}", FETCH, fetch(partition=number), UNKNOWN_TOPIC)
        for number in (-1, 2, 2**31 - 1, -(2**31))
    ),
    *(
        told(
            f"fetch from the topic id {number:x}",
            FETCH_BY_ID,
            fetch(topic_id=UUID(int=number)),
            "UNKNOWN_TOPIC_ID",
        )
        for number in (0, 1, 2**128 - 1)
    ),
    told(
        "a fetch session that nobody opened",
        FETCH,
        fetch(session_id=123_456, session_epoch=5),
        "FETCH_SESSION_ID_NOT_FOUND",
    ),
    told(
        "the lowest fetch session",
        FETCH,
        fetch(session_id=-(2**31), session_epoch=2**31 - 1),
        "FETCH_SESSION_ID_NOT_FOUND",
    ),
    one_of(
        "a negative session epoch",
        FETCH,
        fetch(session_id=1, session_epoch=-9),
        *("FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH"),
    ),
    told("a leader epoch from the future", FETCH, fetch(leader_epoch=999), "UNKNOWN_LEADER_EPOCH"),
    told("a fetch as another replica", FETCH, fetch(replica_id=5)),
    one_of("an isolation level of 9", FETCH, fetch(isolation_level=9), "NONE", "INVALID_REQUEST"),
    told("a fetch of nothing", FETCH, fetch(times=0)),
    told(
        "a fetch of nothing that waits for something",
        FETCH,
        fetch(times=0, max_wait_ms=300, min_bytes=1),
    ),
    Case("a fetch of nothing that waits for an hour", _others_are_served_meanwhile),
    told("a fetch of one partition 2,000 times", FETCH, fetch(times=2_000)),
    told(
        "a fetch of 10,000 unknown partitions",
        FETCH,
        fetch(partition=5, times=10_000),
        UNKNOWN_TOPIC,
    ),
    told(
        "a fetch that forgets what it never asked for",
        FETCH,
        fetch(
            session_epoch=0,
            forgotten_topics_data=[ForgottenTopic(topic="nobody-made-it", partitions=[0, -1])],
        ),
    ),
]
_LISTS: list[Case] = [
    *(
        told(f"offsets of the topic {topic[:16]!r}", LIST, list_offsets(topic=topic), UNKNOWN_TOPIC)
        for topic in _TOPICS
    ),
    *(
        told(f"offsets of partition {n}", LIST, list_offsets(partition=n), UNKNOWN_TOPIC)
        for n in (-1, 2, 2**31 - 1, -(2**31))
    ),
    *(
        one_of(
            f"offsets at the time {at}",
            LIST,
            list_offsets(at),
            *("NONE", "UNSUPPORTED_VERSION", "INVALID_REQUEST"),
        )
        for at in (-7, -100, -(2**63), 2**63 - 1, 0)
    ),
    told(
        "offsets with a leader epoch from the future",
        LIST,
        list_offsets(leader_epoch=999),
        "UNKNOWN_LEADER_EPOCH",
    ),
    one_of(
        "offsets of one partition 500 times",
        LIST,
        list_offsets(times=500),
        "NONE",
        "INVALID_REQUEST",
    ),
]
_EPOCHS: list[Case] = [
    told(f"the end of the leader epoch {epoch}", 4, epoch_end(epoch))
    for epoch in (-1, -(2**31), 2**31 - 1)
] + [
    told("the end of an epoch of an unknown topic", 4, epoch_end(0, topic="../x"), UNKNOWN_TOPIC),
    told("the end of an epoch of partition -1", 4, epoch_end(0, partition=-1), UNKNOWN_TOPIC),
]

CASES = [*_FETCHES, *_LISTS, *_EPOCHS]
