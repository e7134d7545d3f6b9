"""The facts that a landed object holds about itself.

Pure. Owns the facts and their text. `blocks` owns their form in a file. The facts hold the
checksums of the bytes before their block and after it.
"""

import msgspec
from fastcrc import crc32

from holdfast.errors import NOT_JSON, CorruptObject
from holdfast.store.interface import Buffers

FORMAT_VERSION = 1
BLOCK_BYTES = 1024
WHITE_SPACE_BYTES = 5120
PLAIN_LINES = "jsonl/"
"""The beginning of the names of formats whose block is white space."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one object of a chain.

    It covers first_offset to last_offset; holes are not listed.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    """The last offset covered, including a hole at the end (a marker, a compacted record)."""
    records: int
    writer_id: str
    format: str
    body_bytes: int
    body_crc: int
    after_bytes: int
    """Bytes after the block, such as the footer of a Parquet file."""
    after_crc: int
    version: int = FORMAT_VERSION

    @property
    def next_offset(self) -> int:
        """The offset at which the next object of the chain begins."""
        return self.last_offset + 1

    @property
    def size(self) -> int:
        """The size of the whole object in bytes."""
        return self.body_bytes + block_bytes(self.format) + self.after_bytes


def block_bytes(format_name: str) -> int:
    """Return the size of the facts block, which is fixed for each format."""
    return WHITE_SPACE_BYTES if format_name.startswith(PLAIN_LINES) else BLOCK_BYTES


def checksum(buffers: Buffers) -> int:
    """Return the CRC-32C of buffers, taken one after another."""
    crc = 0
    for buffer in buffers:
        crc = crc32.iscsi(bytes(buffer) if isinstance(buffer, bytearray) else buffer, crc)
    return crc


def facts_text(facts: Facts) -> bytes:
    """Return JSON with sorted names: at most 582 bytes, with the longest topic name."""
    return msgspec.json.encode(facts, order="deterministic")


def read_facts_text(text: bytes, *, key: str) -> Facts:
    """Return the facts. Raise CorruptObject if they are invalid or of a newer version."""
    try:
        facts = msgspec.json.decode(text, type=Facts)
    except NOT_JSON as error:
        raise CorruptObject(f"{key}: its facts block cannot be read: {error}") from error
    if facts.version != FORMAT_VERSION:
        raise CorruptObject(
            f"{key}: it has format version {facts.version}, but this Holdfast reads versions up to"
            f" {FORMAT_VERSION}: use a newer release"
        )
    if facts.first_offset < 0 or facts.last_offset < facts.first_offset:
        raise CorruptObject(
            f"{key}: its facts block says offsets {facts.first_offset} to {facts.last_offset},"
            f" which cannot be"
        )
    return facts
