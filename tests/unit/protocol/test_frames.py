"""Cutting bytes into frames, whatever the segments are."""

import random
import struct

import pytest

from holdfast.protocol.frames import (
    ANNOUNCED_BUFFER_BYTES,
    GROW_FACTOR,
    SCRATCH_BYTES,
    FrameReceiver,
)

SIZES = (8, 9, 100, 5000, SCRATCH_BYTES - 4, SCRATCH_BYTES, SCRATCH_BYTES + 1, 3_000_000)


def receiver(**options):
    return FrameReceiver(memoryview(bytearray(SCRATCH_BYTES)), **options)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("seed", range(20))
def test_frames_come_out_the_same_for_any_segments(seed):
    chance = random.Random(seed)
    bodies = [chance.randbytes(chance.choice(SIZES)) for _ in range(chance.randrange(1, 12))]
    stream = b"".join(map(framed, bodies))
    source = receiver()
    out = []
    position = 0
    while position < len(stream):
        step = chance.choice((1, 2, 3, 5, 1000, SCRATCH_BYTES, 1_000_000))
        out += source.feed(stream[position : position + step])
        position += step
    assert list(map(bytes, out)) == bodies
    assert source.violation is None
    assert source.under_way_bytes == 0


def test_two_connections_can_share_the_scratch():
    scratch = memoryview(bytearray(SCRATCH_BYTES))
    left, right = FrameReceiver(scratch), FrameReceiver(scratch)
    a, b = framed(b"a" * 1000), framed(b"b" * 1000)
    got_a, got_b = [], []
    for position in range(0, len(a), 3):
        got_a += left.feed(a[position : position + 3])
        got_b += right.feed(b[position : position + 3])
    assert (got_a, got_b) == ([b"a" * 1000], [b"b" * 1000])


def test_memory_follows_what_arrived_not_what_was_declared():
    source = receiver()
    source.feed(struct.pack(">i", 100 * 1024 * 1024) + b"ten bytes.")
    assert len(source.buffer()) <= ANNOUNCED_BUFFER_BYTES
    source.feed(bytes(1_000_000))
    assert source.allocated_bytes <= GROW_FACTOR * 1_000_010


@pytest.mark.parametrize("size", [0, 7, -1, -(2**31), 1001, 2**31 - 1])
def test_a_size_out_of_bounds_is_a_violation_and_nothing_more_is_read(size):
    source = receiver(frame_bytes_max=1000)
    assert source.feed(framed(bytes(8)) + struct.pack(">i", size) + framed(bytes(8))) == [bytes(8)]
    assert str(size) in source.violation


@pytest.mark.parametrize(
    ("opening", "word"),
    [(b"\x16\x03\x01\x02\x00\x01", "TLS"), (b"GET / HTTP/1.1", "HTTP"), (b"HTTP/1.1 200", "HTTP")],
)
def test_other_protocols_are_recognised(opening, word):
    source = receiver()
    source.feed(opening)
    assert word in source.violation
