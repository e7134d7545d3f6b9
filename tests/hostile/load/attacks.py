"""What hostile clients do, each for a while: floods, halves, bombs, and answers that nobody reads.

Owns the bytes that are sent. Each attack talks to the broker through sockets of its own, sends for
`seconds`, and says how much it sent. An attack that fails raises.
"""

import contextlib
import itertools
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from tests.hostile.cases.bombs import NAMES as CODECS
from tests.hostile.cases.bombs import declared_bytes, zeros
from tests.hostile.cases.produce import VERSION, produce
from tests.support.hostile_bytes import Peer, batch, request

from holdfast.client.wire import decode_response
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from holdfast.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from holdfast.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.protocol.messages.init_producer_id import InitProducerIdRequest
from holdfast.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from holdfast.protocol.messages.list_groups import ListGroupsRequest
from holdfast.protocol.messages.list_transactions import ListTransactionsRequest
from holdfast.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

LARGE_FRAME_BYTES = 100 * 1024 * 1024
UNFINISHED_BYTES = 99_000_000
WINDOW = 16
JOIN = 9
FETCH = 11
CLASSIC_GROUP = "classic-crowd"
CLASSIC_CONNECTIONS_MAX = 500
WIDE_BATCHES = 220
WIDE_BATCH_BYTES = 900_000
WIDE_COLD_BATCHES = 120
"""So many of them are neither in the tail nor in the cache of a broker with 64 MiB for both."""
SLOW_READERS = 50
SLOW_PIPELINED = 4
SLOW_EXPRESSION = "(a|b)*a(a|b){300}"
CHUNK = bytes(1 << 20)

Attack = Callable[[int, float], int]
"""Of a port, for some seconds; how much it sent."""


def pump(port: int, frames: Iterator[bytes], seconds: float) -> int:
    """Send requests and read their answers, some at a time, until the time is over."""
    until = time.monotonic() + seconds
    sent = 0
    with Peer(port, seconds_max=seconds) as peer, contextlib.suppress(TimeoutError):
        waiting = 0
        for frame in frames:
            if time.monotonic() >= until:
                break
            peer.send(frame)
            sent, waiting = sent + 1, waiting + 1
            if waiting >= WINDOW:
                if peer.reply() is None:
                    break
                waiting -= 1
        for _ in range(waiting):
            if peer.reply() is None:
                break
    return sent


def unfinished_frames(port: int, seconds: float) -> int:
    """Nine connections that each hold 99 MB of a frame that never ends."""
    until = time.monotonic() + seconds
    sent = [0] * 9

    def hold(number: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as held:
            held.settimeout(0.2)
            with contextlib.suppress(OSError):
                held.sendall(struct.pack(">i", LARGE_FRAME_BYTES) + struct.pack(">hhi", 0, 9, 1))
                while time.monotonic() < until:
                    if sent[number] < UNFINISHED_BYTES:
                        with contextlib.suppress(TimeoutError):
                            sent[number] += held.send(CHUNK)
                    else:
                        time.sleep(0.1)

    _all_at_once([lambda number=number: hold(number) for number in range(9)])
    return sum(sent)


def groups(port: int, seconds: float) -> int:
    """Commits of offsets by groups that did not exist before."""
    return pump(port, (commit(f"flood-{i}") for i in itertools.count()), seconds)


def commit(group_id: str) -> bytes:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topic = OffsetCommitRequestTopic(name="target", partitions=[partition])
    return request(OffsetCommitRequest(group_id=group_id, topics=[topic]), 9)


def members(port: int, seconds: float) -> int:
    """Members of the new protocol that join one group, one after the other, and never leave."""
    return pump(port, (join_consumer("crowd", i) for i in itertools.count()), seconds)


def join_consumer(group_id: str, number: int, expression: str | None = None) -> bytes:
    names = ["target"] if expression is None else []
    message = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=f"member-{number}",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=names,
        subscribed_topic_regex=expression,
        topic_partitions=[],
    )
    return request(message, 1)


def classic_members(port: int, seconds: float) -> int:
    """Members of the classic protocol that join one group and never leave; how many it has then.

    Joins are answered when no further one has come for 3 s. So each connection asks for some member
    ids, joins with them, and stays open; the first answer is read at the end.
    """
    until = time.monotonic() + seconds
    opened: list[Peer] = []
    try:
        while time.monotonic() < until and len(opened) < CLASSIC_CONNECTIONS_MAX:
            peer = Peer(port)
            opened.append(peer)
            peer.send(b"".join(request(_join(""), JOIN) for _ in range(WINDOW)))
            for _ in range(WINDOW):
                reply = peer.reply()
                assert reply is not None
                told = decode_response(reply, JoinGroupResponse, JOIN)
                assert told.error_code == ErrorCode.MEMBER_ID_REQUIRED
                peer.send(request(_join(told.member_id), JOIN))
        reply = opened[0].reply()
        assert reply is not None
        assert decode_response(reply, JoinGroupResponse, JOIN).error_code == ErrorCode.NONE
        return _classic_member_count(port)
    finally:
        for peer in opened:
            peer.reset()


