"""File formats: exact both ways, readable by plain tools, and no record becomes two lines."""

import gzip
import io
import json
import shutil
import struct
import subprocess
import zlib

import cramjam
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq
import pytest
from fastcrc import crc32
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.landing import ENVIRONMENT, batch, batch_of, new_store, row
from tests.unit.landing.all_formats import CODECS, FORMATS, LINES, RAW, WHOLE, WRAPPED

from holdfast.errors import ConfigurationError, CorruptObject
from holdfast.landing.blocking import run
from holdfast.landing.blocks import prove
from holdfast.landing.chain import Chain, Landed, NotLanded
from holdfast.landing.formats.interface import Format, Unfit
from holdfast.landing.formats.jsonl import JsonLines
from holdfast.landing.formats.known import format_named, new_format
from holdfast.landing.formats.parquet import Parquet
from holdfast.landing.formats.raw import Raw

VALUES = st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=10).map(str.encode))


def landed_bytes(format: Format, records: pa.RecordBatch, end: int) -> bytes:
    async def land() -> bytes:
        store = new_store()
        chain = Chain(store, "orders", 3, format=format, environment=ENVIRONMENT)
        outcome = await chain.land([records], start_offset=0, end_offset=end)
        assert isinstance(outcome, Landed), outcome
        return await store.read(chain.key(0))

    return run(land())


def read_back(body: bytes) -> list[dict]:
    facts = prove(body, key="it")
    return [r for b in format_named(facts.format).decode(body, facts) for r in b.to_pylist()]


@pytest.mark.parametrize("format", WHOLE, ids=lambda format: format.name)
@settings(max_examples=40, deadline=None)
@given(keys=st.lists(VALUES, min_size=1, max_size=8), values=st.lists(VALUES, min_size=8))
def test_whole_records_come_back_as_they_were(format: Format, keys: list, values: list):
    headers = [{"key": "h", "value": values[0]}, {"key": "", "value": b"\xff\n"}]
    rows = [
        row(offset, key=key, value=value, headers=headers)
        for offset, (key, value) in enumerate(zip(keys, values, strict=False))
    ]
    records = batch(rows)
    assert read_back(landed_bytes(format, records, len(rows))) == records.to_pylist()


@pytest.mark.parametrize("format", [*WRAPPED, *RAW], ids=lambda format: format.name)
@settings(max_examples=40, deadline=None)
@given(values=st.lists(VALUES, min_size=1, max_size=8))
def test_values_of_any_bytes_come_back_as_they_were(format: Format, values: list):
    values = [*values, b'{"$holdfast":"base64","value":"eA=="}', b"a\nb", b"\r", b"", b" \t"]
    records = batch(row(offset, value=value) for offset, value in enumerate(values))
    assert [r["value"] for r in read_back(landed_bytes(format, records, len(values)))] == values


@pytest.mark.parametrize("format", LINES, ids=lambda format: format.name)
def test_a_value_that_ends_in_white_space_keeps_it(format: Format):
    values = [b"1 \t", b" 2", b"3\t  "]
    records = batch(row(offset, value=value) for offset, value in enumerate(values))
    assert [r["value"] for r in read_back(landed_bytes(format, records, 3))] == values


@pytest.mark.parametrize("codec", CODECS)
def test_names_and_extensions_say_the_codec(codec: str):
    end = {"zstd": ".zst", "gzip": ".gz", "lz4": ".lz4", "none": ""}[codec]
    assert JsonLines(compression=codec).name == f"jsonl{end}/value"
    assert JsonLines(compression=codec, wrap_unfit=True).name == f"jsonl{end}/value-wrapped"
    assert JsonLines("envelope", compression=codec).name == f"jsonl{end}/envelope"
    assert JsonLines(compression=codec).extension == f".jsonl{end}"
    assert (Raw(compression=codec).name, Raw(compression=codec).extension) == (
        f"raw{end}",
        f".raw{end}",
    )
    assert Parquet(compression=codec).name == "parquet"


def test_the_sink_asks_for_json_by_default_and_the_job_on_spark_does_not():
    records = batch([row(0), row(1, value=b"plain text")])
    assert new_format("jsonl").check(records) == Unfit(
        offset=1,
        problem="its value is not one JSON text, nested at most 1024 deep, and nothing else; use"
        " the envelope layout, or wrap_unfit, or divert such records",
    )
    assert JsonLines().check(records) is None
    for format in ("raw", "parquet"):
        assert new_format(format).check(records) is None


