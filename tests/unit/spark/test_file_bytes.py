"""Output files: bytes that every kind of store takes, and folders whose values keep their types."""

import datetime
import decimal
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from holdfast.errors import ConfigurationError
from holdfast.landing.ledger_entry import FileRole, OutputFile
from holdfast.landing.output_files import read_footer
from holdfast.spark.ledger.files import FileWriter, encode
from holdfast.spark.ledger.job import Output
from holdfast.spark.runtime.worker import worker
from holdfast.spark.source.landed_source import conform, whole_schema


@pytest.mark.parametrize("layout", ["parquet", "jsonl.zst"])
def test_the_client_of_remote_stores_takes_a_file_as_it_is_encoded(layout: str):
    body = encode(pa.table({"id": ["a"]}), Output(store="x", sink_id="s", format=layout))
    store = MemoryStore()
    obstore.put(store, "key", body, mode="create", use_multipart=False)
    there = bytes(obstore.get(store, "key").bytes())
    assert there == bytes(body)
    if layout == "parquet":
        assert pq.read_table(pa.BufferReader(there)).to_pylist() == [{"id": "a"}]


def write(folder: Path, table: pa.Table, by: str, role: FileRole) -> list[OutputFile]:
    here = worker()
    writer = FileWriter(
        store=here.writable(str(folder)),
        output=Output(store=str(folder), sink_id="s", partition_by=(by,)),
        number=7,
        attempt="a",
        task=0,
        environment=here.environment,
    )
    return here.run(writer.write(table, role=role))


def read(folder: Path, file: OutputFile) -> pa.RecordBatch:
    """As the reader of Spark reads it, by the types that its schema tells."""
    here = worker()
    store = here.writable(str(folder))
    footer = here.run(read_footer(store, file, environment=here.environment))
    batch = pq.ParquetFile(folder / file.path).read().combine_chunks().to_batches()[0]
    target = whole_schema(file, footer)
    return conform(batch, target, file.path, file.partition_values, True)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([3, None], pa.int32()),
        ([True, False], pa.bool_()),
        ([0.1, 1e300], pa.float64()),
        ([decimal.Decimal("1.50")], pa.decimal128(9, 2)),
        ([datetime.date(2026, 11, 16), None], pa.date32()),
        ([datetime.datetime(2026, 11, 16, 1, 2, 3, 4, datetime.UTC)], pa.timestamp("us", "UTC")),
        ([datetime.datetime(2026, 11, 16)], pa.timestamp("us")),
        (["a/b=c%", "", None], pa.string()),
    ],
    ids=str,
)
@pytest.mark.parametrize("role", FileRole)
def test_values_of_folders_are_read_back_with_the_type_that_their_column_had(
    tmp_path: Path, values: list[Any], kind: Any, role: FileRole
):
    table = pa.table({"id": list(range(len(values))), "by": pa.array(values, kind)})
    files = write(tmp_path, table, "by", role)
    assert len(files) == len(values)
    batches = [read(tmp_path, file) for file in files]
    assert {batch.schema.field("by").type for batch in batches} == {kind}
    found = {row["id"]: row["by"] for batch in batches for row in batch.to_pylist()}
    assert found == dict(enumerate(values))


def test_late_files_have_a_folder_of_their_own(tmp_path: Path):
    table = pa.table({"id": [1], "by": ["x"]})
    paths = [write(tmp_path, table, "by", role)[0].path for role in FileRole]
    name = f"{7:020d}-a-00000-000.parquet"
    assert paths == [f"data/s/by=x/{name}", f"data/s/_late/by=x/{name}"]


def test_what_cannot_be_told_by_a_path_comes_back_as_text(tmp_path: Path):
    table = pa.table({"id": [1, 2], "by": [b"\xff", b"b"]})
    found = [read(tmp_path, file) for file in write(tmp_path, table, "by", FileRole.ROWS)]
    assert sorted(batch["by"][0].as_py() for batch in found) == ["\\xff", "b"]
    with pytest.raises(ConfigurationError, match="no column 'day' to partition by; there are id"):
        write(tmp_path, table, "day", FileRole.ROWS)
