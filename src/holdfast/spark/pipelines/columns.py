"""Checks that the columns that a pipeline names can exist and have the types that it needs.

Pure. Owns the messages about a column that is missing or has the wrong type. Must never judge
values: they are only known when they are read.
"""

import difflib
from collections.abc import Sequence
from typing import Any

from holdfast.columnar.arrow import pa
from holdfast.keyed_state.aggregates import Function
from holdfast.keyed_state.dedup import LatePolicy
from holdfast.settings_file import KeyPlaces
from holdfast.spark.ledger.job import DEADLINE, ENTRY, Aggregation, Dedup, Job, Timers
from holdfast.spark.source.rows import HEADER_MARK, JSON_MARK

HEADERS = "headers"


def check_columns(job: Job, schema: Any, origin: KeyPlaces) -> None:
    """Raise ConfigurationError if a job names a column that an Arrow schema does not have."""
    columns: list[str] = schema.names
    match job.operation:
        case Dedup(by=by, event_time=event_time):
            for expression in by:
                if not _is_key(expression, columns):
                    raise origin.error(_no_key(expression, columns), "dedup", "by")
            _check_time(event_time, schema, origin, "dedup")
        case Aggregation(settings=settings, event_time=event_time):
            _check_plain(settings.key_columns, schema, origin, "aggregate", "by")
            for each in settings.aggregates:
                if each.column is not None:
                    place = ("aggregate", f"columns.{each.name}")
                    _check_plain([each.column], schema, origin, *place)
                    _check_sum(each.function, each.column, schema, origin, *place)
            _check_time(event_time, schema, origin, "aggregate")
        case Timers(by=by):
            _check_plain(by, schema, origin, "timers", "by")
        case None:
            pass
    _check_folders(job, columns, origin)


def _check_folders(job: Job, columns: Sequence[str], origin: KeyPlaces) -> None:
    written = _written(job, columns)
    for name in job.output.partition_by:
        if name not in written or name == HEADERS:
            raise origin.error(
                f"there is no column {name!r} to partition by{_nearest(name, written)}; there are"
                f" {', '.join(written)}. Columns of your own come from a [transform]",
                "output",
                "partition_by",
            )


def _written(job: Job, columns: Sequence[str]) -> Sequence[str]:
    """Return the columns of the output, before partition columns are taken out."""
    match job.operation:
        case Aggregation(settings=settings) if settings.late is LatePolicy.DIVERT:
            # Late records keep their columns and share the folders: only the key is in both.
            return settings.key_columns
        case Aggregation(settings=settings):
            names = [each.name for each in settings.aggregates]
            return (*settings.key_columns, *names, ENTRY)
        case Timers(by=by):
            return (*by, ENTRY, DEADLINE)
        case _:
            return columns


def _check_plain(
    names: Sequence[str], schema: Any, origin: KeyPlaces, table: str, key: str
) -> None:
    """Check that names are plain columns: aggregates and timers write them under these names."""
    columns: list[str] = schema.names
    for name in names:
        if name not in columns:
            raise origin.error(
                f"there is no column {name!r}{_nearest(name, columns)}; there are"
                f" {', '.join(columns)}. Fields of a JSON value, and headers, become columns in a"
                " [transform]",
                table,
                key,
            )
        if pa.types.is_nested(schema.field(name).type):
            raise origin.error(
                f"{name!r} is {schema.field(name).type}: make a plain column of it in a"
                " [transform]",
                table,
                key,
            )


def _check_sum(
    function: Function, name: str, schema: Any, origin: KeyPlaces, table: str, key: str
) -> None:
    kind = schema.field(name).type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if function is Function.SUM and not is_number:
        raise origin.error(
            f"{name!r} is {kind}, and a sum is of numbers: cast it in a [transform]", table, key
        )


def _check_time(name: str | None, schema: Any, origin: KeyPlaces, table: str) -> None:
    if name is None:
        return
    columns: list[str] = schema.names
    kind = schema.field(name).type if name in columns else None
    is_text = kind is None and (JSON_MARK in name or name.startswith(HEADER_MARK))
    is_time = kind is not None and (pa.types.is_timestamp(kind) or pa.types.is_integer(kind))
    if is_text or (kind is not None and not is_time):
        raise origin.error(
            f"{name!r} is {kind or 'text or bytes'}: event times must be a timestamp, or whole"
            ' milliseconds since 1970. Use "timestamp", or make such a column in a [transform]',
            table,
            "event_time",
        )
    if kind is None:
        raise origin.error(_no_key(name, columns), table, "event_time")


def _is_key(expression: str, columns: Sequence[str]) -> bool:
    if expression in columns:
        return expression != HEADERS
    column, mark, field = expression.partition(JSON_MARK)
    if mark:
        return column in columns and all(field.split("."))
    name = expression.removeprefix(HEADER_MARK)
    return expression.startswith(HEADER_MARK) and bool(name) and HEADERS in columns


def _no_key(expression: str, columns: Sequence[str]) -> str:
    if expression == HEADERS or expression.startswith(HEADER_MARK):
        return (
            f"{expression!r}: one header is headers.NAME, and the source must have"
            " includeHeaders = true"
        )
    column, _, field = expression.partition(".")
    near = difflib.get_close_matches(column, columns, n=1)
    if field and near:
        column, field = near[0], field.removeprefix("$.")
    else:
        column, field = "value" if "value" in columns else columns[0], expression
    return (
        f"there is no column {expression!r}{_nearest(expression, columns)}; there are"
        f" {', '.join(columns)}. A field of a JSON value is {column}{JSON_MARK}{field}, a"
        f" header is {HEADER_MARK}{field}"
    )


def _nearest(name: str, columns: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, columns, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
