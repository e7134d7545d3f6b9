"""Compression of a landed file as it fills: one frame or member from its first byte to its last.

Pure. Owns the names and levels of codecs, and the streams. There is one frame because some readers
stop silently at the end of the first one. All long calls run without the GIL, so that several files
are compressed in parallel. Must never hold more than GATHER_BYTES uncompressed.

- zstd: pyarrow's stream, which supports level 1 only. Other levels use cramjam's stream, which
  holds the GIL, and therefore get small pieces.
- gzip: zlib's stream.
- lz4: the frame is made here, of independent blocks, because Java's reader refuses linked ones,
  which other streams write. It holds no memory between two blocks.
"""

import enum
import zlib
from typing import Any, Protocol

import cramjam

from holdfast.columnar.arrow import pa
from holdfast.errors import ConfigurationError, CorruptObject
from holdfast.store.interface import Buffer

GATHER_BYTES = 128 * 1024
"""Pieces are gathered up to this size, so that a file with few records needs no stream."""
LZ4_BLOCK_BYTES = 1024 * 1024
GIL_PIECE_BYTES = 128 * 1024
_LZ4_HEAD = bytes.fromhex("04224d18606051")
"""The magic, version 1, independent blocks of at most 1 MiB without checksums, header checksum."""
_LZ4_END = bytes(4)
_LZ4_STORED = 1 << 31


_ZSTD_CONTEXT_BYTES = {
    level: bytes_held
    for levels, bytes_held in (
        (range(2, 3), 1_800_000),
        (range(3, 4), 3_200_000),
        (range(4, 7), 5_500_000),
        (range(7, 9), 9_000_000),
        (range(9, 12), 17_000_000),
        (range(12, 20), 75_000_000),
    )
    for level in levels
}
"""Memory of a zstd stream by level, as measured.

The highest levels vary, so they are rounded up.
"""


class FileCodec(enum.Enum):
    """The compression of a file of lines or raw values. The value is the end of its name."""

    ZSTD = ".zst"
    GZIP = ".gz"
    LZ4 = ".lz4"
    NONE = ""

    @classmethod
    def named(cls, name: str) -> "FileCodec":
        """Return the codec for a word of the settings: zstd, gzip, lz4 or none."""
        try:
            return cls[name.upper()]
        except KeyError:
            raise ConfigurationError(
                f"there is no compression {name!r}: use zstd, gzip, lz4 or none"
            ) from None


LEVELS = {FileCodec.ZSTD: range(1, 20), FileCodec.GZIP: range(1, 10)}
ZSTD_LEVEL = 1
"""For JSON records, level 3 takes 1.5 to 2.5 times as long and makes files no smaller."""
GZIP_LEVEL = 1
"""Level 6 takes three times as long for files 7 % smaller."""


def checked_level(codec: FileCodec, level: int | None) -> int:
    """Return the level to use: the codec's default if none is given, 0 if it has no levels."""
    levels = LEVELS.get(codec)
    if level is None:
        return {FileCodec.ZSTD: ZSTD_LEVEL, FileCodec.GZIP: GZIP_LEVEL}.get(codec, 0)
    if levels is None:
        raise ConfigurationError(
            f"{codec.name.lower()} has no compression levels: remove the level {level}"
        )
    if level not in levels:
        raise ConfigurationError(
            f"{codec.name.lower()} has no compression level {level}: use {levels[0]} to"
            f" {levels[-1]}"
        )
    return level


class Stream(Protocol):
    """A codec's stream, which compresses piece after piece."""

    @property
    def context_bytes(self) -> int:
        """Memory that it holds beside its output."""
        ...

    def write(self, piece: Buffer, out: list[Buffer]) -> None:
        """Compress a piece and append the output that is ready to `out`."""
        ...

    def end(self, out: list[Buffer]) -> None:
        """Append the rest of the output to `out`."""
        ...


class Compressor:
    """The body of one file that is being written."""

    def __init__(self, codec: FileCodec, level: int | None = None) -> None:
        self._codec = codec
        self._level = checked_level(codec, level)
        self._stream: Stream | None = None
        self._waiting: list[Buffer] = []
        self._waiting_bytes = 0
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._counted = 0

    @property
    def held_bytes(self) -> int:
        context = self._stream.context_bytes if self._stream is not None else 0
        return self._out_bytes + self._waiting_bytes + context

    def add(self, piece: Buffer) -> None:
        """Add the next bytes. They may be kept uncopied for a while, so they must not change."""
        self._waiting.append(piece)
        self._waiting_bytes += len(piece)
        if self._waiting_bytes >= GATHER_BYTES:
            self._compress()

    def finish(self) -> tuple[Buffer, ...]:
        """Return the whole body."""
        self._compress()
        stream = self._stream or _stream(self._codec, self._level)
        stream.end(self._out)
        self._stream = None
        return tuple(self._out)

    def _compress(self) -> None:
        if not self._waiting:
            return
        if self._stream is None:
            self._stream = _stream(self._codec, self._level)
        pieces, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self._stream.write(pieces[0] if len(pieces) == 1 else b"".join(pieces), self._out)
        self._out_bytes += sum(map(len, self._out[self._counted :]))
        self._counted = len(self._out)


