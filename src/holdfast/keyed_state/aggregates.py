"""Aggregates by key: count, sum, min, max, first and last over Arrow columns.

Pure. Owns their meaning:

- The output is one row, with the new values, for each key that this micro-batch updated.
- Count without a column counts records. With a column it counts those that are not null. Sum, min
  and max ignore null. First and last are the values of the first and last record, null or not, in
  the order of micro-batches and, inside one, of `order`.
- Integers are summed exactly. A sum that exceeds 64 bits must never become a wrong number: it is an
  error.
- With `idle_ms`, a key is forgotten when its latest event time is before the horizon, which is the
  watermark minus idle_ms. A later record starts the key from zero. A record that is itself before
  the horizon is late. It is counted, and either aggregated with what is known of its key, or
  diverted.
"""

import enum
import importlib
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from holdfast.columnar.arrow import pa
from holdfast.errors import CallError, InvariantViolation
from holdfast.keyed_state.dedup import LatePolicy
from holdfast.keyed_state.keyed_rows import (
    Groups,
    KeyedBucket,
    KeyedRun,
    Mask,
    Positions,
    Table,
    check_columns,
    group_rows,
)
from holdfast.keyed_state.pinned import SPAN_MS_MAX, TIME_MIN, Hashes, Operator, Times

KIND = "aggregate"
importlib.import_module("pyarrow.compute")

Column = Any
"""A pyarrow.ChunkedArray, which has no type."""


