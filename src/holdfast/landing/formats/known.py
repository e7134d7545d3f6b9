"""Formats by name: for readers of existing objects, and for the settings of new ones.

Owns the list. Must never forget a name: objects outlive settings.
"""

from typing import Literal

from holdfast.errors import ConfigurationError
from holdfast.landing.formats import jsonl, parquet, raw
from holdfast.landing.formats.codecs import FileCodec
from holdfast.landing.formats.interface import Format
from holdfast.landing.formats.jsonl import JsonLines
from holdfast.landing.formats.parquet import Parquet
from holdfast.landing.formats.raw import Raw


def _all_named() -> dict[str, Format]:
    found: list[Format] = []
    for codec in FileCodec:
        word = codec.name.lower()
        found.append(JsonLines("value", compression=word))
        found.append(JsonLines("value", compression=word, wrap_unfit=True))
        found.append(JsonLines("envelope", compression=word))
    found.append(Parquet())
    found.extend(Raw(compression=codec.name.lower()) for codec in FileCodec)
    return {format.name: format for format in found}


_NAMED = _all_named()
NAMES = tuple(_NAMED)
EXTENSIONS = tuple(sorted({format.extension for format in _NAMED.values()}))
"""The extensions of the keys of all landed objects."""
_OLD_NAMES = {"jsonl.zst": "jsonl.zst/value"}


def format_named(name: str) -> Format:
    """Return the format that the facts of an object name."""
    found = _NAMED.get(_OLD_NAMES.get(name, name))
    if found is None:
        raise ConfigurationError(f"there is no format {name!r}: use one of {', '.join(NAMES)}")
    return found


def new_format(
    format: Literal["jsonl", "raw", "parquet"] = "jsonl",
    *,
    layout: Literal["value", "envelope"] = "value",
    compression: str = "zstd",
    level: int | None = None,
    require_json: bool = True,
    record_bytes_max: int | None = None,
) -> Format:
    """Return the format that the settings of a sink describe."""
    match format:
        case jsonl.NAME:
            return JsonLines(
                layout,
                compression=compression,
                level=level,
                require_json=require_json,
                record_bytes_max=record_bytes_max,
            )
        case raw.NAME:
            return Raw(compression=compression, level=level, record_bytes_max=record_bytes_max)
        case parquet.NAME:
            return Parquet(compression=compression, level=level, record_bytes_max=record_bytes_max)
