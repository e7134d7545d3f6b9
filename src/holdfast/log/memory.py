"""Log data that a broker keeps in memory: the tail as it was written, and a read cache.

Owns two separate byte budgets, so that a reader of old data never evicts the tail.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence

Buffer = bytes | bytearray | memoryview

SMALL_BUFFER_BYTES = 4096
"""Below this average size buffers are joined: each costs hundreds of bytes beside its content."""
PINNED_RATIO_MAX = 2
"""A view keeps its whole request in memory. If that is larger by more than this factor, the part
is copied."""


class Payload:
    """The payload of one lane object, as the buffers in which it arrived."""

    __slots__ = ("buffers", "size_bytes", "starts")

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        size = sum(len(buffer) for buffer in buffers)
        are_small = len(buffers) > 1 and size < SMALL_BUFFER_BYTES * len(buffers)
        if are_small or _pinned_bytes(buffers) > PINNED_RATIO_MAX * size:
            buffers = [b"".join(buffers)]
        self.buffers = buffers
        self.size_bytes = size
        self.starts = array("q")
        start = 0
        for buffer in buffers:
            self.starts.append(start)
            start += len(buffer)

    def slice(self, position: int, size: int) -> list[Buffer]:
        """Return the buffers of a stretch, cut where it begins and ends."""
        found: list[Buffer] = []
        i = bisect_right(self.starts, position) - 1
        skip = position - self.starts[i]
        while size > 0:
            buffer = self.buffers[i]
            take = min(len(buffer) - skip, size)
            whole = skip == 0 and take == len(buffer)
            found.append(buffer if whole else memoryview(buffer)[skip : skip + take])
            size -= take
            skip = 0
            i += 1
        return found


def _pinned_bytes(buffers: Sequence[Buffer]) -> int:
    """Return how many bytes stay in memory as long as these buffers do."""
    owners = {id(b.obj): b.obj for b in buffers if isinstance(b, memoryview)}
    whole = sum(len(b) for b in buffers if not isinstance(b, memoryview))
    return whole + sum(memoryview(owner).nbytes for owner in owners.values())


def unpinned(buffer: Buffer) -> Buffer:
    """Return the same bytes, as a copy if they are a small part of what they keep in memory."""
    if _pinned_bytes([buffer]) > PINNED_RATIO_MAX * len(buffer):
        return bytes(buffer)
    return buffer


class Tail:
    """The newest payloads of all lanes of a broker. The oldest are evicted first."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self._payloads: dict[tuple[int, int], Payload] = {}
        self._pinned: dict[tuple[int, int], Payload] = {}

    def pin(self, lane: int, number: int, buffers: Sequence[Buffer]) -> None:
        """Keep a payload that can be read but is not in the store, until it is unpinned."""
        self._pinned[lane, number] = Payload(buffers)

    def unpin(self, lane: int, number: int) -> None:
        self._pinned.pop((lane, number), None)

    def add(self, lane: int, number: int, buffers: Sequence[Buffer]) -> None:
        payload = Payload(buffers)
        self._payloads[lane, number] = payload
        self.bytes += payload.size_bytes
        while self.bytes > self.bytes_max and self._payloads:
            oldest = next(iter(self._payloads))
            self.bytes -= self._payloads.pop(oldest).size_bytes

    def get(self, lane: int, number: int) -> Payload | None:
        return self._payloads.get((lane, number)) or self._pinned.get((lane, number))

    def forget(self, lane: int, up_to: int | None = None) -> None:
        """Drop a lane's payloads: all of them, or those of objects up to a number."""
        gone = [k for k in self._payloads if k[0] == lane and (up_to is None or k[1] <= up_to)]
        for key in gone:
            self.bytes -= self._payloads.pop(key).size_bytes
        if up_to is None:
            for key in [k for k in self._pinned if k[0] == lane]:
                del self._pinned[key]


class ReadCache:
    """Stretches that were read from the store. The least recently used are evicted first."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self._found: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def get(self, key: str, position: int) -> bytes | None:
        data = self._found.get((key, position))
        if data is None:
            self.misses += 1
            return None
        self.hits += 1
        self._found.move_to_end((key, position))
        return data

    def has(self, key: str, position: int) -> bool:
        """True if the stretch is cached. Asking does not count as a use."""
        return (key, position) in self._found

    def add(self, key: str, position: int, data: bytes) -> None:
        old = self._found.pop((key, position), None)
        self.bytes += len(data) - (len(old) if old is not None else 0)
        self._found[key, position] = data
        while self.bytes > self.bytes_max and self._found:
            _, evicted = self._found.popitem(last=False)
            self.bytes -= len(evicted)
