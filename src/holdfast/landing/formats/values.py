"""Record batches with the log's columns, from records of which only the value was kept.

Pure. Owns which columns are null: keys and times, and offsets if the object's range has holes. Must
never guess an offset.
"""

from typing import Any

from holdfast.columnar.arrow import RecordBatch, pa
from holdfast.columnar.schema import SCHEMA
from holdfast.landing.facts import Facts

VALUE_COLUMNS = ("value", "offset")


def value_batch(column: Any, start: int, facts: Facts) -> RecordBatch:
    """Return values of an object as a batch. The first is the object's record number `start`."""
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