@pytest.mark.parametrize("value", [None, b"", b"a\nb", b"a\rb", b"\xff", b'{"$holdfast":1}'])
def test_a_value_that_cannot_be_a_line_is_refused_by_its_offset(value: bytes | None):
    async def land() -> Landed | NotLanded:
        chain = Chain(new_store(), "orders", 3, format=JsonLines("value"), environment=ENVIRONMENT)
        records = batch([row(0), row(1, value=value), row(2)])
        return await chain.land([records], start_offset=0, end_offset=3)

    outcome = run(land())
    assert isinstance(outcome, NotLanded)
    assert "offset 1" in outcome.reason
    assert "envelope" in outcome.reason


def test_values_have_their_offsets_only_where_the_range_has_no_holes():
    dense = read_back(landed_bytes(JsonLines("value"), batch_of(range(3)), 3))
    assert [r["offset"] for r in dense] == [0, 1, 2]
    holed = read_back(landed_bytes(JsonLines("value"), batch_of([0, 2]), 3))
    assert [r["offset"] for r in holed] == [None, None]


DECODERS = {
    "zstd": ["zstd", "-dc"],
    "gzip": ["gzip", "-dc"],
    "lz4": ["lz4", "-dc"],
    "none": ["cat"],
}
MANY = batch_of(range(30_000))
MANY_LINES = b"".join(b'{"n":%d}\n' % offset for offset in range(30_000))


@pytest.mark.parametrize("records", [MANY, batch_of(range(3)), batch_of([])], ids=len)
@pytest.mark.parametrize("codec", CODECS)
def test_commands_read_lines(codec: str, records: pa.RecordBatch):
    if shutil.which(DECODERS[codec][0]) is None:
        pytest.skip(f"there is no {DECODERS[codec][0]} command here")
    body = landed_bytes(JsonLines("value", compression=codec), records, 30_000)
    out = subprocess.run(DECODERS[codec], input=body, capture_output=True, check=True).stdout
    values = records.column("value").to_pylist()
    assert [json.loads(line) for line in out.splitlines() if line.strip()] == [
        json.loads(value) for value in values
    ]
    if codec != "none":
        assert out == b"".join(value + b"\n" for value in values)


@pytest.mark.parametrize("codec", ["zstd", "gzip", "lz4"])
def test_pyarrow_streams_read_lines_whole(codec: str):
    body = landed_bytes(JsonLines("value", compression=codec), MANY, 30_000)
    with pa.input_stream(io.BytesIO(body), compression=codec) as stream:
        assert stream.read() == MANY_LINES


@pytest.mark.parametrize("records", [MANY, batch_of([])], ids=len)
def test_python_reads_gzip_and_its_first_member_has_all_records(records: pa.RecordBatch):
    body = landed_bytes(JsonLines("value", compression="gzip"), records, 30_000)
    lines = b"".join(value + b"\n" for value in records.column("value").to_pylist())
    assert gzip.decompress(body) == lines
    first = zlib.decompressobj(wbits=31)
    assert first.decompress(body) == lines
    assert first.eof
    assert len(first.unused_data) == 1024


def test_all_records_are_in_the_first_frame_of_zstd_and_of_lz4():
    for codec, library in (("zstd", cramjam.zstd), ("lz4", cramjam.lz4)):
        body = landed_bytes(JsonLines("value", compression=codec), MANY, 30_000)
        assert bytes(library.decompress(body[:-1024])) == MANY_LINES
        assert body[-1024:-1020] == bytes.fromhex("5e2a4d18")


@pytest.mark.parametrize("layout", ["value", "envelope"])
def test_readers_of_json_lines_read_plain_lines(layout: str):
    body = landed_bytes(JsonLines(layout, compression="none"), MANY, 30_005)
    table = pa.json.read_json(io.BytesIO(body))
    assert table.num_rows == 30_000
    assert body.count(b"\n") == 30_000
    rows = [json.loads(line) for line in body.splitlines()]
    assert table.to_pylist()[-1] == rows[-1] or layout == "envelope"


