"""Files under way: what they hold is compressed, counted, and the same as a file made at once."""

import sys
import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from tests.support.landing import batch, batch_of, row
from tests.unit.landing.all_formats import FORMATS

from holdfast.columnar.schema import SCHEMA
from holdfast.errors import CallError
from holdfast.landing.facts import checksum
from holdfast.landing.formats.codecs import GATHER_BYTES, Compressor, FileCodec, decompress
from holdfast.landing.formats.interface import Encoded, Format, Unfit
from holdfast.landing.formats.jsonl import JsonLines
from holdfast.landing.formats.parquet import Parquet
from holdfast.landing.formats.raw import Raw

MIB = 1024 * 1024


def joined(encoded: Encoded) -> bytes:
    return b"".join([*map(bytes, encoded.body), encoded.after])


def big_batch(rows: int, value_bytes: int = 200) -> pa.RecordBatch:
    words = np.random.default_rng(7).integers(0, 200, (rows, value_bytes // 10))
    values = [b'{"n":"' + b" ".join(b"word%d" % word for word in line) + b'"}' for line in words]
    return batch(row(offset, value=value) for offset, value in enumerate(values))


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_a_file_that_fills_batch_by_batch_is_the_file_of_all(format: Format):
    batches = [batch_of(range(start, start + 700)) for start in range(0, 7000, 700)]
    writer = format.writer()
    for part in batches:
        writer.add(part)
    assert writer.rows == 7000
    filled = writer.finish({"a": "b"})
    assert joined(filled) == joined(format.encode(batches, {"a": "b"}))
    assert filled.body_crc == checksum(filled.body)
    assert filled.body_bytes + len(filled.after) == len(joined(filled))


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_a_finished_file_takes_nothing_more(format: Format):
    writer = format.writer()
    writer.add(batch_of(range(3)))
    writer.finish({})
    with pytest.raises(CallError, match="finished"):
        writer.add(batch_of(range(3)))
    with pytest.raises(CallError, match="twice"):
        writer.finish({})


@pytest.mark.parametrize("compression", ["zstd", "gzip", "lz4"])
def test_an_open_file_of_lines_holds_compressed_bytes_only(compression: str):
    writer = JsonLines(compression=compression).writer()
    records = big_batch(20_000)
    value_bytes = records.column("value").nbytes
    for _ in range(4):
        writer.add(records)
    held = writer.held_bytes
    file_bytes = len(joined(writer.finish({})))
    assert file_bytes - 16 < held < file_bytes + 1.2 * MIB + GATHER_BYTES
    assert held < 0.7 * 4 * value_bytes


def test_few_records_wait_without_a_stream():
    writer = JsonLines().writer()
    writer.add(batch_of(range(100)))
    assert writer.held_bytes == sum(len(b'{"n":%d}\n' % n) for n in range(100))


def test_parquet_writes_row_groups_as_they_fill():
    records = big_batch(5_000)
    format = Parquet(row_group_bytes=2 * records.nbytes)
    writer = format.writer()
    held: list[int] = []
    for _ in range(5):
        writer.add(records)
        held.append(writer.held_bytes)
    assert held[0] == records.nbytes
    assert held[1] < records.nbytes
    assert held[2] == held[1] + records.nbytes
    body = joined(writer.finish({}))
    file = pa.parquet.ParquetFile(pa.BufferReader(body))
    assert [file.metadata.row_group(i).num_rows for i in range(3)] == [10_000, 10_000, 5_000]


@pytest.fixture
def no_switches() -> Iterator[None]:
    """A thread gives the GIL away only of its own accord."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("no_switches")
@pytest.mark.parametrize("compression", ["zstd", "gzip", "lz4"])
def test_others_run_while_a_file_is_compressed(compression: str):
    piece = np.random.default_rng(1).integers(0, 60, 24 * MIB).astype(np.uint8).tobytes()

    def ran_beside() -> bool:
        compressor = Compressor(FileCodec.named(compression))
        has_begun, is_done = threading.Event(), threading.Event()

        def compress() -> None:
            has_begun.set()
            compressor.add(piece)
            is_done.set()

        thread = threading.Thread(target=compress)
        thread.start()
        has_begun.wait()
        ran = not is_done.is_set()
        thread.join()
        return ran

    assert any(ran_beside() for _ in range(5))


@pytest.mark.parametrize("codec", list(FileCodec))
def test_bytes_that_cannot_be_compressed_come_back(codec: FileCodec):
    noise = np.random.default_rng(2).bytes(3 * MIB + 17)
    compressor = Compressor(codec)
    for start in range(0, len(noise), 700_001):
        compressor.add(noise[start : start + 700_001])
    assert decompress(codec, b"".join(map(bytes, compressor.finish())), key="it") == noise


@pytest.mark.parametrize("level", [2, 3, 9])
def test_other_levels_of_zstd_are_one_frame_too(level: int):
    compressor = Compressor(FileCodec.ZSTD, level)
    for _ in range(5):
        compressor.add(b"0123456789" * 40_000)
    body = b"".join(map(bytes, compressor.finish()))
    assert decompress(FileCodec.ZSTD, body, key="it") == b"0123456789" * 200_000
    assert body.count(bytes.fromhex("28b52ffd")) == 1


def test_what_does_not_fit_is_sorted_out_with_its_reason():
    values = [b"{}", None, b"", b"{\n}", b"\xff", b"{", b'{"$holdfast":1}', b" [1] ", b"1 2"]
    records = batch(row(100 + i, value=value) for i, value in enumerate(values))
    fit, unfit = JsonLines(require_json=True).sort_out(records)
    assert fit.column("value").to_pylist() == [b"{}", b" [1] "]
    assert fit.column("offset").to_pylist() == [100, 107]
    assert {found.offset: found.problem[:30] for found in unfit} == {
        101: "its value is null",
        102: "its value is empty",
        103: "its value has a line feed or a",
        104: "its value is not UTF-8",
        105: "its value is not one JSON text",
        106: 'its value begins with {"$holdf',
        108: "its value is not one JSON text",
    }
    assert JsonLines().sort_out(records)[0].num_rows == 4


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_a_batch_in_which_all_fits_is_handed_on_as_it_is(format: Format):
    records = batch_of(range(10)).select([n for n in SCHEMA.names if n in format.columns])
    assert format.sort_out(records) == (records, [])
    assert format.sort_out(records)[0] is records


@pytest.mark.parametrize(
    "format",
    [
        JsonLines(record_bytes_max=300),
        JsonLines("envelope", record_bytes_max=300),
        JsonLines(wrap_unfit=True, record_bytes_max=300),
        Raw(record_bytes_max=300),
        Parquet(record_bytes_max=300),
    ],
    ids=lambda format: format.name,
)
def test_a_record_beyond_the_bound_fits_nowhere(format: Format):
    headers = [{"key": "h", "value": b"v" * 100}]
    sizes = {0: 100, 1: 199, 2: 198, 3: 301 - 103}
    records = batch(
        row(offset, key=b"k", value=b"1" * size, headers=headers) for offset, size in sizes.items()
    )
    fit, unfit = format.sort_out(records)
    assert unfit == [Unfit(offset=1, problem="it is larger than 300 bytes: it has 301")]
    assert fit.column("offset").to_pylist() == [0, 2, 3]
    assert format.check(records.slice(2)) is None
    found = format.check(records)
    assert found is not None
    assert found.offset == 1
