"""Durations and sizes, as people write them in files and on command lines.

Pure. Owns which words there are. Must never know what a quantity is for.
"""

import re

from holdfast.errors import ConfigurationError

_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.ASCII)
_UNITS_MS = {
    ("ms", "millisecond", "milliseconds"): 1,
    ("s", "second", "seconds"): 1_000,
    ("m", "min", "minute", "minutes"): 60_000,
    ("h", "hour", "hours"): 3_600_000,
    ("d", "day", "days"): 86_400_000,
    ("w", "week", "weeks"): 604_800_000,
}
_UNITS_BYTES = {
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", start=1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", start=1)},
}


def duration_ms(text: str) -> int:
    """Milliseconds of "10 minutes", "24h", "1 day 6 hours"; the words are those of Spark."""
    total = 0.0
    position = 0
    lower = text.lower()
    for found in _QUANTITY.finditer(lower):
        unit = next((ms for names, ms in _UNITS_MS.items() if found[2] in names), None)
        if found.start() != position or unit is None:
            break
        total += float(found[1]) * unit
        position = found.end()
    if not lower or position != len(lower):
        raise ConfigurationError(f'{text!r} is no duration: write it as "10 minutes" or "24 hours"')
    return round(total)


def size_bytes(text: str) -> int:
    """Bytes of "50MiB", "1.5 GiB" or "64MB", which is a little less; a bare number is bytes."""
    if re.fullmatch(r"\d+", text.strip(), re.ASCII):
        return int(text)
    found = _QUANTITY.fullmatch(text.lower())
    if found is None or found[2] not in _UNITS_BYTES:
        raise ConfigurationError(f'{text!r} is no size: write it as "50MiB", "2GiB" or "64MB"')
    return round(float(found[1]) * _UNITS_BYTES[found[2]])
