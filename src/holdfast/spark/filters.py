"""Filters of a batch query as bounds of what must be read.

Pure. The one place that knows pyspark's filter classes. Must never claim a filter that the bounds
do not decide exactly: Spark then applies it itself.
"""

import dataclasses
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, cast

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from holdfast.spark.inputs import NO_BOUNDS, ReadBounds

NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def bounds_of(filters: Iterable[Filter]) -> tuple[ReadBounds, list[Filter]]:
    """The bounds that follow from all filters, and the filters that are left to Spark."""
    bounds, left = NO_BOUNDS, list[Filter]()
    for one in filters:
        bounds, is_exact = _narrowed(bounds, one)
        if not is_exact:
            left.append(one)
    return bounds, left


def _narrowed(bounds: ReadBounds, one: Filter) -> tuple[ReadBounds, bool]:
    path = cast("tuple[str, ...]", getattr(one, "attribute", ()))
    if len(path) != 1:
        return bounds, False
    column, value = path[0], cast(Any, getattr(one, "value", None))
    if isinstance(one, IsNotNull):
        return bounds, column in NEVER_NULL
    if column == "timestamp":
        return _since(bounds, one, value), False
    if column == "offset" and _is_whole(value):
        return _offset(bounds, one, value)
    if column in ("topic", "partition"):
        return _among(bounds, column, one, value)
    return bounds, False


def _since(bounds: ReadBounds, one: Filter, value: object) -> ReadBounds:
    """Times do not rise with offsets, so only a lower bound says where reading may begin."""
    if not isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
        return bounds
    if not isinstance(value, datetime):
        return bounds
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    span = moment - EPOCH
    since_ms = (span.days * 86_400 + span.seconds) * 1000 + span.microseconds // 1000
    least = max(0, since_ms, bounds.timestamp_min_ms or 0)
    return dataclasses.replace(bounds, timestamp_min_ms=least)


def _offset(bounds: ReadBounds, one: Filter, value: int) -> tuple[ReadBounds, bool]:
    least, most = bounds.offset_min, bounds.offset_max
    match one:
        case EqualTo() | EqualNullSafe():
            least, most = _larger(least, value), _smaller(most, value)
        case GreaterThan():
            least = _larger(least, value + 1)
        case GreaterThanOrEqual():
            least = _larger(least, value)
        case LessThan():
            most = _smaller(most, value - 1)
        case LessThanOrEqual():
            most = _smaller(most, value)
        case _:
            return bounds, False
    return dataclasses.replace(bounds, offset_min=least, offset_max=most), True


def _among(bounds: ReadBounds, column: str, one: Filter, value: object) -> tuple[ReadBounds, bool]:
    match one:
        case EqualTo() | EqualNullSafe():
            values = [value]
        case In():
            values = list(cast("Iterable[object]", value))
        case _:
            return bounds, False
    if column == "topic":
        if not all(isinstance(v, str) for v in values):
            return bounds, False
        topics = frozenset(cast("list[str]", values))
        both = topics if bounds.topics is None else topics & bounds.topics
        return dataclasses.replace(bounds, topics=both), True
    if not all(_is_whole(v) for v in values):
        return bounds, False
    partitions = frozenset(cast("list[int]", values))
    both = partitions if bounds.partitions is None else partitions & bounds.partitions
    return dataclasses.replace(bounds, partitions=both), True


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _larger(known: int | None, value: int) -> int:
    return value if known is None else max(known, value)


def _smaller(known: int | None, value: int) -> int:
    return value if known is None else min(known, value)
