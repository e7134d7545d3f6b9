"""Partition columns, which files do not hold: their types in the footer, their values as text.

Pure. Owns how a Parquet file records the types of the columns in its path, and how the texts that a
ledger keeps become values again. A column of bytes, or of a nested type, comes back as text. Must
never guess a type: if the footer does not name one, the partition column is a string.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.columnar.arrow import pa
from holdfast.errors import CorruptObject

FOOTER_KEY = "holdfast.partition_columns"


def described(fields: Sequence[Any]) -> dict[str, str]:
    """Return the metadata for the footer of a file whose path holds these fields."""
    if not fields:
        return {}
    kept = pa.schema([pa.field(field.name, _kept_type(field.type)) for field in fields])
    return {FOOTER_KEY: base64.b64encode(kept.serialize().to_pybytes()).decode()}


def partition_fields(
    names: Sequence[str], footer: Mapping[bytes, bytes] | None, *, path: str
) -> list[Any]:
    """Return the fields of a file's partition columns, with the types in its footer."""
    text = (footer or {}).get(FOOTER_KEY.encode())
    types: dict[str, Any] = {}
    if text is not None:
        try:
            told = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
        except (ValueError, pa.ArrowInvalid, OSError) as error:
            raise CorruptObject(
                f"{path}: the types of its partition columns cannot be read: {error}"
            ) from error
        types = {field.name: field.type for field in told}
    return [pa.field(name, types.get(name, pa.string())) for name in names]


def partition_value(text: str | None, kind: Any, *, path: str) -> Any:
    """Return the value as an Arrow scalar of a type."""
    if text is None:
        return pa.scalar(None, kind)
    try:
        return pa.scalar(text, pa.string()).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise CorruptObject(
            f"{path}: the partition value {text[:100]!r} is not of type {kind}: {error}"
        ) from error


def _kept_type(kind: Any) -> Any:
    """Return the type itself if its values can be read back from text, otherwise string."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_kept = (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date(kind)
        or pa.types.is_time(kind)
        or pa.types.is_timestamp(kind)
    )
    return kind if is_kept else pa.string()
