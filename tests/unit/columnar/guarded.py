"""A program that hands every kernel hostile bytes which end where unreadable memory begins.

One byte read past the end is a SIGSEGV; run by test_guarded.py in a process of its own.
"""

import ctypes
import json
import mmap
import random
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from fastcrc.crc32 import iscsi

from holdfast.columnar.decode import decode
from holdfast.columnar.hashing import hash128
from holdfast.columnar.json_field import json_field
from holdfast.errors import CorruptObject
from holdfast.landing.formats.envelope import envelopes
from holdfast.landing.formats.fitness import line_problems
from holdfast.records.batch import HEADER_BYTES
from holdfast.records.record import Record, encode_batch

ROOM = 16 * mmap.PAGESIZE
NO_ACCESS = 0
HOSTILE = [0x00, 0x01, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF]


class Fence:
    """Memory whose last readable byte is followed by a page that must not be touched."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, ROOM + mmap.PAGESIZE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        libc = ctypes.CDLL(None, use_errno=True)
        protect = libc.mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        if protect(self.address + ROOM, mmap.PAGESIZE, NO_ACCESS) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")

    def put(self, data: bytes) -> memoryview:
        self._memory[ROOM - len(data) : ROOM] = data
        return memoryview(self._memory)[ROOM - len(data) : ROOM]

    def column(self, data: bytes) -> pa.Array:
        """One row of these bytes."""
        self.put(data)
        offsets = pa.py_buffer(struct.pack("<ii", 0, len(data)))
        body = pa.foreign_buffer(self.address + ROOM - len(data), len(data), base=self)
        return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, body])

    def touch(self) -> None:
        ctypes.string_at(self.address + ROOM, 1)


def mutated(data: bytes, rng: random.Random, start: int = 0) -> bytes:
    found = bytearray(data[: rng.randint(start + 1, len(data))] if rng.random() < 0.5 else data)
    for _ in range(rng.randint(0, 4)):
        found[rng.randrange(start, len(found))] = rng.choice(HOSTILE)
    return bytes(found)


def hostile_batch(rng: random.Random) -> bytes:
    records = [
        Record(
            0,
            rng.randrange(1 << 41),
            rng.choice([None, b"", b"key"]),
            rng.randbytes(rng.randint(0, 200)),
            tuple(("h", rng.choice([None, b"", b"x" * 70])) for _ in range(rng.randint(0, 2))),
        )
        for _ in range(rng.randint(1, 5))
    ]
    batch = bytearray(mutated(encode_batch(records), rng, HEADER_BYTES))
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, iscsi(bytes(batch[21:])))
    return bytes(batch)


@contextmanager
def counted(verdicts: dict[str, int]) -> Iterator[None]:
    try:
        yield
    except CorruptObject:
        verdicts["corrupt"] += 1
    else:
        verdicts["sound"] += 1


def main() -> None:
    fence = Fence()
    if "touch" in sys.argv:
        fence.touch()
    rng = random.Random(20261116)
    verdicts = {"corrupt": 0, "sound": 0}
    text = json.dumps({"a": {"b": [1, -2.5e3, "x\n\u00e9\U0001f600"]}, "id": "k\u00e9y"}).encode()
    for _ in range(4_000):
        with counted(verdicts):
            list(
                decode(
                    [fence.put(hostile_batch(rng))],
                    topic="t",
                    partition=0,
                    start_offset=0,
                    end_offset=9,
                    include_headers=True,
                )
            )
        column = fence.column(mutated(text, rng))
        json_field(column, "id")
        json_field(column, "a.b")
        if rng.random() < 0.2:
            list(envelopes(pa.RecordBatch.from_arrays([column], names=["value"])))
        column = fence.column(mutated(text, rng))
        line_problems(column, asks_json=True)
        hash128(fence.column(rng.randbytes(rng.randint(0, 40))))
    print(json.dumps(verdicts))


if __name__ == "__main__":
    main()
