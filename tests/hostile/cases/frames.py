"""Frames that are none: sizes that cannot be, halves, other protocols on the port."""

import random
import struct

from tests.hostile.case import Case, Target, closed
from tests.support.hostile_bytes import Peer, request

from holdfast.protocol.messages.api_versions import ApiVersionsRequest
from holdfast.protocol.messages.metadata import MetadataRequest

GOOD = request(ApiVersionsRequest(), 0)
LARGEST = 100 * 1024 * 1024
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(64))


def _answered(peer: Peer, times: int) -> None:
    for _ in range(times):
        assert peer.reply() is not None


def _glued(peer: Peer, target: Target) -> None:
    peer.send(GOOD * 5)
    _answered(peer, 5)


def _dripping(peer: Peer, target: Target) -> None:
    for i in range(len(GOOD)):
        peer.send(GOOD[i : i + 1])
    _answered(peer, 1)


def _good_then_bad(peer: Peer, target: Target) -> None:
    peer.send(GOOD + GOOD + struct.pack(">i", -1))
    _answered(peer, 2)
    assert peer.reply() is None


def _one_and_a_half(peer: Peer, target: Target) -> None:
    peer.send(GOOD + GOOD[:-3])
    peer.finish()
    _answered(peer, 1)
    assert peer.reply() is None


def _half_then_reset(peer: Peer, target: Target) -> None:
    peer.send(GOOD[:9])
    peer.reset()
    with Peer(target.port) as another:
        another.send(GOOD)
        _answered(another, 1)


def _answers_not_read(peer: Peer, target: Target) -> None:
    peer.send(request(MetadataRequest(topics=None), 5) * 200)
    peer.reset()
    with Peer(target.port) as another:
        another.send(GOOD)
        _answered(another, 1)


def _connections_and_nothing(peer: Peer, target: Target) -> None:
    idle = [Peer(target.port) for _ in range(100)]
    peer.send(GOOD)
    _answered(peer, 1)
    for one in idle:
        one.reset()


def _announced_by_many(peer: Peer, target: Target) -> None:
    stalled = [Peer(target.port) for _ in range(50)]
    for one in stalled:
        one.send(struct.pack(">i", LARGEST) + b"only this")
    peer.send(GOOD)
    _answered(peer, 1)
    for one in stalled:
        one.reset()


_SIZES = {
    "a frame of no bytes": 0,
    "a size of minus one": -1,
    "the lowest size there is": -(2**31),
    "the highest size there is": 2**31 - 1,
    "a size one above the bound": LARGEST + 1,
}
_STRANGERS = {
    "an HTTP GET": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "an HTTP POST": b"POST /topics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    "an HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a TLS hello": TLS_HELLO,
    "an SSH banner": b"SSH-2.0-OpenSSH_9.9\r\n",
    "a PROXY line": b"PROXY TCP4 10.0.0.1 10.0.0.2 5000 9092\r\n",
    "a Redis command": b"*1\r\n$4\r\nPING\r\n",
    "a kibibyte of zeros": bytes(1024),
    "a kibibyte of ones": b"\xff" * 1024,
}

CASES = [
    *(closed(name, struct.pack(">i", size) + b"abcdefgh") for name, size in _SIZES.items()),
    *(
        closed(
            f"a frame of {size} bytes, less than a header", struct.pack(">i", size) + bytes(size)
        )
        for size in (1, 2, 4, 7, 9)
    ),
    *(closed(name, data, finish=True) for name, data in _STRANGERS.items()),
    *(
        closed(f"a frame that ends after {cut} bytes", GOOD[:cut], finish=True)
        for cut in (1, 3, 4, 5, 8, 12, len(GOOD) - 1)
    ),
    *(
        closed(f"random bytes, seed {seed}", random.Random(seed).randbytes(500), finish=True)
        for seed in range(8)
    ),
    Case("five frames in one segment", _glued),
    Case("a frame byte by byte", _dripping),
    Case("two frames and then nonsense", _good_then_bad),
    Case("a frame and then half of one", _one_and_a_half),
    Case("half a frame and a reset", _half_then_reset),
    Case("two hundred answers that nobody reads", _answers_not_read),
    Case("a hundred connections that say nothing", _connections_and_nothing),
    Case("fifty frames of 100 MiB that are only announced", _announced_by_many),
]
