"""The stateful step of a pipeline file, and the Delta and Iceberg tables that follow its output.

Owns which tables of the file ask for them, and the place in the file that a message names. What a
step means is decided in `operations`. Must never open a store or a catalog.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from holdfast.errors import CallError, ConfigurationError
from holdfast.extras import MissingExtra
from holdfast.quantities import duration_ms
from holdfast.settings_file import KeyPlaces, Table, convert, texts_of
from holdfast.spark.ledger.job import BUCKETS_DEFAULT, Aggregation, Dedup, Operation, Timers
from holdfast.spark.ledger.operations import (
    ONE_STEP,
    aggregate_step,
    dedup_step,
    timer_step,
)
from holdfast.spark.pipelines.tables import (
    AggregateTable,
    DedupTable,
    DeltaSection,
    IcebergSection,
    TimersTable,
)
from holdfast.spark.tables.delta import DeltaTable
from holdfast.spark.tables.follower import TableFollower
from holdfast.spark.tables.iceberg import IcebergTable

T = TypeVar("T")

STEPS = ("dedup", "aggregate", "timers")
FOLLOWERS = ("delta", "iceberg")
_AGGREGATE = re.compile(r"\s*(\w+)\s*(?:\(\s*([^()]*?)\s*\)\s*)?")


def step_of(tables: Mapping[str, Table], origin: KeyPlaces) -> Operation | None:
    """Return the one stateful step that a file asks for, or None."""
    asked = [name for name in STEPS if name in tables]
    if len(asked) > 1:
        raise origin.error(f"there is [{asked[0]}] as well: {ONE_STEP}", asked[1])
    match asked:
        case ["dedup"]:
            return _dedup(convert(tables["dedup"], "dedup", DedupTable, origin), origin)
        case ["aggregate"]:
            return _aggregate(
                convert(tables["aggregate"], "aggregate", AggregateTable, origin), origin
            )
        case ["timers"]:
            return _timers(convert(tables["timers"], "timers", TimersTable, origin), origin)
        case _:
            return None


def name_of(operation: Operation | None) -> str | None:
    """Return the name of the file's table that asks for an operation."""
    match operation:
        case Dedup():
            return "dedup"
        case Aggregation():
            return "aggregate"
        case Timers():
            return "timers"
        case None:
            return None


def _dedup(table: DedupTable, origin: KeyPlaces) -> Dedup:
    _check_durations(origin, "dedup", within=table.within, lateness=table.lateness)
    return _made(
        lambda: dedup_step(
            table.by,
            within=table.within,
            event_time=table.event_time,
            lateness=table.lateness,
            late=table.late,
            buckets=_buckets(table.buckets),
        ),
        origin,
        "dedup",
    )


def _aggregate(table: AggregateTable, origin: KeyPlaces) -> Aggregation:
    _check_durations(origin, "aggregate", forget_after=table.forget_after)
    return _made(
        lambda: aggregate_step(
            table.by,
            {name: _function(name, text, origin) for name, text in table.columns.items()},
            event_time=table.event_time,
            forget_after=table.forget_after,
            late=table.late,
            buckets=_buckets(table.buckets),
        ),
        origin,
        "aggregate",
    )


def _function(name: str, text: str, origin: KeyPlaces) -> tuple[str, str | None]:
    """Parse an aggregate such as `sum(amount)`. A count needs no column."""
    found = _AGGREGATE.fullmatch(text)
    if found is None:
        raise origin.error(
            f'{text!r} is no aggregate: write it as in {name} = "sum(amount)", or {name} ='
            ' "count" to count records',
            "aggregate",
            f"columns.{name}",
        )
    function, column = found[1], found[2]
    return function.lower(), None if column in (None, "", "*") else column


def _timers(table: TimersTable, origin: KeyPlaces) -> Timers:
    _check_durations(origin, "timers", after=table.after)
    return _made(
        lambda: timer_step(table.by, after=table.after, buckets=_buckets(table.buckets)),
        origin,
        "timers",
    )


def _buckets(given: int | None) -> int:
    return BUCKETS_DEFAULT if given is None else given


def _check_durations(origin: KeyPlaces, table: str, **texts: str | None) -> None:
    for key, text in texts.items():
        try:
            if text is not None:
                duration_ms(text)
        except ConfigurationError as wrong:
            raise origin.error(str(wrong), table, key) from wrong


def _made(make: Callable[[], T], origin: KeyPlaces, table: str, key: str | None = None) -> T:
    """Return what a call makes; if it refuses, add the place in the file to the error."""
    try:
        return make()
    except MissingExtra:
        raise  # it has an exit code of its own
    except CallError as wrong:
        raise origin.error(str(wrong), table, key) from wrong


def followers_of(tables: Mapping[str, Table], origin: KeyPlaces) -> tuple[TableFollower, ...]:
    """Return the tables that shall follow the ledger of an output."""
    found: list[TableFollower] = []
    if "delta" in tables:
        delta = convert(tables["delta"], "delta", DeltaSection, origin)
        options = texts_of(delta.storage_options, "delta", "storage_options", origin)
        found.append(_made(lambda: DeltaTable(storage_options=options), origin, "delta"))
    if "iceberg" in tables:
        iceberg = convert(tables["iceberg"], "iceberg", IcebergSection, origin)
        properties = texts_of(iceberg.properties, "iceberg", "properties", origin)
        follower = _made(
            lambda: IcebergTable(
                iceberg.table,
                catalog=iceberg.catalog,
                properties=properties,
                files_root=iceberg.files_root,
            ),
            origin,
            "iceberg",
            "table",
        )
        found.append(follower)
    return tuple(found)