def test_raw_values_stand_behind_their_lengths():
    records = batch([row(0, value=b"ab"), row(1, value=None), row(2, value=b"")])
    plain = landed_bytes(Raw(compression="none"), records, 3)
    framed = b"\0\0\0\x02ab" + b"\xff\xff\xff\xff" + b"\0\0\0\0"
    assert plain[: len(framed)] == framed
    assert int.from_bytes(plain[len(framed) :][:4], "big", signed=True) == -2
    assert len(plain) == len(framed) + 1024
    packed = landed_bytes(Raw(compression="gzip"), records, 3)
    assert gzip.decompress(packed) == framed


def test_pyarrow_reads_lines_of_the_envelope():
    body = landed_bytes(JsonLines("envelope"), batch([row(0, key=b"\xff")]), 1)
    with pa.input_stream(io.BytesIO(body), compression="zstd") as stream:
        line = json.loads(stream.read())
    assert line == {
        "key_base64": "/w==",
        "value": '{"n":0}',
        "topic": "orders",
        "partition": 3,
        "offset": 0,
        "timestamp": 1_700_000_000_123,
        "timestampType": 0,
    }


def test_pyarrow_reads_parquet_and_finds_the_facts_in_the_footer():
    records = batch_of(range(1000))
    file = pq.ParquetFile(
        io.BytesIO(landed_bytes(Parquet(level=5, rows_per_group=300), records, 1005))
    )
    assert file.read().to_pylist() == records.to_pylist()
    assert file.metadata.num_row_groups == 4
    assert file.metadata.metadata[b"holdfast.last_offset"] == b"1004"
    assert file.metadata.row_group(0).column(1).compression == "ZSTD"


@pytest.mark.parametrize(
    ("codec", "shown"),
    [("zstd", "ZSTD"), ("gzip", "GZIP"), ("lz4", "LZ4"), ("none", "UNCOMPRESSED")],
)
def test_parquet_says_its_codec_inside(codec: str, shown: str):
    body = landed_bytes(Parquet(compression=codec), batch_of(range(100)), 100)
    file = pq.ParquetFile(io.BytesIO(body))
    assert file.metadata.row_group(0).column(1).compression == shown
    assert file.read().num_rows == 100


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_a_range_without_records_is_a_file_without_rows(format: Format):
    assert read_back(landed_bytes(format, batch_of([]), 5)) == []


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_a_flipped_bit_anywhere_is_noticed(format: Format):
    body = landed_bytes(format, batch_of(range(3)), 3)
    for position in range(0, len(body), 13):
        changed = bytearray(body)
        changed[position] ^= 4
        with pytest.raises(CorruptObject):
            prove(bytes(changed), key="it")


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_an_object_that_was_cut_short_is_noticed(format: Format):
    body = landed_bytes(format, batch_of(range(3)), 3)
    for size in range(0, len(body), 23):
        with pytest.raises(CorruptObject):
            prove(body[:size], key="it")


def test_an_object_of_the_first_version_is_read():
    text = (
        b'{"after_bytes":0,"after_crc":0,"body_bytes":%d,"body_crc":%d,"first_offset":5,'
        b'"format":"jsonl.zst/value","last_offset":6,"partition":3,"records":2,"topic":"orders",'
        b'"version":1,"writer_id":"00"}'
    )
    body = bytes(cramjam.zstd.compress(b"1\n2\n", level=3))
    padded = (text % (len(body), crc32.iscsi(body))).ljust(1008)
    block = struct.pack("<II4sI", 0x184D2A5E, 1016, b"HFC1", crc32.iscsi(padded)) + padded
    rows = read_back(body + block)
    assert [(r["offset"], r["value"]) for r in rows] == [(5, b"1"), (6, b"2")]


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ConfigurationError, match="level"):
        Parquet(level=99)
    with pytest.raises(ConfigurationError, match="level"):
        JsonLines(level=0)
    with pytest.raises(ConfigurationError, match="level"):
        JsonLines(compression="lz4", level=3)
    with pytest.raises(ConfigurationError, match="zstd, gzip, lz4 or none"):
        Raw(compression="snappy")
    with pytest.raises(ConfigurationError, match="cannot be limited"):
        Raw(record_bytes_max=0)
    with pytest.raises(ConfigurationError, match="parquet"):
        format_named("orc")
