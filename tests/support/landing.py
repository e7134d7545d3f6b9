"""Records to land, and a store to land them in."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from holdfast.columnar.schema import SCHEMA, SCHEMA_WITH_HEADERS
from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.store.memory import MemoryStore

ENVIRONMENT = SeededEnvironment(seed=1, clock=VirtualClock())


def new_store() -> MemoryStore:
    return MemoryStore(environment=ENVIRONMENT)


def row(offset: int, **other: Any) -> dict[str, Any]:
    return {
        "key": b"k%d" % offset,
        "value": b'{"n":%d}' % offset,
        "topic": "orders",
        "partition": 3,
        "offset": offset,
        "timestamp": 1_700_000_000_123_000 + offset * 1000,
        "timestampType": 0,
        **other,
    }


def batch(rows: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    listed = list(rows)
    with_headers = bool(listed) and "headers" in listed[0]
    return pa.RecordBatch.from_pylist(
        listed, schema=SCHEMA_WITH_HEADERS if with_headers else SCHEMA
    )


def batch_of(offsets: Iterable[int]) -> pa.RecordBatch:
    return batch(row(offset) for offset in offsets)
