"""The reader of what has landed: options, schemas, pruning and rows, without a JVM."""

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from tests.support.ledgered import Sink, rows

from holdfast.errors import ConfigurationError, CorruptObject, HoldfastError, ObjectNotFound
from holdfast.landing.ledger_entry import FileRole
from holdfast.spark.source.landed_source import (
    LandedReader,
    LandedSource,
    grouped,
    parse_landed_options,
)


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path / "lake")


def source(sink: Sink, **options: str) -> LandedSource:
    return LandedSource({"store": sink.url, "sinkId": "orders", **options})


def read(made: LandedSource) -> list[dict[str, Any]]:
    """All rows, through the calls that Spark makes."""
    schema = made.schema()
    assert isinstance(schema, StructType)
    reader = made.reader(schema)
    return [row for part in reader.partitions() for row in rows_of(reader, part)]


def rows_of(reader: LandedReader, part: Any) -> list[dict[str, Any]]:
    return [row for batch in reader.read(part) for row in batch.to_pylist()]


def test_exactly_the_committed_rows_are_read_and_no_orphan(sink: Sink):
    sink.commit(rows("a", "b"), late=rows("late"))
    sink.commit(rows("c"))
    sink.write(2, rows("not committed"))
    assert [row["id"] for row in read(source(sink))] == ["a", "b", "c"]
    assert [row["id"] for row in read(source(sink, files="late"))] == ["late"]


def test_partition_columns_are_columns_with_their_types_and_prune_files(sink: Sink):
    fields = [pa.field("day", pa.date32()), pa.field("shard", pa.int32())]
    files = [
        sink.write(0, rows("a"), {"day": "2026-11-16", "shard": "1"}, fields=fields),
        sink.write(0, rows("b"), {"day": "2026-11-17", "shard": "2"}, fields=fields),
        sink.write(0, rows("c"), {"day": None, "shard": "2"}, fields=fields),
    ]
    sink.publish(files, 0)
    assert read(source(sink))[0] == {
        "id": "a",
        "size": 1,
        "day": datetime.date(2026, 11, 16),
        "shard": 1,
    }
    (sink.folder / files[0].path).unlink()
    kept = read(source(sink, partitions=json.dumps({"shard": [2]})))
    assert [row["id"] for row in kept] == ["b", "c"]
    nulls = read(source(sink, partitions=json.dumps({"shard": ["2"], "day": [None]})))
    assert [row["id"] for row in nulls] == ["c"]
    assert read(source(sink, partitions=json.dumps({"shard": [9]}))) == []
    with pytest.raises(ObjectNotFound, match=files[0].path):
        read(source(sink))


def test_a_partition_column_without_a_word_in_the_footer_is_text(sink: Sink):
    sink.publish([sink.write(0, rows("a"), {"shard": "7"})], 0)
    assert read(source(sink))[0]["shard"] == "7"


def test_only_columns_of_the_path_can_be_chosen_by(sink: Sink):
    sink.commit(rows("a"))
    with pytest.raises(ConfigurationError, match=r"not partitioned by 'id'.*use where"):
        read(source(sink, partitions='{"id": ["a"]}'))


def test_a_column_that_only_older_files_have_is_never_dropped_in_silence(sink: Sink):
    sink.commit(pa.table({"id": ["a"], "old": [1]}))
    sink.commit(pa.table({"id": ["b"]}))
    with pytest.raises(HoldfastError, match=r"'old'.*mergeSchema"):
        read(source(sink))
    merged = read(source(sink, mergeSchema="true"))
    assert merged == [{"id": "a", "old": 1}, {"id": "b", "old": None}]


def test_a_column_that_only_newer_files_have_is_null_before(sink: Sink):
    sink.commit(pa.table({"id": ["a"]}))
    sink.commit(pa.table({"id": ["b"], "new": [1]}))
    assert read(source(sink)) == [{"id": "a", "new": None}, {"id": "b", "new": 1}]


def test_a_harmed_file_is_named_and_not_a_row_of_it_is_given_out(sink: Sink):
    sink.commit(rows("a"))
    (file,) = sink.files()
    made = source(sink)
    schema = made.schema()
    assert isinstance(schema, StructType)
    body = bytearray((sink.folder / file.path).read_bytes())
    body[10] ^= 1
    (sink.folder / file.path).write_bytes(bytes(body))
    reader = made.reader(schema)
    with pytest.raises(CorruptObject, match=file.path):
        [rows_of(reader, part) for part in reader.partitions()]


def test_a_sink_that_is_not_there_is_refused_with_those_that_are(sink: Sink):
    sink.commit(rows("a"))
    with pytest.raises(ConfigurationError, match=r"no sink 'order'.*sinks there are orders"):
        read(source(sink, sinkId="order"))


def test_a_sink_where_nothing_has_landed_says_so(sink: Sink):
    sink.commit()
    with pytest.raises(ConfigurationError, match="nothing has landed yet"):
        source(sink).schema()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "say where to read"),
        ({"store": "x"}, "only one of both"),
        ({"store": "x", "sinkId": "a", "topic": "b"}, "only one of both"),
        ({"store": "x", "sinkID": "a", "mergeSchemas": "true"}, "did you mean mergeSchema"),
        ({"store": "x", "sinkId": "../a"}, "cannot be used"),
        ({"store": "x", "sinkId": "a", "files": "all"}, "use rows or late"),
        ({"store": "x", "sinkId": "a", "files": "dead"}, "dead with topic"),
        ({"store": "x", "sinkId": "a", "minPartitions": "0"}, "from 1 on"),
        ({"store": "x", "sinkId": "a", "includeHeaders": "yes"}, "use true or false"),
        ({"store": "x", "sinkId": "a", "partitions": "day=1"}, "the values to read"),
        ({"store": "x", "topic": "a", "partitions": '{"offset": [1]}'}, "the values to read"),
    ],
)
def test_options_that_cannot_be_used_are_refused_with_the_remedy(
    options: dict[str, str], message: str
):
    with pytest.raises(ConfigurationError, match=message):
        parse_landed_options(options)


def test_option_names_are_case_insensitive():
    parsed = parse_landed_options({"STORE": "x", "sinkid": "a", "FILES": "late"})
    assert (parsed.sink_id, parsed.role) == ("a", FileRole.LATE)
    assert parse_landed_options({"store": "x", "topic": "a", "files": "Dead"}).dead


def test_tasks_are_groups_of_files_by_bytes_in_order():
    mib = 1024 * 1024
    assert grouped([], 8) == []
    assert grouped([1, 1, 1], 8) == [(0, 3)]
    assert grouped([3 * mib] * 4, 1) == [(0, 4)]
    assert grouped([3 * mib] * 4, 4) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert grouped([9 * mib, 1, 1], 8) == [(0, 1), (1, 3)]
