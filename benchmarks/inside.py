"""What it costs to look at every record of a batch, in CPU seconds for 1 GB of records.

`python -m benchmarks.inside` prints one row for each size of record, codec and size of batch. The
ways are measured in turn, five times, and the best of each counts: CPU time is less disturbed by
other work on the machine than wall time.
"""

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch

from holdfast.records.batch import HEADER_BYTES, parse_header
from holdfast.records.check import check_produced
from holdfast.records.compression import Codec, decompress
from holdfast.records.inside import check_inside
from holdfast.records.record import Record, encode_batch

REPEATS = 5
BYTES_PER_REPEAT = 4_000_000
BATCH_BYTES_MAX = 1 << 21
UNCOMPRESSED_BYTES_MAX = 1 << 24
BASE_TIMESTAMP = 1_700_000_000_000


def words(draw: random.Random) -> Iterator[bytes]:
    """Text that compresses about as logs do."""
    known = [bytes(draw.choices(range(97, 123), k=draw.randint(3, 9))) for _ in range(500)]
    while True:
        yield draw.choice(known)


def sample_batch(record_bytes: int, codec: Codec, batch_bytes: int) -> bytes:
    text = words(random.Random(1))
    records: list[Record] = []
    for i in range(max(1, batch_bytes // record_bytes)):
        value = b""
        while len(value) < record_bytes - 8:
            value += next(text) + b" "
        timestamp = BASE_TIMESTAMP + i // 10
        records.append(Record(0, timestamp, b"key-%d" % i, value[: record_bytes - 8]))
    return encode_batch(records, codec=codec)


def ways(data: bytes, codec: Codec) -> dict[str, Callable[[], Any]]:
    body = memoryview(data)[HEADER_BYTES:]
    bound = UNCOMPRESSED_BYTES_MAX
    return {
        "header and CRC": lambda: check_produced(data, max_batch_bytes=BATCH_BYTES_MAX),
        "walk": lambda: check_inside(data, uncompressed_bytes_max=bound),
        "decompression": lambda: decompress(codec, body, uncompressed_bytes_max=bound),
        "aiokafka": lambda: sum(1 for _ in DefaultRecordBatch(data)),
    }


def measure(data: bytes, codec: Codec, record_bytes: int) -> list[float]:
    """CPU seconds for 1 GB, for each way."""
    raw_bytes = parse_header(data).record_count * record_bytes
    times = max(1, BYTES_PER_REPEAT // raw_bytes)
    found = ways(data, codec)
    best = dict.fromkeys(found, float("inf"))
    for _ in range(REPEATS):
        for name, work in found.items():
            began = time.thread_time()
            for _ in range(times):
                work()
            best[name] = min(best[name], (time.thread_time() - began) / times)
    return [seconds / raw_bytes * 1e9 for seconds in best.values()]


def main() -> None:
    for record_bytes in (100, 1024):
        for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
            for batch_bytes in (16_384, 1_000_000):
                data = sample_batch(record_bytes, codec, batch_bytes)
                cells = [f"{each:.2f}" for each in measure(data, codec, record_bytes)]
                shown = f"{batch_bytes // 1000} KB"
                print("|", record_bytes, "B |", codec.name.lower(), "|", shown, "|", end=" ")
                print(" | ".join(cells), "|")


if __name__ == "__main__":
    main()
