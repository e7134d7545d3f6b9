"""The five codecs of a record batch, to and from bytes, within a bound.

Pure. Owns the codec ids, the xerial framing of snappy, and the rule that decompression never
allocates more than the caller allows: a compression bomb raises CorruptObject. Must never guess a
codec from the data. No other module of records uses the compression library.
"""

import enum
import struct

import cramjam

from holdfast.errors import CallError, CorruptObject

Buffer = bytes | bytearray | memoryview


class Codec(enum.IntEnum):
    """The low three bits of a batch's attributes. 5, 6 and 7 are not defined."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


GZIP_LEVEL = 6
LZ4_LEVEL = 1
"""The library's default level is five times slower for a few percent."""
ZSTD_LEVEL = 3

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 * 1024
"""The block size that the Java library writes. A reader must accept any size."""
_BLOCK_LENGTH = struct.Struct(">i")

FIRST_TRY_BYTES_MIN = 4096
GROWTH = 4


def compress(codec: Codec, data: Buffer) -> bytes:
    """Return the bytes as a record batch of this codec carries them."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=GZIP_LEVEL))
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            return _compress_lz4(data)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL))


def decompress(codec: Codec, data: Buffer, *, uncompressed_bytes_max: int) -> bytes:
    """Return the uncompressed bytes. Raise CorruptObject if they are damaged or above the bound."""
    if uncompressed_bytes_max < 0:
        raise CallError(f"uncompressed_bytes_max is {uncompressed_bytes_max}; it must be 0 or more")
    if codec is Codec.NONE:
        if len(data) > uncompressed_bytes_max:
            raise _beyond_bound(codec, len(data), uncompressed_bytes_max)
        return bytes(data)
    if codec is Codec.SNAPPY:
        return _decompress_snappy(data, uncompressed_bytes_max)
    return _decompress_growing(codec, data, uncompressed_bytes_max)


def _decompress_growing(codec: Codec, data: Buffer, bound: int) -> bytes:
    """Decompress by trial into a growing buffer.

    The output size is unknown, and the size that a frame claims is not trusted.
    """
    size = min(bound, max(FIRST_TRY_BYTES_MIN, GROWTH * len(data)))
    while True:
        output = bytearray(size)
        try:
            written = _decompress_into(codec, data, output)
        except cramjam.DecompressionError as error:
            if size >= bound:
                raise CorruptObject(
                    f"{len(data)} bytes of {codec.name.lower()} do not decompress "
                    f"within {bound} bytes: {error}"
                ) from None
            size = min(bound, size * GROWTH)
        else:
            return bytes(memoryview(output)[:written])


def _decompress_into(codec: Codec, data: Buffer, output: bytearray) -> int:
    match codec:
        case Codec.GZIP:
            return cramjam.gzip.decompress_into(data, output)
        case Codec.LZ4:
            return cramjam.lz4.decompress_into(data, output)
        case Codec.ZSTD:
            return cramjam.zstd.decompress_into(data, output)
        case _:
            raise CallError(f"{codec.name} has no frame of its own")


def _compress_lz4(data: Buffer) -> bytes:
    """Write independent blocks. Java clients refuse linked ones, the library's default."""
    compressor = cramjam.lz4.Compressor(level=LZ4_LEVEL, content_checksum=False, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts.append(_BLOCK_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, bound: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _decompress_snappy_block(view, bound, bound)
    parts: list[bytes] = []
    left = bound
    position = len(XERIAL_HEADER)
    if len(view) < position:
        raise CorruptObject(f"snappy: {len(view)} bytes end inside the {position}-byte header")
    while position < len(view):
        if len(view) - position < _BLOCK_LENGTH.size:
            raise CorruptObject(f"snappy: {len(view)} bytes end inside a block length")
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(view) - position:
            raise CorruptObject(
                f"snappy: a block of {length} bytes at {position}, with {len(view) - position} left"
            )
        block = _decompress_snappy_block(view[position : position + length], left, bound)
        left -= len(block)
        parts.append(block)
        position += length
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, left: int, bound: int) -> bytes:
    """Decompress a block. The size that it claims is trusted only up to the bound."""
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > left:
            raise _beyond_bound(Codec.SNAPPY, size, bound)
        output = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as error:
        raise CorruptObject(f"snappy: a block of {len(block)} bytes: {error}") from None
    if written != size:
        raise CorruptObject(f"snappy: a block says {size} bytes and holds {written}")
    return bytes(output)


def _beyond_bound(codec: Codec, size: int, bound: int) -> CorruptObject:
    return CorruptObject(f"{codec.name.lower()}: {size} bytes or more, past the bound of {bound}")
