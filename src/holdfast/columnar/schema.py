"""The columns of a topic's records, with the names and types of Spark's Kafka source.

Pure. Owns the schemas. They must never differ from Spark's, which compares them strictly, even the
name of a list's element.
"""

from typing import Any

from holdfast.columnar.arrow import Schema, pa

TIMESTAMP: Any = pa.timestamp("us", tz="UTC")
HEADERS: Any = pa.list_(
    pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
)

SCHEMA: Schema = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS: Schema = pa.schema([*pa.schema(SCHEMA), ("headers", HEADERS)])
