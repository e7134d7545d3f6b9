"""What the landing package uses of pyarrow beside `holdfast.columnar.arrow`: compute and Parquet.

Owns the imported modules and the casts. Must never hold logic.
"""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.columnar.arrow import RecordBatch, pa

pq: Any = importlib.import_module("pyarrow.parquet")


def offsets_of(batch: RecordBatch) -> NDArray[np.int64]:
    """Return the offset column, without a copy."""
    column = batch.column("offset")
    return np.asarray(column.to_numpy(zero_copy_only=column.null_count == 0), dtype=np.int64)


def batches_of(rows: Sequence[dict[str, Any]], schema: Any) -> RecordBatch:
    """Return rows as one record batch."""
    return pa.RecordBatch.from_pylist(list(rows), schema=schema)
