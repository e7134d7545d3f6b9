"""The writer of files that are one stream of bytes: lines, and raw values.

Pure. Owns the order: records become bytes in pieces, and each piece is compressed before the next
one is made. Must never keep a batch that it was given.
"""

from collections.abc import Callable, Iterable, Mapping

from holdfast.columnar.arrow import RecordBatch
from holdfast.errors import CallError
from holdfast.landing.facts import checksum
from holdfast.landing.formats.codecs import Compressor, FileCodec
from holdfast.landing.formats.interface import Encoded
from holdfast.store.interface import Buffer

LINE_FEED = b"\n"


class StreamWriter:
    """One file of lines or raw values that is being written."""

    def __init__(
        self,
        pieces: Callable[[RecordBatch], Iterable[Buffer]],
        codec: FileCodec,
        level: int | None,
        *,
        is_lines: bool,
    ) -> None:
        self._pieces = pieces
        self._compressor: Compressor | None = Compressor(codec, level)
        self._block_before_line_feed = is_lines and codec is FileCodec.NONE
        self._rows = 0

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def held_bytes(self) -> int:
        return 0 if self._compressor is None else self._compressor.held_bytes

    def add(self, batch: RecordBatch) -> None:
        if self._compressor is None:
            raise CallError("records were added to a file that is finished")
        for piece in self._pieces(batch):
            self._compressor.add(piece)
        self._rows += batch.num_rows

    def finish(self, described: Mapping[str, str]) -> Encoded:
        if self._compressor is None:
            raise CallError("a file was finished twice")
        body = self._compressor.finish()
        self._compressor = None
        after = b""
        if self._block_before_line_feed and self._rows:
            body = (*body[:-1], memoryview(body[-1])[: -len(LINE_FEED)])
            after = LINE_FEED
        return Encoded(body=body, body_crc=checksum(body), after=after)
