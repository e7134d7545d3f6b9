"""Record batches inside tasks: reads ranges as Arrow, and finds the keys and event times of rows.

Runs on executors. Owns what a key expression means. Must never need Spark.
"""

import pickle
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.columnar.arrow import RecordBatch, pa
from holdfast.columnar.hashing import hash_columns
from holdfast.columnar.schema import SCHEMA_WITH_HEADERS
from holdfast.errors import ConfigurationError
from holdfast.keyed_state.pinned import TIME_MIN
from holdfast.spark.source.inputs import LeftOut, Range, read_range

RANGE = "range"
JSON_MARK = ".$."
HEADER_MARK = "headers."


def records(
    batches: Iterable[Any],
    columns: Collection[str] | None = None,
    left_out: LeftOut | None = None,
) -> Iterator[RecordBatch]:
    """Yield the rows themselves: ranges are read here, all other batches are passed on.

    If columns are named, others may be missing in what is read. What cannot be read is counted in
    `left_out`.
    """
    for batch in batches:
        if batch.schema.names != [RANGE]:
            yield batch
            continue
        for wanted in batch.column(0).to_pylist():
            yield from read_range(pickle.loads(wanted), columns, left_out)


def range_batch(ranges: Iterable[Range]) -> RecordBatch:
    """Return ranges as a batch with the rows that stand for them."""
    rows = pa.array([pickle.dumps(wanted) for wanted in ranges], pa.binary())
    return pa.RecordBatch.from_arrays([rows], names=[RANGE])


def columns_read(expressions: Iterable[str]) -> frozenset[str] | None:
    """Return the columns of records that expressions use; None, for all, if one is unknown."""
    found: set[str] = set()
    for expression in expressions:
        column = "headers" if expression.startswith(HEADER_MARK) else expression
        column = column.partition(JSON_MARK)[0]
        if column not in SCHEMA_WITH_HEADERS.names:
            return None
        found.add(column)
    return frozenset(found)


def key_column(batch: RecordBatch, expression: str) -> Any:
    """Return a column, a field of a JSON column (`value.$.id`), or a header (`headers.id`)."""
    names: list[str] = batch.schema.names
    if expression in names:
        return batch.column(expression)
    if JSON_MARK in expression:
        from holdfast.columnar.json_field import json_field

        column, _, path = expression.partition(JSON_MARK)
        if column in names:
            return json_field(batch.column(column), path)
    if expression.startswith(HEADER_MARK) and "headers" in names:
        return _header(batch.column("headers"), expression.removeprefix(HEADER_MARK))
    raise ConfigurationError(
        f"there is no column {expression!r} to take keys or times from; there are"
        f" {', '.join(names)} (and, for a JSON column, {names[0]}.$.field)"
    )


def _header(column: Any, name: str) -> Any:
    """Return each row's last header of this name, as Kafka's clients do; null if it has none."""
    lists = column.to_pylist()
    found: list[bytes | None] = []
    for headers in lists:
        values = [header["value"] for header in headers or () if header["key"] == name]
        found.append(values[-1] if values else None)
    return pa.array(found, pa.binary())


class Keys:
    """The hashed keys of the rows of one batch."""

    def __init__(self, batch: RecordBatch, by: tuple[str, ...], seed: int) -> None:
        columns = [key_column(batch, expression) for expression in by]
        self.low, self.high = hash_columns(columns, seed)
        keyless = np.ones(batch.num_rows, np.bool_)
        for column in columns:
            keyless &= np.asarray(column.is_null().to_numpy(zero_copy_only=False))
        self.keyless: NDArray[np.bool_] = keyless
        """Rows whose key columns are all null. They cannot be compared, so they are kept."""


def event_times(batch: RecordBatch, column: str | None) -> NDArray[np.int64]:
    """Return event times in milliseconds; a row without a time is before all others."""
    if column is None:
        return np.zeros(batch.num_rows, np.int64)
    times = key_column(batch, column)
    if pa.types.is_timestamp(times.type):
        times = times.cast(pa.timestamp("ms", tz=times.type.tz), safe=False).cast(pa.int64())
    elif pa.types.is_integer(times.type):
        times = times.cast(pa.int64())
    else:
        raise ConfigurationError(
            f"the column {column!r} has the type {times.type}: event times must be a timestamp, or"
            " whole milliseconds since 1970"
        )
    return np.asarray(times.fill_null(TIME_MIN).to_numpy(), np.int64)
