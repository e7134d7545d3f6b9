"""One field of the JSON objects in a column, as a column of bytes: keys such as `value.$.id`.

Pure. Owns what a field's bytes are. A string is unescaped. Everything else is its text, so 1.0 and
1.00 differ, and the number 1 and the string "1" do not. The result is null if the row or the field
is null, if the path leads nowhere, or if the text is not JSON up to the field and the comma or
brace after it. The text after that is not read. Of members with the same name the first counts. An
escaped surrogate without its pair becomes three bytes (Python's surrogatepass): two different ones
must never become equal.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.columnar import json_kernels
from holdfast.columnar.arrow import Array, bytes_of, pa, plain, variable_array, variable_parts
from holdfast.errors import CallError, CorruptObject

ROOT = "$."
BINARY_BYTES_MAX = 2**31 - 1


def json_path(path: str) -> tuple[str, ...]:
    """Return the names in `$.a.b` or `a.b`. A name that contains a dot needs a tuple instead."""
    return tuple(path.removeprefix(ROOT).split("."))


def json_field(column: Array, path: str | Sequence[str]) -> Array:
    """Return the field of each row, as binary, or large_binary if it has more than 2 GiB."""
    names = json_path(path) if isinstance(path, str) else tuple(path)
    if not names or not all(names):
        raise CallError(f"the path {path!r} has an empty name; write it as $.a.b")
    raw = [name.encode("utf-8", "surrogatepass") for name in names]
    name_offsets = np.cumsum([0, *map(len, raw)], dtype=np.int64)
    column = plain(column)
    rows = len(column)
    if column.null_count == rows:
        return _nulls(rows)
    data, offsets = variable_parts(column)
    found = np.empty((rows, 3), dtype=np.int64)
    total = json_kernels.locate(
        data,
        offsets.astype(np.int64),
        _valid(column),
        bytes_of(b"".join(raw)),
        name_offsets,
        np.empty(json_kernels.DEPTH_MAX, dtype=np.uint8),
        np.empty(json_kernels.ESCAPE_BYTES_MAX * int(name_offsets[-1]), dtype=np.uint8),
        found,
    )
    if total < 0:
        raise CorruptObject(f"a column of {column.type} with {rows} rows lies about its bytes")
    ends = np.empty(rows + 1, dtype=np.int64)
    out = np.empty(total, dtype=np.uint8)
    validity = np.zeros((rows + 7) // 8, dtype=np.uint8)
    nulls = json_kernels.collect(data, found, ends, out, validity)
    if total > BINARY_BYTES_MAX:
        return variable_array(pa.large_binary(), ends, out, validity, nulls)
    return variable_array(pa.binary(), ends.astype(np.int32), out, validity, nulls)


def _nulls(rows: int) -> Array:
    return pa.nulls(rows, pa.binary())


def _valid(column: Any) -> Any:
    return column.is_valid().to_numpy(zero_copy_only=False)
