"""Partition columns: the types that a footer tells, and texts that become values again."""

import datetime
from typing import Any

import pyarrow as pa
import pytest

from holdfast.errors import CorruptObject
from holdfast.landing.partition_columns import described, partition_fields, partition_value

UTC = datetime.UTC


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int32(), -7),
        (pa.int64(), 2**60),
        (pa.bool_(), True),
        (pa.string(), "50% of a/b"),
        (pa.date32(), datetime.date(2026, 11, 16)),
        (pa.float64(), 1.5),
        (pa.timestamp("us", tz="UTC"), datetime.datetime(2026, 11, 16, 1, 2, 3, 4, tzinfo=UTC)),
        (pa.timestamp("us", tz="UTC"), datetime.datetime(2026, 11, 16, tzinfo=UTC)),
        (pa.timestamp("us"), datetime.datetime(2026, 11, 16, 1, 2, 3)),
    ],
)
def test_a_value_comes_back_from_its_text_by_the_type_in_the_footer(kind: Any, value: Any):
    footer = {k.encode(): v.encode() for k, v in described([pa.field("c", kind)]).items()}
    (field,) = partition_fields(["c"], footer, path="p")
    assert field.type == kind
    text = str(value).lower() if isinstance(value, bool) else str(value)
    assert partition_value(text, field.type, path="p").as_py() == value


def test_a_column_of_bytes_is_text_because_its_path_is():
    footer = {k.encode(): v.encode() for k, v in described([pa.field("c", pa.binary())]).items()}
    assert partition_fields(["c"], footer, path="p")[0].type == pa.string()


def test_without_a_word_a_column_is_text():
    assert partition_fields(["c"], None, path="p")[0].type == pa.string()
    assert described([]) == {}


def test_null_stays_null_and_what_does_not_fit_is_named():
    assert partition_value(None, pa.int32(), path="p").as_py() is None
    with pytest.raises(CorruptObject, match="data/s/x"):
        partition_value("seven", pa.int32(), path="data/s/x")
    with pytest.raises(CorruptObject, match="data/s/x"):
        partition_fields(["c"], {b"holdfast.partition_columns": b"!"}, path="data/s/x")