def _stream(codec: FileCodec, level: int) -> Stream:
    match codec:
        case FileCodec.ZSTD:
            return _ArrowZstd() if level == ZSTD_LEVEL else _CramjamZstd(level)
        case FileCodec.GZIP:
            return _Gzip(level)
        case FileCodec.LZ4:
            return _Lz4()
        case FileCodec.NONE:
            return _Plain()


class Pieces:
    """A file object for pyarrow that keeps what is written, in pieces."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        return len(piece)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def take(self) -> bytes:
        """Return everything that was written since the last call."""
        taken = b"".join(self._pieces)
        self._pieces.clear()
        return taken


class _ArrowZstd:
    context_bytes = 1_020_000
    """Window, tables and buffers of level 1, measured as the memory of many open streams."""

    def __init__(self) -> None:
        self._pieces = Pieces()
        self._stream = pa.CompressedOutputStream(pa.PythonFile(self._pieces, mode="w"), "zstd")

    def write(self, piece: Buffer, out: list[Buffer]) -> None:
        self._stream.write(piece)
        ready = self._pieces.take()
        if ready:
            out.append(ready)

    def end(self, out: list[Buffer]) -> None:
        self._stream.close()
        out.append(self._pieces.take())


class _CramjamZstd:
    def __init__(self, level: int) -> None:
        self.context_bytes = _ZSTD_CONTEXT_BYTES[level]
        self._stream = cramjam.zstd.Compressor(level=level)

    def write(self, piece: Buffer, out: list[Buffer]) -> None:
        for start in range(0, len(piece), GIL_PIECE_BYTES):
            self._stream.compress(bytes(piece[start : start + GIL_PIECE_BYTES]))
        out.append(bytes(self._stream.flush()))

    def end(self, out: list[Buffer]) -> None:
        out.append(bytes(self._stream.finish()))


class _Gzip:
    context_bytes = 270_000

    def __init__(self, level: int) -> None:
        self._stream = zlib.compressobj(level, wbits=31)

    def write(self, piece: Buffer, out: list[Buffer]) -> None:
        ready = self._stream.compress(piece)
        if ready:
            out.append(ready)

    def end(self, out: list[Buffer]) -> None:
        out.append(self._stream.flush())


class _Lz4:
    context_bytes = 0

    def __init__(self) -> None:
        self._codec = pa.Codec("lz4_raw")
        self._head = _LZ4_HEAD

    def write(self, piece: Buffer, out: list[Buffer]) -> None:
        view = memoryview(piece)
        for start in range(0, len(view), LZ4_BLOCK_BYTES):
            plain = view[start : start + LZ4_BLOCK_BYTES]
            block = self._codec.compress(plain, asbytes=True)
            if len(block) < len(plain):
                out.append(self._head + len(block).to_bytes(4, "little") + block)
            else:
                size = (len(plain) | _LZ4_STORED).to_bytes(4, "little")
                out.append(self._head + size + bytes(plain))
            self._head = b""

    def end(self, out: list[Buffer]) -> None:
        out.append(self._head + _LZ4_END)


class _Plain:
    context_bytes = 0

    def write(self, piece: Buffer, out: list[Buffer]) -> None:
        out.append(piece)

    def end(self, out: list[Buffer]) -> None:
        pass


def decompress(codec: FileCodec, body: Buffer, *, key: str) -> bytes:
    """Return the bytes of a whole body. Raise CorruptObject if the codec cannot read it."""
    try:
        match codec:
            case FileCodec.ZSTD:
                return bytes(cramjam.zstd.decompress(bytes(body)))
            case FileCodec.GZIP:
                return bytes(cramjam.gzip.decompress(bytes(body)))
            case FileCodec.LZ4:
                return bytes(cramjam.lz4.decompress(bytes(body)))
            case FileCodec.NONE:
                return bytes(body)
    except cramjam.DecompressionError as error:
        raise CorruptObject(
            f"{key}: its {len(body)} bytes of {codec.name.lower()} cannot be decompressed: {error}"
        ) from error
