"""File formats: exact both ways, readable by plain tools, and no record becomes two lines."""

import io
import json
import shutil
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.landing.records import ENVIRONMENT, batch, batch_of, new_store, row

from holdfast.errors import ConfigurationError, CorruptObject
from holdfast.landing.blocking import run
from holdfast.landing.chain import Chain, Landed, Refused
from holdfast.landing.blocks import prove
from holdfast.landing.formats.interface import Format
from holdfast.landing.formats.jsonl import JsonLines
from holdfast.landing.formats.known import format_named
from holdfast.landing.formats.parquet import Parquet

FORMATS: list[Format] = [
    JsonLines("value"),
    JsonLines("value", wrap_unfit=True),
    JsonLines("envelope"),
    Parquet(),
]
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


@pytest.mark.parametrize("format", FORMATS[2:], ids=lambda format: format.name)
@settings(max_examples=60, deadline=None)
@given(keys=st.lists(VALUES, min_size=1, max_size=8), values=st.lists(VALUES, min_size=8))
def test_whole_records_come_back_as_they_were(format: Format, keys: list, values: list):
    headers = [{"key": "h", "value": values[0]}, {"key": "", "value": b"\xff\n"}]
    rows = [
        row(offset, key=key, value=value, headers=headers)
        for offset, (key, value) in enumerate(zip(keys, values, strict=False))
    ]
    records = batch(rows)
    assert read_back(landed_bytes(format, records, len(rows))) == records.to_pylist()


@settings(max_examples=100, deadline=None)
@given(values=st.lists(VALUES, min_size=1, max_size=8))
def test_wrapped_values_come_back_as_they_were(values: list):
    values = [*values, b'{"$holdfast":"base64","value":"eA=="}', b"a\nb", b"\r", b""]
    records = batch(row(offset, value=value) for offset, value in enumerate(values))
    body = landed_bytes(JsonLines("value", wrap_unfit=True), records, len(values))
    assert [r["value"] for r in read_back(body)] == values


@pytest.mark.parametrize("value", [None, b"", b"a\nb", b"a\rb", b"\xff", b'{"$holdfast":1}'])
def test_a_value_that_cannot_be_a_line_is_refused_by_its_offset(value: bytes | None):
    async def land() -> Landed | Refused:
        chain = Chain(new_store(), "orders", 3, format=JsonLines("value"), environment=ENVIRONMENT)
        records = batch([row(0), row(1, value=value), row(2)])
        return await chain.land([records], start_offset=0, end_offset=3)

    outcome = run(land())
    assert isinstance(outcome, Refused)
    assert "offset 1" in outcome.reason
    assert "envelope" in outcome.reason


def test_values_have_their_offsets_only_where_the_range_has_no_holes():
    dense = read_back(landed_bytes(JsonLines("value"), batch_of(range(3)), 3))
    assert [r["offset"] for r in dense] == [0, 1, 2]
    holed = read_back(landed_bytes(JsonLines("value"), batch_of([0, 2]), 3))
    assert [r["offset"] for r in holed] == [None, None]


@pytest.mark.skipif(shutil.which("zstd") is None, reason="there is no zstd command here")
def test_the_zstd_command_reads_lines():
    body = landed_bytes(JsonLines("value"), batch_of(range(3)), 3)
    out = subprocess.run(["zstd", "-dc"], input=body, capture_output=True, check=True).stdout
    assert out == b'{"n":0}\n{"n":1}\n{"n":2}\n'


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


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_a_range_without_records_is_a_file_without_rows(format: Format):
    assert read_back(landed_bytes(format, batch_of([]), 5)) == []


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_a_flipped_bit_anywhere_is_noticed(format: Format):
    body = landed_bytes(format, batch_of(range(3)), 3)
    for position in range(0, len(body), 7):
        changed = bytearray(body)
        changed[position] ^= 4
        with pytest.raises(CorruptObject):
            prove(bytes(changed), key="it")


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_an_object_that_was_cut_short_is_noticed(format: Format):
    body = landed_bytes(format, batch_of(range(3)), 3)
    for size in range(0, len(body), 11):
        with pytest.raises(CorruptObject):
            prove(body[:size], key="it")


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ConfigurationError, match="level"):
        Parquet(level=99)
    with pytest.raises(ConfigurationError, match="level"):
        JsonLines(level=0)
    with pytest.raises(ConfigurationError, match="parquet"):
        format_named("orc")
