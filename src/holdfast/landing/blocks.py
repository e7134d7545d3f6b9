"""The facts block near the end of a landed object, in a form that ordinary readers skip.

Pure. Owns the forms, finding the block from the last bytes of an object, and proving the bytes
around it. A block whose own checksum is wrong must never be trusted. The forms:

- zstd, lz4: a skippable frame at the end.
- Parquet: the same bytes between the last row group and the footer. Readers never look there,
  because all positions in a footer count from the start of the file.
- gzip: an empty member at the end, with the facts in its extra field.
- lines without compression: spaces and tabs, one bit each, after the last line and before its line
  feed. In a file without lines they are the whole file.
- raw without compression: at the end, after a length of -2, which says that no record follows.
"""

import struct
from typing import NamedTuple

import numpy as np
from fastcrc import crc32

from holdfast.errors import CallError, CorruptObject
from holdfast.landing.facts import (
    BLOCK_BYTES,
    PLAIN_LINES,
    WHITE_SPACE_BYTES,
    Facts,
    checksum,
    facts_text,
    read_facts_text,
)
from holdfast.store.interface import Buffer

RAW_WITHOUT_CODEC = "raw"
TAIL_BYTES_MIN = WHITE_SPACE_BYTES + 1
"""The number of bytes at the end of an object (all, if it is smaller) that find_block needs."""

_MAGIC = b"HFC1"
_SEAL = struct.Struct("<4sI")
_SKIPPABLE = struct.pack("<II", 0x184D2A5E, BLOCK_BYTES - 8)
_RAW_END = struct.pack(">iI", -2, BLOCK_BYTES - 8)
_GZIP_HEAD = bytes.fromhex("1f8b08040000000000ff") + struct.pack(
    "<H2sH", BLOCK_BYTES - 22, b"HF", BLOCK_BYTES - 26
)
_GZIP_TAIL = bytes.fromhex("03000000000000000000")
_FORMS = ((_SKIPPABLE, b""), (_RAW_END, b""), (_GZIP_HEAD, _GZIP_TAIL))
_PARQUET_END = b"PAR1"
_PARQUET_TAIL_BYTES = 8
_SPACE, _TAB, _LINE_FEED = 0x20, 0x09, 0x0A


class BlockPlace(NamedTuple):
    """The position of the facts block in an object."""

    position: int
    length: int

    @property
    def end(self) -> int:
        return self.position + self.length


def encode_block(facts: Facts) -> bytes:
    """Return the block in the form of the facts' format. The text is padded with spaces."""
    name = facts.format
    if name.startswith(PLAIN_LINES):
        bits = np.unpackbits(np.frombuffer(_sealed(facts, WHITE_SPACE_BYTES // 8), np.uint8))
        return np.where(bits, np.uint8(_TAB), np.uint8(_SPACE)).tobytes()
    head, tail = _SKIPPABLE, b""
    if name == RAW_WITHOUT_CODEC:
        head = _RAW_END
    elif ".gz" in name:
        head, tail = _GZIP_HEAD, _GZIP_TAIL
    return head + _sealed(facts, BLOCK_BYTES - len(head) - len(tail)) + tail


def _sealed(facts: Facts, room: int) -> bytes:
    text = facts_text(facts)
    if len(text) > room - _SEAL.size:
        raise CallError(
            f"the facts block of {facts.topic}-{facts.partition} would have {len(text)} bytes,"
            " which is too large"
        )
    padded = text.ljust(room - _SEAL.size)
    return _SEAL.pack(_MAGIC, crc32.iscsi(padded)) + padded


def decode_block(block: Buffer, *, key: str) -> Facts:
    """Return the facts. Raise CorruptObject if the bytes are no block, or a damaged one."""
    sealed = _inside(bytes(block))
    if sealed is None:
        raise CorruptObject(f"{key}: it is not a landed object: it has no facts block")
    _, crc = _SEAL.unpack_from(sealed)
    text = sealed[_SEAL.size :]
    if crc32.iscsi(text) != crc:
        raise CorruptObject(f"{key}: the checksum of its facts block is wrong")
    facts = read_facts_text(text, key=key)
    if encode_block(facts)[:4] != bytes(block[:4]):
        raise CorruptObject(f"{key}: its facts block is not of format {facts.format}")
    return facts


def _inside(block: bytes) -> bytes | None:
    """Return magic, checksum and text, whatever the form. None if it is not a block."""
    sealed = b""
    if len(block) == BLOCK_BYTES:
        for head, tail in _FORMS:
            if block.startswith(head) and block.endswith(tail):
                sealed = block[len(head) : len(block) - len(tail)]
    elif len(block) == WHITE_SPACE_BYTES:
        numbers = np.frombuffer(block, np.uint8)
        if bool(np.all((numbers == _SPACE) | (numbers == _TAB))):
            sealed = np.packbits(numbers == _TAB).tobytes()
    return sealed if sealed.startswith(_MAGIC) else None


def find_block(tail: Buffer, size: int) -> BlockPlace | None:
    """Find the block of an object of `size` bytes from its last bytes. It may begin before them.

    Returns None if the object does not end like any format that we write.
    """
    if len(tail) < min(size, TAIL_BYTES_MIN):
        raise CallError(
            f"the last {len(tail)} of {size} bytes may not contain the whole facts block: read more"
        )
    if tail[-4:] == _PARQUET_END and len(tail) >= _PARQUET_TAIL_BYTES:
        after = int.from_bytes(tail[-8:-4], "little") + _PARQUET_TAIL_BYTES
        return (
            BlockPlace(size - after - BLOCK_BYTES, BLOCK_BYTES)
            if (size >= after + BLOCK_BYTES)
            else None
        )
    if _inside(bytes(tail[-BLOCK_BYTES:])) is not None:
        return BlockPlace(size - BLOCK_BYTES, BLOCK_BYTES)
    line_feed = int(len(tail) > 0 and tail[-1] == _LINE_FEED)
    if _inside(bytes(tail[: len(tail) - line_feed][-WHITE_SPACE_BYTES:])) is not None:
        return BlockPlace(size - line_feed - WHITE_SPACE_BYTES, WHITE_SPACE_BYTES)
    return None


def prove(body: Buffer, *, key: str) -> Facts:
    """Check every byte of a whole object and return its facts."""
    view = memoryview(body)
    place = find_block(view[-TAIL_BYTES_MIN:], len(view))
    if place is None:
        raise CorruptObject(f"{key}: it is not a landed object ({len(view)} bytes)")
    facts = decode_block(view[place.position : place.end], key=key)
    before, after = view[: place.position], view[place.end :]
    if len(before) != facts.body_bytes or len(after) != facts.after_bytes:
        raise CorruptObject(f"{key}: it has {len(view)} bytes; its facts block says {facts.size}")
    if checksum([before]) != facts.body_crc or checksum([after]) != facts.after_crc:
        raise CorruptObject(f"{key}: its checksum is wrong")
    return facts
