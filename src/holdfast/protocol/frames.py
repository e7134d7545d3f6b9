"""Cuts the bytes of a connection into frames, and owns the buffers they are received in.

Pure: it never touches a socket. Owns the size bounds of frames and the memory of a frame that is
not complete yet. Must never allocate memory for a size prefix alone: a frame's buffer grows with
the bytes that have arrived.

Small frames are read, many at once, into a scratch buffer that all connections share, and are
copied out of it. A frame that is not complete in the scratch buffer is received in a buffer of its
own.
"""

import mmap
from struct import Struct

SCRATCH_BYTES = 256 * 1024
FRAME_BYTES_MAX = 100 * 1024 * 1024
FRAME_BYTES_MIN = 8
"""The size of the smallest request header: API key, version, correlation id."""
EARNEST_BYTES = 1024
"""From this many bytes on, a frame counts as being sent, not only announced."""
ANNOUNCED_BUFFER_BYTES = 64 * 1024
SENT_BUFFER_BYTES = 1024 * 1024
GROW_FACTOR = 4
"""A buffer has one of these two sizes, or this many times the bytes that have arrived, but never
more than the frame's size."""
LAZY_BYTES = 1024 * 1024
"""A buffer of this size or more is mapped, so that its pages are created as bytes arrive. Creating
all pages of 100 MB at once would stop the loop for tens of milliseconds."""
SIZE = Struct(">i")

FrameBuffer = bytearray | mmap.mmap

HTTP_OPENINGS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI ")


class FrameReceiver:
    """The receiver of one connection's frames; it returns them without their size prefix."""

    __slots__ = (
        "_carry",
        "_frame",
        "_frame_bytes_max",
        "_have",
        "_scratch",
        "under_way_bytes",
        "violation",
    )

    def __init__(self, scratch: memoryview, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.violation: str | None = None
        """Why the bytes are not Kafka frames, or None. Nothing is read after a violation."""
        self.under_way_bytes = 0
        """The declared size of the incomplete frame that has its own buffer, or 0."""
        self._scratch = scratch
        self._frame_bytes_max = frame_bytes_max
        self._carry = b""
        self._frame: FrameBuffer = bytearray()
        self._have = 0

    @property
    def received_bytes(self) -> int:
        """The number of bytes of the incomplete frame that have arrived."""
        return self._have if self.under_way_bytes else 0

    @property
    def allocated_bytes(self) -> int:
        """The size of the incomplete frame's buffer."""
        return len(self._frame)

    @property
    def growth_bytes(self) -> int:
        """The number of bytes by which the next call of `buffer` will extend the buffer."""
        have = self._have
        if not self.under_way_bytes or have < len(self._frame):
            return 0
        least = SENT_BUFFER_BYTES if have >= EARNEST_BYTES else ANNOUNCED_BUFFER_BYTES
        return min(self.under_way_bytes, max(least, GROW_FACTOR * have)) - have

    def buffer(self) -> memoryview:
        """Return the memory for the next bytes; it is valid until `received` is called."""
        size = self.under_way_bytes
        if not size:
            carried = len(self._carry)
            if carried:
                self._scratch[:carried] = self._carry
            return self._scratch[carried:]
        growth = self.growth_bytes
        if growth:
            # A new buffer, not a resize: the caller may still hold a view of the old one.
            size = self._have + growth
            grown = mmap.mmap(-1, size) if size >= LAZY_BYTES else bytearray(size)
            grown[: self._have] = memoryview(self._frame)[: self._have]
            self._frame = grown
        return memoryview(self._frame)[self._have :]

    def received(self, count: int) -> list[FrameBuffer]:
        """Return the frames that `count` more bytes in the last buffer have completed."""
        if not self.under_way_bytes:
            return self._cut(len(self._carry) + count)
        self._have += count
        if self._have < self.under_way_bytes:
            return []
        frame = self._frame
        self.under_way_bytes = 0
        self._frame = bytearray()
        return [frame]

    def _cut(self, end: int) -> list[FrameBuffer]:
        scratch = self._scratch
        frames: list[FrameBuffer] = []
        position = 0
        self._carry = b""
        while end - position >= SIZE.size:
            (size,) = SIZE.unpack_from(scratch, position)
            if not FRAME_BYTES_MIN <= size <= self._frame_bytes_max:
                opening = bytes(scratch[position : position + 4])
                self.violation = _size_problem(opening, size, self._frame_bytes_max)
                return frames
            start = position + SIZE.size
            position = start + size
            if position > end:
                self.under_way_bytes = size
                self._frame = bytearray(scratch[start:end])
                self._have = end - start
                return frames
            frames.append(bytearray(scratch[start:position]))
        if position < end:
            self._carry = bytes(scratch[position:end])
        return frames

    def feed(self, data: bytes) -> list[FrameBuffer]:
        """Return the frames that these bytes complete, for callers that already have the bytes."""
        frames: list[FrameBuffer] = []
        position = 0
        while position < len(data) and self.violation is None:
            target = self.buffer()
            count = min(len(target), len(data) - position)
            target[:count] = data[position : position + count]
            position += count
            frames += self.received(count)
        return frames


def _size_problem(opening: bytes, size: int, frame_bytes_max: int) -> str:
    if opening[:2] == b"\x16\x03":
        return "a TLS handshake on a listener without TLS"
    if opening in HTTP_OPENINGS:
        return "an HTTP request on a Kafka listener"
    if opening == b"HTTP":
        return "an HTTP response on a Kafka listener"
    if size < FRAME_BYTES_MIN:
        return f"a frame of {size} bytes; the smallest header has {FRAME_BYTES_MIN}"
    return f"a frame of {size} bytes; at most {frame_bytes_max} are taken"
