"""The one place that imports pyarrow, which has no types, for the landing package.

Owns the imported modules, the casts, and the types of the few pyarrow objects that landing uses.
Must never hold logic.
"""

import importlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

pa: Any = importlib.import_module("pyarrow")
pc: Any = importlib.import_module("pyarrow.compute")
pq: Any = importlib.import_module("pyarrow.parquet")


class RecordBatch(Protocol):
    """The part of pyarrow.RecordBatch that is used here."""

    @property
    def schema(self) -> Any: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def column(self, i: Any) -> Any: ...
    def to_pylist(self) -> list[dict[str, Any]]: ...
    def slice(self, offset: int = 0, length: int | None = None) -> Any: ...


def offsets_of(batch: RecordBatch) -> NDArray[np.int64]:
    """Return the offset column, without a copy."""
    column = batch.column("offset")
    return np.asarray(column.to_numpy(zero_copy_only=column.null_count == 0), dtype=np.int64)


def batches_of(rows: Sequence[dict[str, Any]], schema: Any) -> RecordBatch:
    """Return rows as one record batch."""
    return pa.RecordBatch.from_pylist(list(rows), schema=schema)
