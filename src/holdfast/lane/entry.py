"""The bytes of one lane object: a header, the facts, the payload.

Pure. Owns the format and its checksums. The header names the lane, the number, the claim and the
writer, and carries the hash of the previous object's header. So an object of another lane, another
number or another history is recognised. Must never interpret facts: they belong to the state
that the lane serves.
"""

import enum
import hashlib
import struct
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from fastcrc import crc32

from holdfast.errors import CorruptObject
from holdfast.identifiers import BrokerId, LaneId, LaneNumber, WriterId

Buffer = bytes | bytearray | memoryview

MAGIC = b"HFL1"
_FIELDS = struct.Struct(">4sBxHQQ16s16sIQIIQ")
_CRC = struct.Struct(">I")
HEADER_BYTES = _FIELDS.size + _CRC.size
SPOOLED = 1 << 62
"""Numbers from here on denote frames on a local disk, which are in no lane object yet."""
CHAIN_START = bytes(16)
"""The previous hash that the first object of a lane names."""


class EntryKind(enum.IntEnum):
    """The effect of an object on its lane."""

    CLAIM = 1
    """The writer owns the lane from here on. Claims are never deleted: see floor.py."""
    DATA = 2
    RELEASE = 3
    """The writer will never write or answer again, so the next owner need not wait."""


KINDS = frozenset(int(kind) for kind in EntryKind)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The broker that claims a lane, and how others on its machine can see that it is dead."""

    broker_id: BrokerId
    address: str
    claimed_ms: int
    machine: str = ""
    """The identity of the boot and the process namespace; empty if the platform has none."""
    process: int = 0
    process_start: int = 0
    valid_ms: int = 5_000
    """How long after its last proof of the claim this owner may still answer."""
    owed_ms: int = 0
    """How long after this claim earlier owners may still answer. A successor that finds no release
    cannot know whether this owner waited that long."""


class EntryHeader(NamedTuple):
    """The fixed part of a lane object."""

    kind: EntryKind
    lane: LaneId
    number: LaneNumber
    claim: LaneNumber
    """The number of the claim under which this object was written."""
    writer: WriterId
    previous: bytes
    facts_bytes: int
    payload_bytes: int
    facts_crc: int
    payload_crc: int
    written_ms: int
    hash: bytes
    """The hash of this header's bytes, which the next object must name."""

    @property
    def payload_start(self) -> int:
        return HEADER_BYTES + self.facts_bytes


class SealedEntry(NamedTuple):
    """An object that is ready to be put: its header and its body as buffers."""

    header: EntryHeader
    body: list[Buffer]


def seal(
    *,
    kind: EntryKind,
    lane: LaneId,
    number: LaneNumber,
    claim: LaneNumber,
    writer: WriterId,
    previous: bytes,
    facts: bytes,
    payload: Sequence[Buffer],
    written_ms: int,
) -> SealedEntry:
    """Build the object of one group commit."""
    payload_bytes = 0
    payload_crc = 0
    for buffer in payload:
        payload_crc = crc32.iscsi(buffer, payload_crc)
        payload_bytes += len(buffer)
    facts_crc = crc32.iscsi(facts)
    fields = _FIELDS.pack(
        MAGIC,
        kind,
        lane,
        number,
        claim,
        writer,
        previous,
        len(facts),
        payload_bytes,
        facts_crc,
        payload_crc,
        written_ms,
    )
    head = fields + _CRC.pack(crc32.iscsi(fields))
    header = EntryHeader(
        kind,
        lane,
        number,
        claim,
        writer,
        previous,
        len(facts),
        payload_bytes,
        facts_crc,
        payload_crc,
        written_ms,
        hash_of(head),
    )
    return SealedEntry(header, [head, facts, *payload])


def hash_of(head: Buffer) -> bytes:
    """Return a header's hash for the hash chain. Through the checksums it covers all bytes."""
    return hashlib.blake2b(head, digest_size=16).digest()


def parse_header(data: Buffer, *, key: str) -> EntryHeader:
    """Parse and check the header; `key` is only for error messages."""
    if len(data) < HEADER_BYTES:
        raise CorruptObject(
            f"{key}: it has {len(data)} bytes; the header alone takes {HEADER_BYTES}"
        )
    head = bytes(data[:HEADER_BYTES])
    if head[:4] != MAGIC:
        raise CorruptObject(
            f"{key}: it starts with {head[:4]!r}; lane objects start with {MAGIC!r}"
        )
    if _CRC.unpack_from(head, _FIELDS.size)[0] != crc32.iscsi(head[: _FIELDS.size]):
        raise CorruptObject(f"{key}: the header's checksum is wrong")
    fields = _FIELDS.unpack_from(head)
    _, kind, lane, number, claim, writer, previous = fields[:7]
    facts_bytes, payload_bytes, facts_crc, payload_crc, written_ms = fields[7:]
    if kind not in KINDS:
        raise CorruptObject(
            f"{key}: it has the unknown kind {kind}; a newer release of Holdfast may know it"
        )
    return EntryHeader(
        EntryKind(kind),
        LaneId(lane),
        LaneNumber(number),
        LaneNumber(claim),
        WriterId(writer),
        previous,
        facts_bytes,
        payload_bytes,
        facts_crc,
        payload_crc,
        written_ms,
        hash_of(head),
    )


def facts_of(header: EntryHeader, data: Buffer, *, key: str) -> bytes:
    """Return the checked facts of an object that starts with `data`."""
    facts = bytes(data[HEADER_BYTES : header.payload_start])
    if len(facts) != header.facts_bytes:
        raise CorruptObject(
            f"{key}: it is cut short: {len(facts)} of {header.facts_bytes} bytes of facts"
        )
    if crc32.iscsi(facts) != header.facts_crc:
        raise CorruptObject(f"{key}: the checksum of the facts is wrong")
    return facts


def check_payload(header: EntryHeader, payload: Buffer, *, key: str) -> None:
    """Raise CorruptObject unless the payload is the one that was sealed."""
    if len(payload) != header.payload_bytes:
        raise CorruptObject(
            f"{key}: it has {len(payload)} payload bytes; its header says {header.payload_bytes}"
        )
    if crc32.iscsi(payload) != header.payload_crc:
        raise CorruptObject(f"{key}: the checksum of the payload is wrong")


def encode_claim(claim: Claim) -> bytes:
    return msgspec.msgpack.encode(claim)


def decode_claim(facts: bytes) -> Claim:
    return msgspec.msgpack.decode(facts, type=Claim)