class Function(enum.Enum):
    """The function that an aggregate computes."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    FIRST = "first"
    LAST = "last"


class Aggregate(msgspec.Struct, frozen=True, kw_only=True):
    """One column of the output."""

    name: str
    function: Function
    column: str | None = None
    """The column that it is computed from. Only a count may have none."""

    def __post_init__(self) -> None:
        if self.column is None and self.function is not Function.COUNT:
            raise CallError(f"aggregate {self.name!r}: {self.function.value} needs a column")


class AggregateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The key columns, the aggregates, and the time after which an idle key is forgotten."""

    key_columns: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    idle_ms: int | None = None
    late: LatePolicy = LatePolicy.KEEP

    def __post_init__(self) -> None:
        names = [*self.key_columns, *(aggregate.name for aggregate in self.aggregates)]
        if not self.key_columns or not self.aggregates:
            raise CallError("aggregates: name at least one key column and one aggregate")
        if len(set(names)) != len(names) or any(name.startswith("#") for name in names):
            raise CallError(f"aggregates: names must differ, and not start with '#': {names}")
        if self.idle_ms is not None and not 0 <= self.idle_ms <= SPAN_MS_MAX:
            raise CallError(f"aggregates: idle_ms is {self.idle_ms}; use 0 to {SPAN_MS_MAX}")

    def inputs(self) -> list[str]:
        """Return the columns that are read."""
        read = [a.column for a in self.aggregates if a.column is not None]
        return list(dict.fromkeys([*self.key_columns, *read]))

    def operator(self, schema: Any, **parameters: object) -> Operator:
        """Return the operator for the ledger to pin. The column types are part of it."""
        mine = {
            "key_columns": list(self.key_columns),
            "aggregates": [[a.name, a.function.value, a.column] for a in self.aggregates],
            "idle_ms": self.idle_ms,
            "types": {name: str(schema.field(name).type) for name in self.inputs()},
        }
        return Operator(kind=KIND, parameters={**parameters, **mine})

    def horizon_ms(self, watermark_ms: int | None) -> int:
        """Return the time before which a key's latest event time makes it forgotten."""
        if self.idle_ms is None or watermark_ms is None:
            return TIME_MIN
        return max(TIME_MIN, watermark_ms - self.idle_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregated:
    """The rows of the updated keys, and the fate of late records."""

    output: KeyedRun | None
    """Key columns, then aggregates. None if no row was aggregated."""
    updated: KeyedRun | None
    """The part of the output to remember: all keys except those that have expired already."""
    late: Mask
    diverted: Mask
    live_keys: int


def aggregate(
    bucket: KeyedBucket,
    hashes: tuple[Hashes, Hashes],
    event_times: Times,
    columns: Table,
    order: npt.NDArray[np.int64] | None = None,
    *,
    settings: AggregateSettings,
    watermark_ms: int | None,
) -> Aggregated:
    """Aggregate the rows of one micro-batch into one bucket."""
    check_columns(columns, settings.inputs(), hashes[0].size)
    horizon = settings.horizon_ms(watermark_ms)
    late = event_times < horizon
    diverted = late if settings.late is LatePolicy.DIVERT else np.zeros_like(late)
    live = bucket.live(horizon)
    before = 0 if live is None else live.rows
    if diverted.any():
        chosen = np.flatnonzero(~diverted)
        hashes = (hashes[0][chosen], hashes[1][chosen])
        event_times, columns = event_times[chosen], columns.take(pa.array(chosen))
        order = None if order is None else order[chosen]
    if not event_times.size:
        return Aggregated(output=None, updated=None, late=late, diverted=diverted, live_keys=before)
    groups = group_rows(hashes, order)
    found = np.full(groups.high.size, -1, np.int64)
    if live is not None:
        found = live.find(groups.high, groups.low)
    output = _updated(live, found, groups, event_times, columns, settings)
    updated = output.where(output.time >= horizon)
    return Aggregated(
        output=output,
        updated=updated if updated.rows else None,
        late=late,
        diverted=diverted,
        live_keys=before + int(np.count_nonzero((found < 0) & (output.time >= horizon))),
    )


def _updated(
    live: KeyedRun | None,
    found: Positions,
    groups: Groups,
    event_times: Times,
    columns: Table,
    settings: AggregateSettings,
) -> KeyedRun:
    """Return the new row of each key of the micro-batch."""
    times = np.maximum.reduceat(event_times[groups.sequence], groups.starts)
    known = found >= 0
    prior = None
    if live is not None and known.any():
        prior = live.columns.take(pa.array(found, mask=~known))
        times[known] = np.maximum(times[known], live.time[found[known]])
    firsts = pa.array(groups.sequence[groups.starts])
    names = [*settings.key_columns]
    values = [columns.column(name).take(firsts) for name in names]
    for each in settings.aggregates:
        earlier = None if prior is None else prior.column(each.name)
        values.append(_aggregate_one(each, earlier, known, groups, columns))
        names.append(each.name)
    return KeyedRun(
        high=groups.high,
        low=groups.low,
        time=times,
        deleted=np.zeros(times.size, np.bool_),
        columns=pa.table(values, names=names).combine_chunks(),
    )


def _aggregate_one(
    each: Aggregate, earlier: Column | None, known: Mask, groups: Groups, columns: Table
) -> Column:
    if each.column is None:
        now = pa.chunked_array([pa.array(groups.ends - groups.starts)])
    else:
        column = columns.column(each.column)
        match each.function:
            case Function.FIRST:
                return _first(column, earlier, known, groups)
            case Function.LAST:
                return column.take(pa.array(groups.sequence[groups.ends - 1]))
            case _:
                now = _by_group(each, column, groups)
    if earlier is None:
        return now
    if each.function in (Function.MIN, Function.MAX):
        keys = np.arange(known.size)
        return _grouped(each, np.concatenate([keys, keys]), _one_after_the_other(earlier, now))
    return _added(each, earlier, now)


def _added(each: Aggregate, earlier: Column, now: Column) -> Column:
    """Return the sum of two columns. Null counts as nothing."""
    kind = earlier.type
    if pa.types.is_decimal(kind):
        # Arrow requires room for one more digit than the type can have.
        wide = pa.decimal256(kind.precision, kind.scale)
        earlier, now = earlier.cast(wide), now.cast(wide)
    try:
        both = pa.compute.add_checked(earlier, now)
        return pa.compute.coalesce(both, earlier.cast(both.type), now.cast(both.type)).cast(kind)
    except pa.ArrowInvalid as error:
        raise _overflow(each) from error


def _first(column: Column, earlier: Column | None, known: Mask, groups: Groups) -> Column:
    now = column.take(pa.array(groups.sequence[groups.starts]))
    if earlier is None:
        return now
    positions = np.arange(known.size)
    return _one_after_the_other(earlier, now).take(
        pa.array(np.where(known, positions, known.size + positions))
    )


def _by_group(each: Aggregate, column: Column, groups: Groups) -> Column:
    """Return count, sum, min or max of the column in this micro-batch, one value for each key."""
    group = np.repeat(np.arange(groups.starts.size), groups.ends - groups.starts)
    ranked = column.take(pa.array(groups.sequence))
    exact = each.function is Function.SUM and _may_overflow(ranked)
    if exact:
        ranked = ranked.cast(pa.decimal128(38, 0))
    value = _grouped(each, group, ranked)
    if not exact:
        return value
    try:
        return value.cast(_sum_type(column.type))
    except pa.ArrowInvalid as error:
        raise _overflow(each) from error


def _grouped(each: Aggregate, group: Positions, values: Column) -> Column:
    """Return one value for each group. Groups are numbered in the order of their first values."""
    table = pa.table([pa.array(group), values], names=["group", "value"])
    result = table.group_by("group", use_threads=False).aggregate([("value", each.function.value)])
    if not np.array_equal(result.column("group").to_numpy(), np.arange(int(result.num_rows))):
        raise InvariantViolation(
            f"aggregate {each.name!r}: Arrow returned the groups in another order"
        )
    return result.column(f"value_{each.function.value}")


def _one_after_the_other(earlier: Column, now: Column) -> Column:
    return pa.chunked_array([*earlier.chunks, *now.chunks], type=earlier.type)


def _sum_type(kind: Any) -> Any:
    return pa.uint64() if pa.types.is_unsigned_integer(kind) else pa.int64()


def _may_overflow(column: Column) -> bool:
    """True if a sum of these integers might not fit. Arrow would let it wrap around."""
    if not pa.types.is_integer(column.type) or column.null_count == len(column):
        return False
    bounds = pa.compute.min_max(column).as_py()
    return max(abs(bounds["min"]), abs(bounds["max"])) * len(column) >= 2**63


def _overflow(each: Aggregate) -> CallError:
    return CallError(
        f"aggregate {each.name!r}: a sum of {each.column!r} does not fit into 64 bits; make the"
        " column a decimal or a double"
    )
