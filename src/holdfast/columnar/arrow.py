"""The one place that imports pyarrow, which has no types, for the columnar package.

Owns the imported module, the casts, and the layouts of binary, string and list arrays built from
plain buffers. Must never copy a column.
"""

import importlib
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import CallError

pa: Any = importlib.import_module("pyarrow")
importlib.import_module("pyarrow.compute")

Number = TypeVar("Number", bound=np.generic)


class Array(Protocol):
    """The part of pyarrow.Array that is used here."""

    type: Any
    offset: int
    null_count: int

    def __len__(self) -> int: ...

    def buffers(self) -> list[Any]: ...


class Schema(Protocol):
    """The part of pyarrow.Schema that is used here."""

    names: list[str]

    def equals(self, other: Any) -> bool: ...


class RecordBatch(Protocol):
    """The part of pyarrow.RecordBatch that is used here."""

    schema: Any
    num_rows: int
    nbytes: int

    def column(self, i: int | str) -> Any: ...

    def to_pylist(self) -> list[dict[str, Any]]: ...

    def slice(self, offset: int = 0, length: int | None = None) -> "RecordBatch": ...


def new_array(size: int, dtype: type[Number]) -> NDArray[Number]:
    """Allocate numbers from Arrow's own pool: aligned, and reused without page faults."""
    buffer = pa.allocate_buffer(size * np.dtype(dtype).itemsize)
    return np.frombuffer(buffer, dtype=dtype) if size else np.empty(0, dtype=dtype)


def view(numbers: NDArray[Any]) -> Any:
    """Return the same memory as an Arrow buffer."""
    return pa.py_buffer(numbers)


def bytes_of(buffer: Any) -> NDArray[np.uint8]:
    """Return the bytes of any buffer, never writable, so that kernels compile for one kind only."""
    if buffer is None or len(memoryview(buffer)) == 0:
        numbers = np.empty(0, dtype=np.uint8)
    else:
        numbers = np.frombuffer(buffer, dtype=np.uint8)
    numbers.flags.writeable = False
    return numbers


def plain(column: Any) -> Array:
    """Return one array without chunks, dictionary or views."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_binary_view(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.large_binary())
    return cast(Array, column)


def has_offsets(kind: Any) -> bool:
    """True for text or bytes of variable length."""
    return _is_large(kind) or pa.types.is_binary(kind) or pa.types.is_string(kind)


def _is_large(kind: Any) -> bool:
    return pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)


def variable_parts(column: Array) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Return the bytes of a column of text or bytes, and its offsets, one more than rows."""
    if not has_offsets(column.type):
        raise CallError(f"a column of {column.type} where one of text or bytes is needed")
    _, offsets, data = column.buffers()
    numbers = np.frombuffer(offsets, dtype=np.int64 if _is_large(column.type) else np.int32)
    numbers = numbers[column.offset : column.offset + len(column) + 1]
    numbers.flags.writeable = False
    return bytes_of(data), numbers


def number_array(kind: Any, numbers: NDArray[Any]) -> Array:
    return cast(Array, pa.Array.from_buffers(kind, len(numbers), [None, view(numbers)], 0))


def variable_array(
    kind: Any,
    offsets: NDArray[Any],
    data: NDArray[np.uint8],
    validity: NDArray[np.uint8] | None = None,
    null_count: int = 0,
) -> Array:
    """Return a binary or string array, with 32-bit or 64-bit offsets."""
    mask = view(validity) if validity is not None and null_count else None
    buffers = [mask, view(offsets), view(data)]
    return cast(Array, pa.Array.from_buffers(kind, len(offsets) - 1, buffers, null_count))


def list_array(
    kind: Any,
    offsets: NDArray[np.int32],
    validity: NDArray[np.uint8],
    null_count: int,
    children: Sequence[Array],
) -> Array:
    """Return a list of structs. The children are the struct's columns. No struct is null."""
    structs = pa.StructArray.from_arrays(list(children), fields=list(kind.value_type))
    mask = view(validity) if null_count else None
    return cast(
        Array,
        pa.Array.from_buffers(
            kind, len(offsets) - 1, [mask, view(offsets)], null_count, children=[structs]
        ),
    )


def repeated(text: str, count: int) -> Array:
    return cast(Array, pa.repeat(pa.scalar(text, pa.string()), count))


def record_batch(schema: Any, columns: Sequence[Array]) -> RecordBatch:
    return cast(RecordBatch, pa.RecordBatch.from_arrays(list(columns), schema=schema))