def _join(member_id: str) -> JoinGroupRequest:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\0\xff\xff\xff\xff")
    return JoinGroupRequest(
        group_id=CLASSIC_GROUP,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


def _classic_member_count(port: int) -> int:
    with Peer(port) as peer:
        peer.send(request(DescribeGroupsRequest(groups=[CLASSIC_GROUP]), 5))
        reply = peer.reply()
    assert reply is not None
    return len(decode_response(reply, DescribeGroupsResponse, 5).groups[0].members)


def producer_ids(port: int, seconds: float) -> int:
    """New producers, transactional and not, each of which writes one batch at most."""

    def frames() -> Iterator[bytes]:
        for i in itertools.count():
            name = f"flood-{i}" if i % 2 else None
            message = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            yield request(message, 4)
            made = batch(b"v", producer_id=1_000_000 + i, producer_epoch=0, base_sequence=0)
            yield request(produce(made, topic="target"), VERSION)

    return pump(port, frames(), seconds)


def expressions(port: int, seconds: float) -> int:
    """Expressions that are hard to match, over 1,000 topics with long names."""
    with Peer(port, seconds_max=60.0) as peer:
        chance = random.Random(3)
        topics = [
            CreatableTopic(
                name="".join(chance.choices("ab", k=240)), num_partitions=1, replication_factor=1
            )
            for _ in range(1_000)
        ]
        peer.send(request(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7))
        peer.reply()
        message = InitProducerIdRequest(transactional_id="a" * 40, transaction_timeout_ms=60_000)
        peer.send(request(message, 4))
        peer.reply()

    def frames(of: int) -> Iterator[bytes]:
        for i in itertools.count():
            yield join_consumer(f"expressions-{of}-{i}", 1, f"{SLOW_EXPRESSION}|{of}x{i}")
            for pattern in ("(a+)+b", "(" * 5_000 + ")" * 5_000, "a{99999999999}"):
                yield request(ListTransactionsRequest(transactional_id_pattern=pattern), 2)

    sent = [0] * 5

    def flood(of: int) -> None:
        sent[of] = pump(port, frames(of), seconds)

    _all_at_once([lambda of=of: flood(of) for of in range(5)])
    return sum(sent)


def connections(port: int, seconds: float) -> int:
    """Connections that say nothing, or nonsense, as fast as they can be opened."""
    until = time.monotonic() + seconds
    held: list[socket.socket] = []
    count = 0
    try:
        while time.monotonic() < until:
            opened = socket.create_connection(("127.0.0.1", port), timeout=60.0)
            count += 1
            if count % 2 and len(held) < 500:
                held.append(opened)
            else:
                with contextlib.suppress(OSError):
                    opened.sendall(b"\xff" * 64)
                opened.close()
    finally:
        for opened in held:
            opened.close()
    return count


def bombs(port: int, seconds: float) -> int:
    """Batches of all four codecs that grow beyond measure, where the broker opens them."""
    bodies = [body(codec) for codec in CODECS for body in (zeros, declared_bytes)]
    codecs = [codec for codec in CODECS for _ in range(2)]

    def frames() -> Iterator[bytes]:
        for codec, body in itertools.cycle(zip(codecs, bodies, strict=True)):
            made = batch(body=body, count=1, attributes=codec)
            yield request(produce(made, topic="compacted"), VERSION)

    return pump(port, frames(), seconds)


def slow_readers(port: int, seconds: float) -> int:
    """Fifty connections that ask for 50 MiB of old records, each from its own offset, and read
    nothing. They come one after the other, so that no two share what the broker reads."""
    until = time.monotonic() + seconds
    fill_wide(port)
    opened: list[socket.socket] = []
    sent = 0
    try:
        for i in range(SLOW_READERS):
            opened.append(open_slow_reader(port, i))
            sent += SLOW_PIPELINED
            time.sleep(seconds / SLOW_READERS / 2)
        time.sleep(max(0.0, until - time.monotonic()))
    finally:
        for one in opened:
            one.close()
    return sent


def fill_wide(port: int) -> None:
    fill = request(produce(batch(b"x" * WIDE_BATCH_BYTES), topic="wide"), VERSION)
    with Peer(port) as peer:
        for _ in range(WIDE_BATCHES):
            peer.send(fill)
            assert peer.reply() is not None


def open_slow_reader(port: int, number: int) -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", port))
    offset = number * WIDE_COLD_BATCHES // SLOW_READERS
    opened.sendall(fetch_wide(offset, 50 << 20) * SLOW_PIPELINED)
    return opened


def fetch_wide(offset: int, bytes_max: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    topic = FetchTopic(topic="wide", topic_id=UUID(int=0), partitions=[partition])
    message = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=bytes_max, topics=[topic])
    return request(message, FETCH)


def many_groups(count: int) -> Attack:
    """So many groups, and then lists of all of them, for as long as it takes."""

    def attack(port: int, seconds: float) -> int:
        pump(port, (commit(f"many-{i}") for i in range(count)), 3_600.0)
        pump(port, itertools.repeat(request(ListGroupsRequest(), 4)), seconds)
        return count

    return attack


def _all_at_once(works: list[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(work) for work in works]:
            done.result()


ATTACKS: dict[str, Attack] = {
    "unfinished frames of 99 MB": unfinished_frames,
    "a flood of groups": groups,
    "a flood of members": members,
    "a flood of classic members": classic_members,
    "a flood of producer ids": producer_ids,
    "a flood of expressions": expressions,
    "a flood of connections": connections,
    "compression bombs": bombs,
    "slow readers": slow_readers,
}
