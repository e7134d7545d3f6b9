"""Records of which only the value was kept, as a batch with the log's columns.

Pure. Owns what is null there: keys and times, and offsets where the object's range has holes.
"""

from typing import Any

from holdfast.columnar.schema import SCHEMA
from holdfast.landing.arrow import RecordBatch, pa
from holdfast.landing.facts import Facts

VALUE_COLUMNS = ("value", "offset")


def value_batch(column: Any, start: int, facts: Facts) -> RecordBatch:
    """Values of an object, of which the first is its record number `start`."""
    rows = len(column)
    dense = facts.last_offset - facts.first_offset + 1 == facts.records
    first = facts.first_offset + start
    schema: Any = SCHEMA
    nulls = {name: pa.nulls(rows, schema.field(name).type) for name in schema.names}
    columns = nulls | {
        "value": column,
        "topic": pa.repeat(pa.scalar(facts.topic, schema.field("topic").type), rows),
        "partition": pa.repeat(pa.scalar(facts.partition, pa.int32()), rows),
    }
    if dense:
        columns["offset"] = pa.array(range(first, first + rows), pa.int64())
    fields = [schema.field(name).with_nullable(True) for name in schema.names]
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=pa.schema(fields))
