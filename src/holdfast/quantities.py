"""Durations, sizes and times, as people write them in files and on command lines.

Pure. Owns the units and formats: one grammar for every file and every command. Must never know what
a quantity is for, and never read a clock.
"""

import datetime
import re

from holdfast.errors import ConfigurationError

_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.ASCII)
_UNITS_MS: dict[tuple[str, ...], float] = {
    ("us", "microsecond", "microseconds"): 0.001,
    ("ms", "millisecond", "milliseconds"): 1,
    ("s", "sec", "second", "seconds"): 1_000,
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


def is_number(text: str) -> bool:
    """True if int() takes the text as a whole number without a sign. `isdigit` alone takes "²"."""
    return text.isascii() and text.isdigit()


def duration_ms(text: str, *, bare_is_ms: bool = False) -> int:
    """Parse "10 minutes", "10m", "24h" or "1 day 6 hours" into milliseconds.

    A number without a unit is milliseconds if `bare_is_ms` is set, as in the options of Kafka and
    Spark. Otherwise it is refused, since its unit is not clear.
    """
    if bare_is_ms and is_number(text.strip()):
        return int(text)
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
        raise ConfigurationError(f'{text!r} is not a duration: write it as "10 minutes" or "24h"')
    return round(total)


def size_bytes(text: str) -> int:
    """Parse "50MiB", "1.5 GiB" or "64MB" (which is less than 64MiB) into bytes.

    A number without a unit is bytes.
    """
    if re.fullmatch(r"\d+", text.strip(), re.ASCII):
        return int(text)
    found = _QUANTITY.fullmatch(text.lower())
    if found is None or found[2] not in _UNITS_BYTES:
        raise ConfigurationError(f'{text!r} is not a size: write it as "50MiB", "2GiB" or "64MB"')
    return round(float(found[1]) * _UNITS_BYTES[found[2]])


def time_ms(text: str) -> int:
    """Parse a time into milliseconds since 1970.

    It is 2026-11-01, 2026-11-01T12:00:00+01:00, or the milliseconds. Without a zone it is UTC.
    """
    if is_number(text):
        return int(text)
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError as wrong:
        raise ConfigurationError(
            f"{text!r} is not a time: write 2026-11-01, 2026-11-01T12:00:00Z, or milliseconds since"
            " 1970"
        ) from wrong
    if found.tzinfo is None:
        found = found.replace(tzinfo=datetime.UTC)
    return round(found.timestamp() * 1000)


def since_ms(text: str, *, now_ms: int) -> int:
    """Parse a duration before now, such as "10m", or a time as `time_ms` reads it."""
    try:
        return now_ms - duration_ms(text)
    except ConfigurationError:
        pass
    try:
        return time_ms(text)
    except ConfigurationError:
        raise ConfigurationError(
            f'{text!r} is neither a duration nor a time: write "10m", 2026-11-01T12:00:00Z, or'
            " milliseconds since 1970"
        ) from None
