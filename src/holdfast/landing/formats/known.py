"""Formats by the name that facts carry: how a reader opens what another version of a job wrote.

Owns the list. Must never forget a name: objects outlive settings.
"""

from holdfast.errors import ConfigurationError
from holdfast.landing.formats.interface import Format
from holdfast.landing.formats.jsonl import ENVELOPE, VALUE, WRAPPED, JsonLines
from holdfast.landing.formats.parquet import NAME, Parquet

NAMES = (VALUE, WRAPPED, ENVELOPE, NAME)


def format_named(name: str) -> Format:
    """The format that the facts of an object name."""
    match name:
        case "jsonl.zst/value" | "jsonl.zst":
            return JsonLines("value")
        case "jsonl.zst/value-wrapped":
            return JsonLines("value", wrap_unfit=True)
        case "jsonl.zst/envelope":
            return JsonLines("envelope")
        case "parquet":
            return Parquet()
        case _:
            raise ConfigurationError(f"there is no format {name!r}: use one of {', '.join(NAMES)}")
