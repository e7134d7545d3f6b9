"""The columns are those that Spark expects of its Kafka source; it compares them strictly."""

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from holdfast.columnar.arrow import Schema
from holdfast.columnar.schema import SCHEMA, SCHEMA_WITH_HEADERS

PLAIN = (
    StructType()
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("timestampType", IntegerType())
)
HEADER = StructType().add("key", StringType()).add("value", BinaryType())
WITH_HEADERS = StructType([*PLAIN.fields]).add("headers", ArrayType(HEADER))


@pytest.mark.parametrize(
    ("spark", "ours"),
    [(PLAIN, SCHEMA), (WITH_HEADERS, SCHEMA_WITH_HEADERS)],
    ids=["plain", "headers"],
)
def test_spark_takes_the_columns_as_they_are(spark: StructType, ours: Schema):
    assert to_arrow_schema(spark, timezone="UTC").equals(ours)
