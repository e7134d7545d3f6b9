"""Raw values: each after its length in four bytes, big-endian. A length of -1 is a null.

Pure. Owns the framing, which holds any bytes. A length of -2 says that no record follows. Keys,
times and headers are not kept. Offsets are known when read back only if the object's range has no
holes, and must never be guessed: otherwise they are null.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from holdfast.columnar import line_kernels as kernels
from holdfast.columnar.arrow import RecordBatch, bytes_of, new_array, pa, variable_array
from holdfast.errors import CorruptObject
from holdfast.landing.facts import Facts
from holdfast.landing.formats.codecs import FileCodec, checked_level, decompress
from holdfast.landing.formats.columns import parts_of, windows
from holdfast.landing.formats.fitness import (
    add_too_large,
    checked_record_bytes,
    first_unfit,
    sorted_out,
)
from holdfast.landing.formats.interface import Encoded, RecordWriter, Unfit, encode_with
from holdfast.landing.formats.streamed import StreamWriter
from holdfast.landing.formats.values import VALUE_COLUMNS, value_batch
from holdfast.store.interface import Buffer

NAME = "raw"
ROWS_PER_BATCH = 50_000
BYTES_PER_BATCH = 64 * 1024 * 1024


class Raw:
    """The format `raw`, with one of the codecs."""

    def __init__(
        self,
        *,
        compression: str = "zstd",
        level: int | None = None,
        record_bytes_max: int | None = None,
    ) -> None:
        self._codec = FileCodec.named(compression)
        self._level = checked_level(self._codec, level) if level is not None else None
        self._record_bytes_max = checked_record_bytes(record_bytes_max)

    @property
    def name(self) -> str:
        return f"{NAME}{self._codec.value}"

    @property
    def extension(self) -> str:
        return f".{NAME}{self._codec.value}"

    @property
    def columns(self) -> tuple[str, ...]:
        return VALUE_COLUMNS

    def check(self, batch: RecordBatch) -> Unfit | None:
        problems = add_too_large(None, batch, self._record_bytes_max)
        return first_unfit(batch, problems, self._record_bytes_max)

    def sort_out(self, batch: RecordBatch) -> tuple[RecordBatch, list[Unfit]]:
        problems = add_too_large(None, batch, self._record_bytes_max)
        return sorted_out(batch, problems, self._record_bytes_max)

    def writer(self) -> RecordWriter:
        return StreamWriter(_framed, self._codec, self._level, is_lines=False)

    def encode(self, batches: Sequence[RecordBatch], described: Mapping[str, str]) -> Encoded:
        return encode_with(self.writer(), batches, described)

    def decode(self, body: bytes, facts: Facts) -> Iterator[RecordBatch]:
        where = f"{facts.topic}-{facts.partition} from offset {facts.first_offset}"
        framed = bytes_of(decompress(self._codec, memoryview(body)[: facts.body_bytes], key=where))
        position = row = 0
        while position < len(framed):
            rows, size, end = kernels.measure_framed(
                framed, position, ROWS_PER_BATCH, BYTES_PER_BATCH
            )
            if rows < 0:
                break
            offsets = np.empty(rows + 1, np.int32)
            data = np.empty(size, np.uint8)
            validity = np.zeros((rows + 7) // 8, np.uint8)
            nulls = kernels.take_framed(framed, position, offsets, data, validity)
            column = variable_array(pa.binary(), offsets, data, validity, nulls)
            yield value_batch(column, row, facts)
            position, row = end, row + rows
        if position < len(framed) or row != facts.records:
            raise CorruptObject(
                f"{where}: the object has {row} values and {len(framed) - position} more bytes; its"
                f" facts block says {facts.records} records"
            )


def _framed(batch: RecordBatch) -> Iterator[Buffer]:
    parts = parts_of(batch.column("value"))
    for first, last in windows(parts.offsets):
        size = int(parts.offsets[last] - parts.offsets[first]) + 4 * (last - first)
        out = new_array(size, np.uint8)
        put = kernels.put_framed(parts.data, parts.offsets, parts.valid, first, last, out)
        yield out.data[:put]
