"""`python -m benchmarks.columnar`: columns against plain Python, on one core, in one run.

Each line is the median of the repeats, interleaved, with the lowest and the highest; plain Python
gets fewer rows of the same bytes. Seconds are CPU time of the one thread that works. Compilation is
not measured: each kernel has run before.
"""

import argparse
import hashlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.machine import describe_machine
from holdfast.columnar.decode import decode
from holdfast.columnar.hashing import hash128
from holdfast.columnar.json_field import json_field
from holdfast.records.batch import walk
from holdfast.records.compression import Codec
from holdfast.records.record import Record, decode_batch, encode_batch

REPEATS = 7
PYTHON_SHARE = 20
"""Plain Python gets one row for so many of ours."""
HEADERS = (("trace", b"0123456789abcdef"), ("source", b"checkout"))
KEY_BYTES = 8


@dataclass(frozen=True, slots=True)
class Row:
    """One line: the same work by columns and by plain Python, each with its number of rows."""

    name: str
    columns: Callable[[], int]
    python: Callable[[], int]


def record_stream(size: int, rows: int, codec: Codec, headers: Any) -> list[bytes]:
    """Batches of about 64 KiB of records of one size, key and value together."""
    per_batch = max(1, 65_536 // size)
    batches: list[bytes] = []
    filler = json.dumps({"name": "x" * 24, "tags": [1, 2, 3]}).encode()
    value = (filler * (size // len(filler) + 1))[: size - KEY_BYTES]
    for base_offset in range(0, rows, per_batch):
        records = [
            Record(0, 1_700_000_000_000 + i, b"%08d" % i, value, headers)
            for i in range(base_offset, min(rows, base_offset + per_batch))
        ]
        batches.append(encode_batch(records, base_offset=base_offset, codec=codec))
    return batches


def decode_row(
    name: str, size: int, rows: int, codec: Codec = Codec.NONE, headers: Any = ()
) -> Row:
    batches = record_stream(size, rows, codec, headers)
    stream = b"".join(batches)
    share = b"".join(batches[: max(1, len(batches) // PYTHON_SHARE)])

    def columns() -> int:
        return sum(
            batch.num_rows
            for batch in decode(
                [stream],
                topic="t",
                partition=0,
                start_offset=0,
                end_offset=rows,
                include_headers=bool(headers),
            )
        )

    def python() -> int:
        return sum(
            len(decode_batch(share[start : start + header.size_bytes]))
            for start, header in walk(share)
        )

    return Row(name, columns, python)


def hash_row(rows: int) -> Row:
    keys = [b"order-%010d" % i for i in range(rows)]
    column = pa.array(keys)
    share = keys[: rows // PYTHON_SHARE]
    return Row(
        "hash128, 16 B keys (Python: blake2b)",
        lambda: len(hash128(column)[0]),
        lambda: len([hashlib.blake2b(key, digest_size=16).digest() for key in share]),
    )


def json_row(rows: int) -> Row:
    texts = [
        json.dumps({"user": {"name": "x" * 20, "tags": [1, 2]}, "at": i, "id": f"order-{i:010}"})
        for i in range(rows)
    ]
    column = pa.array(texts, pa.binary())
    share = texts[: rows // PYTHON_SHARE]
    return Row(
        f"json_field $.id, the last of {len(texts[0])} B (Python: json.loads)",
        lambda: len(json_field(column, "$.id")),
        lambda: len([json.loads(text)["id"] for text in share]),
    )


def all_rows(scale: int) -> Iterator[Row]:
    yield decode_row("decode, 100 B", 100, 10 * scale)
    yield decode_row("decode, 1 KiB", 1_024, 2 * scale)
    yield decode_row("decode, 100 B, lz4", 100, 10 * scale, Codec.LZ4)
    yield decode_row("decode, 100 B, two headers", 100, 5 * scale, headers=HEADERS)
    yield hash_row(10 * scale)
    yield json_row(5 * scale)


def rate(work: Callable[[], int]) -> float:
    """Rows for a second of this thread on a core: other work on the machine matters less so."""
    begun = time.thread_time()
    rows = work()
    return rows / (time.thread_time() - begun)


def shown(rates: list[float]) -> str:
    low, middle, high = min(rates), statistics.median(rates), max(rates)
    return f"{middle / 1e6:8.3f} ({low / 1e6:.3f} to {high / 1e6:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=100_000, help="rows, times 2 to 10 by line")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        machine = describe_machine(Path(folder), disk_writes=1)
    print(
        f"{machine.date}, commit {machine.commit}, {machine.system}, {machine.cores} cores, "
        f"load at start {machine.load_at_start}"
    )
    print("million rows per second of one core (CPU time), median (lowest to highest)")
    for row in all_rows(arguments.scale):
        row.columns()
        columns: list[float] = []
        python: list[float] = []
        for _ in range(arguments.repeats):
            columns.append(rate(row.columns))
            python.append(rate(row.python))
        times = statistics.median(columns) / statistics.median(python)
        print(f"{row.name}: {shown(columns)}; Python {shown(python)}; {times:.0f} x")


if __name__ == "__main__":
    main()
