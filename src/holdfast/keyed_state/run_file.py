"""The bytes of a state run: a header that identifies it, then the rows, each with a checksum.

Pure. Owns the format, little-endian throughout:

    magic 4, kind u16, name length u16, hash seed u64, rows u64, body bytes u64, body CRC-32C u32,
    header bytes u32, time min, median, max i64, name, zeros to a multiple of 64 less 4,
    CRC-32C of all that u32, body

The body starts aligned, so that a dedup run is opened without a copy. The name inside is the key in
the store, so bytes of another sink, bucket, micro-batch or attempt are recognised. Must never
return rows that differ from those that the ledger pinned.
"""

import enum
import struct
from dataclasses import dataclass
from typing import cast

from fastcrc import crc32

from holdfast.errors import CorruptObject
from holdfast.keyed_state.pinned import RunInfo
from holdfast.store.interface import Buffers

MAGIC = b"HFR1"
ALIGNMENT = 64
_FIELDS = struct.Struct("<4sHHQQQIIqqq")
_CRC = struct.Struct("<I")


class RunLayout(enum.IntEnum):
    """The layout of the body."""

    HASHES = 1
    """Three columns, one after another: high halves u64, low halves u64, event times i64."""
    ROWS = 2
    """An Arrow IPC stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    """The minimum, median and maximum of the event times (or deadlines) of a run's rows."""

    min_ms: int
    median_ms: int
    max_ms: int


def encode_run(
    kind: RunLayout, body: Buffers, *, name: str, hash_seed: int, rows: int, times: TimeSpan
) -> tuple[RunInfo, Buffers]:
    """Return the description of the run for the ledger, and its object: header, then body."""
    raw_name = name.encode()
    unpadded = _FIELDS.size + len(raw_name) + _CRC.size
    size = -(-unpadded // ALIGNMENT) * ALIGNMENT
    body_bytes = sum(memoryview(part).nbytes for part in body)
    crc = 0
    for part in body:
        crc = crc32.iscsi(part, crc)
    fields = _FIELDS.pack(
        MAGIC,
        kind,
        len(raw_name),
        hash_seed,
        rows,
        body_bytes,
        crc,
        size,
        times.min_ms,
        times.median_ms,
        times.max_ms,
    )
    header = (fields + raw_name).ljust(size - _CRC.size, b"\0")
    info = RunInfo(
        name=name,
        rows=rows,
        bytes=size + body_bytes,
        crc=crc,
        time_min_ms=times.min_ms,
        time_median_ms=times.median_ms,
        time_max_ms=times.max_ms,
    )
    return info, [header + _CRC.pack(crc32.iscsi(header)), *body]


def decode_run(data: bytes, *, kind: RunLayout, info: RunInfo, hash_seed: int) -> memoryview:
    """Return the body of the run that was pinned as `info`, as a view of `data`.

    Raises CorruptObject if the bytes are not that run.
    """
    key = info.name
    header_bytes = _check_header(data, key)
    fields = cast(
        tuple[bytes, int, int, int, int, int, int, int, int, int, int], _FIELDS.unpack_from(data)
    )
    _, its_kind, name_bytes, its_seed, rows, body_bytes, crc, *_ = fields
    its_name = data[_FIELDS.size : _FIELDS.size + name_bytes]
    if its_name != key.encode():
        raise CorruptObject(
            f"{key}: it is another state run, {its_name.decode(errors='replace')!r}"
        )
    if its_kind != kind:
        raise CorruptObject(f"{key}: it is a state run of kind {its_kind}; {kind:d} is expected")
    if its_seed != hash_seed:
        raise CorruptObject(
            f"{key}: it was hashed with seed {its_seed}, but the state with {hash_seed}"
        )
    if (rows, header_bytes + body_bytes, crc) != (info.rows, info.bytes, info.crc):
        raise CorruptObject(
            f"{key}: it has {rows} rows, {header_bytes + body_bytes} bytes, checksum {crc:08x}; the"
            f" ledger says {info.rows} rows, {info.bytes} bytes, checksum {info.crc:08x}"
        )
    if len(data) != info.bytes:
        raise CorruptObject(f"{key}: it has {len(data)} bytes; the ledger says {info.bytes}")
    body = memoryview(data)[header_bytes:]
    found = crc32.iscsi(body)
    if found != crc:
        raise CorruptObject(
            f"{key}: the checksum of its rows is {found:08x}; {crc:08x} is expected"
        )
    return body


def _check_header(data: bytes, key: str) -> int:
    """Check the header's checksum and return the header's size."""
    if len(data) < _FIELDS.size or data[:4] != MAGIC:
        raise CorruptObject(f"{key}: it is not a state run ({len(data)} bytes)")
    size = int(_FIELDS.unpack_from(data)[7])
    if size % ALIGNMENT or not _FIELDS.size + _CRC.size <= size <= len(data):
        raise CorruptObject(f"{key}: its header says {size} bytes; it has {len(data)}")
    (crc,) = _CRC.unpack_from(data, size - _CRC.size)
    if crc != crc32.iscsi(memoryview(data)[: size - _CRC.size]):
        raise CorruptObject(f"{key}: the header's checksum is wrong")
    if _FIELDS.size + int(_FIELDS.unpack_from(data)[2]) > size - _CRC.size:
        raise CorruptObject(f"{key}: the name in its header is longer than the header")
    return size
