"""Whether the columns that a pipeline speaks of can be there.

Pure. Owns the columns of the source, and the words about one that is missing. Must never judge
values: what a column holds is found out when it is read.
"""

import difflib
from collections.abc import Sequence

from holdfast.spark.job import Dedup, Job
from holdfast.spark.pipeline_tables import Origin
from holdfast.spark.rows import HEADER_MARK, JSON_MARK

COLUMNS: tuple[str, ...] = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
)
HEADERS = "headers"


def check_columns(job: Job, columns: Sequence[str], origin: Origin) -> None:
    """Raise ConfigurationError where keys, times or folders are of a column that is not there."""
    listed = ", ".join(columns)
    for name in job.output.partition_by:
        if name not in columns or name == HEADERS:
            hint = _nearest(name, columns)
            raise origin.error(
                f"there is no column {name!r} to partition by{hint}; there are {listed}. Columns"
                " of your own come from a [transform]",
                "output",
                "partition_by",
            )
    dedup = job.operation
    if not isinstance(dedup, Dedup):
        return
    for expression in dedup.by:
        if not _is_there(expression, columns):
            raise origin.error(_no_key(expression, columns), "dedup", "by")
    time = dedup.event_time
    if time is None:
        return
    if JSON_MARK in time or time.startswith(HEADER_MARK) or time in ("key", "value", "topic"):
        raise origin.error(
            f"{time!r} is text or bytes: event times must be a timestamp, or whole milliseconds"
            ' since 1970. Use "timestamp", or make such a column in a [transform]',
            "dedup",
            "event_time",
        )
    if time not in columns:
        raise origin.error(_no_key(time, columns), "dedup", "event_time")


def _is_there(expression: str, columns: Sequence[str]) -> bool:
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
    value = "value" if "value" in columns else columns[0]
    return (
        f"there is no column {expression!r}{_nearest(expression, columns)}; there are"
        f" {', '.join(columns)}. A field of a JSON value is {value}{JSON_MARK}{expression}, a"
        f" header is {HEADER_MARK}{expression}"
    )


def _nearest(name: str, columns: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, columns, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
