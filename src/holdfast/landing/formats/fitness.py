"""Checks of which records a format can hold, on whole columns.

Pure. Owns the reasons. A batch in which every record fits, as in nearly all, must never be copied.
"""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from holdfast.columnar import line_kernels as kernels
from holdfast.columnar.arrow import RecordBatch, bytes_of, pa
from holdfast.errors import ConfigurationError, CorruptObject
from holdfast.json_bytes import WRAP_START
from holdfast.landing.arrow import offsets_of
from holdfast.landing.formats.columns import parts_of, record_bytes
from holdfast.landing.formats.interface import Unfit

TOO_LARGE = 255
"""Number of a problem that is not among the kernel's problems of lines."""

_PROBLEMS = {
    kernels.NULL: "its value is null",
    kernels.EMPTY: "its value is empty",
    kernels.LINE_BREAK: "its value has a line feed or a carriage return inside",
    kernels.MARKED: 'its value begins with {"$holdfast", which marks wrapped values',
    kernels.NOT_UTF8: "its value is not UTF-8",
    kernels.NOT_JSON: "its value is not one JSON text, nested at most"
    f" {kernels.DEPTH_MAX} deep, and nothing else",
}
_MARK = bytes_of(WRAP_START)
_NO_STACK = np.empty(0, np.uint8)


def checked_record_bytes(record_bytes_max: int | None) -> int | None:
    if record_bytes_max is not None and record_bytes_max < 1:
        raise ConfigurationError(
            f"records cannot be limited to {record_bytes_max} bytes: use 1 or more"
        )
    return record_bytes_max


def line_problems(column: Any, *, asks_json: bool = False) -> NDArray[np.uint8] | None:
    """Return the problem of each value as a line, or None if there are no problems."""
    parts = parts_of(column)
    problems = np.empty(len(column), np.uint8)
    stack = np.empty(kernels.DEPTH_MAX, np.uint8) if asks_json else _NO_STACK
    found = kernels.line_problems(parts.data, parts.offsets, parts.valid, _MARK, stack, problems)
    if found < 0:
        raise CorruptObject(f"the buffers of a column do not fit its {len(column)} values")
    return problems if found else None


def add_too_large(
    problems: NDArray[np.uint8] | None, batch: RecordBatch, record_bytes_max: int | None
) -> NDArray[np.uint8] | None:
    """Return the problems with those of records above the bound added."""
    if record_bytes_max is None or batch.nbytes <= record_bytes_max:
        return problems
    large = record_bytes(batch) > record_bytes_max
    if not bool(np.any(large)):
        return problems
    problems = np.zeros(batch.num_rows, np.uint8) if problems is None else problems
    problems[large] = TOO_LARGE
    return problems


def first_unfit(
    batch: RecordBatch, problems: NDArray[np.uint8] | None, record_bytes_max: int | None
) -> Unfit | None:
    if problems is None:
        return None
    row = int(np.flatnonzero(problems)[0])
    return _named(batch.slice(row, 1), problems[row : row + 1], record_bytes_max)[0]


def sorted_out(
    batch: RecordBatch, problems: NDArray[np.uint8] | None, record_bytes_max: int | None
) -> tuple[RecordBatch, list[Unfit]]:
    """Return the records that fit, and those that do not."""
    if problems is None:
        return batch, []
    whole = cast(Any, batch)
    is_fit = problems == kernels.FITS
    rows = np.flatnonzero(~is_fit)
    unfit = _named(whole.take(pa.array(rows)), problems[rows], record_bytes_max)
    return whole.filter(pa.array(is_fit)), unfit


def _named(
    batch: RecordBatch, problems: NDArray[np.uint8], record_bytes_max: int | None
) -> list[Unfit]:
    sizes = record_bytes(batch)
    return [
        Unfit(
            offset=int(offset),
            problem=f"it is larger than {record_bytes_max} bytes: it has {size}"
            if problem == TOO_LARGE
            else _PROBLEMS[int(problem)],
        )
        for offset, problem, size in zip(offsets_of(batch), problems, sizes, strict=True)
    ]
