"""What a landed object says about itself: one block of 1,024 bytes near its end.

Pure. Owns the block, and how the bytes around it are proved. The block is a skippable frame of
zstd, so that `zstd -d` passes over it; in a Parquet file it stands between the last row group and
the footer, where readers never look, because all positions in a footer count from the start of
the file. It holds the checksum of what stands before it and of what follows it. Must never be
trusted where its own checksum fails.
"""

import struct

import msgspec
from fastcrc import crc32

from holdfast.errors import CallError, CorruptObject
from holdfast.store.interface import Buffer, Buffers

FORMAT_VERSION = 1
BLOCK_BYTES = 1024
_HEAD = struct.Struct("<II4sI")
_SKIPPABLE_FRAME = 0x184D2A5E
_MAGIC = b"HFC1"
_TEXT_BYTES = BLOCK_BYTES - _HEAD.size


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """One object of a chain: it covers first_offset to last_offset, with no word on holes."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    """The last offset covered: a hole at the end (a marker, a compacted record) is inside."""
    records: int
    writer_id: str
    format: str
    body_bytes: int
    body_crc: int
    after_bytes: int
    """What follows the block: the footer of a Parquet file."""
    after_crc: int
    version: int = FORMAT_VERSION

    @property
    def next_offset(self) -> int:
        """Where the next object of the chain begins."""
        return self.last_offset + 1

    @property
    def size(self) -> int:
        """The size of the whole object in bytes."""
        return self.body_bytes + BLOCK_BYTES + self.after_bytes


def checksum(buffers: Buffers) -> int:
    """CRC-32C over buffers in a row."""
    crc = 0
    for buffer in buffers:
        crc = crc32.iscsi(bytes(buffer) if isinstance(buffer, bytearray) else buffer, crc)
    return crc


def encode_block(facts: Facts) -> bytes:
    """The 1,024 bytes; the text is padded with spaces."""
    text = msgspec.json.encode(facts, order="deterministic")
    if len(text) > _TEXT_BYTES:
        raise CallError(f"the facts of {facts.topic}-{facts.partition} take {len(text)} bytes")
    padded = text.ljust(_TEXT_BYTES)
    return _HEAD.pack(_SKIPPABLE_FRAME, BLOCK_BYTES - 8, _MAGIC, crc32.iscsi(padded)) + padded


def decode_block(block: Buffer, *, key: str) -> Facts:
    """The facts; CorruptObject where these bytes are not a block, or not as they were written."""
    if len(block) != BLOCK_BYTES:
        raise CorruptObject(f"{key}: {len(block)} bytes where its block of facts should be")
    frame, length, magic, crc = _HEAD.unpack_from(block)
    if frame != _SKIPPABLE_FRAME or length != BLOCK_BYTES - 8 or magic != _MAGIC:
        raise CorruptObject(f"{key}: it has no block of facts: it is not a landed object")
    text = bytes(block[_HEAD.size :])
    if crc32.iscsi(text) != crc:
        raise CorruptObject(f"{key}: its block of facts fails its checksum")
    try:
        facts = msgspec.json.decode(text, type=Facts)
    except msgspec.MsgspecError as error:
        raise CorruptObject(f"{key}: its block of facts cannot be read: {error}") from error
    if facts.version != FORMAT_VERSION:
        raise CorruptObject(
            f"{key}: it was written in version {facts.version}, and this program knows "
            f"{FORMAT_VERSION}: use a newer one"
        )
    if facts.first_offset < 0 or facts.last_offset < facts.first_offset:
        raise CorruptObject(f"{key}: it covers {facts.first_offset} to {facts.last_offset}")
    return facts


def block_position(tail: bytes, size: int) -> int | None:
    """Where the block begins in an object of `size` bytes, told from its last bytes.

    None where the end of the object is of no format that we write.
    """
    if size < BLOCK_BYTES:
        return None
    if tail[-4:] == b"PAR1" and len(tail) >= 8:
        after = int.from_bytes(tail[-8:-4], "little") + 8
        position = size - after - BLOCK_BYTES
        return position if position >= 0 else None
    return size - BLOCK_BYTES


def prove(body: bytes, *, key: str) -> Facts:
    """The facts of a whole object, once all its bytes are found to be as they were written."""
    position = block_position(body[-8:], len(body))
    if position is None:
        raise CorruptObject(f"{key}: {len(body)} bytes that are not a landed object")
    view = memoryview(body)
    facts = decode_block(view[position : position + BLOCK_BYTES], key=key)
    before, after = view[:position], view[position + BLOCK_BYTES :]
    if len(before) != facts.body_bytes or len(after) != facts.after_bytes:
        raise CorruptObject(f"{key}: it has {len(body)} bytes, and says that it has {facts.size}")
    if checksum([before]) != facts.body_crc or checksum([after]) != facts.after_crc:
        raise CorruptObject(f"{key}: its bytes fail their checksum")
    return facts
