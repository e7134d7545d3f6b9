"""The bytes of output files are such that every kind of store takes them."""

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from holdfast.spark.files import encode
from holdfast.spark.job import Output


@pytest.mark.parametrize("layout", ["parquet", "jsonl.zst"])
def test_the_client_of_remote_stores_takes_a_file_as_it_is_encoded(layout: str):
    body = encode(pa.table({"id": ["a"]}), Output(store="x", sink_id="s", format=layout))
    store = MemoryStore()
    obstore.put(store, "key", body, mode="create", use_multipart=False)
    there = bytes(obstore.get(store, "key").bytes())
    assert there == bytes(body)
    if layout == "parquet":
        assert pq.read_table(pa.BufferReader(there)).to_pylist() == [{"id": "a"}]
