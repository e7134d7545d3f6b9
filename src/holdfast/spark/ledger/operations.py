"""The stateful steps of a pipeline, made from what people write: columns and durations.

Pure. Owns what those words mean, for the builder and for pipeline files alike. Must never know
where they were written.
"""

import difflib
from collections.abc import Mapping, Sequence

from holdfast.errors import ConfigurationError
from holdfast.keyed_state.aggregates import Aggregate, AggregateSettings, Function
from holdfast.keyed_state.dedup import DedupSettings, LatePolicy
from holdfast.keyed_state.timers import TimerSettings
from holdfast.quantities import duration_ms
from holdfast.spark.ledger.job import BUCKETS_DEFAULT, DEADLINE, ENTRY, Aggregation, Dedup, Timers

FUNCTIONS = tuple(function.value for function in Function)
ONE_STEP = (
    "a pipeline has one stateful step. Keep one of them, and read its output with a second pipeline"
)


def dedup_step(
    by: str | Sequence[str],
    *,
    within: str | None = None,
    event_time: str | None = None,
    lateness: str | None = None,
    late: str = LatePolicy.KEEP.value,
    buckets: int = BUCKETS_DEFAULT,
) -> Dedup:
    """Return a step that keeps each key once, within a span of event time or for ever."""
    settings = DedupSettings(
        within_ms=_optional_ms(within), lateness_ms=_optional_ms(lateness), late=_late(late)
    )
    return Dedup(by=columns_of(by), settings=settings, event_time=event_time, buckets=buckets)


def aggregate_step(
    by: str | Sequence[str],
    aggregates: Mapping[str, tuple[str, str | None]],
    *,
    event_time: str | None = None,
    forget_after: str | None = None,
    late: str = LatePolicy.KEEP.value,
    buckets: int = BUCKETS_DEFAULT,
) -> Aggregation:
    """Return a step with running aggregates by key: name, function and column of each."""
    for name, (function, _) in aggregates.items():
        if function not in FUNCTIONS:
            near = difflib.get_close_matches(function, FUNCTIONS, n=1, cutoff=0.75)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise ConfigurationError(
                f"aggregate {name!r}: there is no {function!r}{hint}: use {', '.join(FUNCTIONS)}"
            )
    _check_free([*columns_of(by), *aggregates], (ENTRY,))
    settings = AggregateSettings(
        key_columns=columns_of(by),
        aggregates=tuple(
            Aggregate(name=name, function=Function(function), column=column)
            for name, (function, column) in aggregates.items()
        ),
        idle_ms=_optional_ms(forget_after),
        late=_late(late),
    )
    return Aggregation(settings=settings, event_time=event_time, buckets=buckets)


def timer_step(by: str | Sequence[str], *, after: str, buckets: int = BUCKETS_DEFAULT) -> Timers:
    """Return a step that writes a row for each key without events for some wall-clock time."""
    _check_free(columns_of(by), (ENTRY, DEADLINE))
    settings = TimerSettings(key_columns=columns_of(by), after_ms=duration_ms(after))
    return Timers(settings=settings, buckets=buckets)


def columns_of(by: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns as a tuple, whether one or several were written."""
    return (by,) if isinstance(by, str) else tuple(by or ())


def _optional_ms(text: str | None) -> int | None:
    return None if text is None else duration_ms(text)


def _late(policy: str) -> LatePolicy:
    policies = [known.value for known in LatePolicy]
    if policy not in policies:
        raise ConfigurationError(f"late is {policy!r}: use {' or '.join(map(repr, policies))}")
    return LatePolicy(policy)


def _check_free(names: Sequence[str], taken: Sequence[str]) -> None:
    for name in names:
        if name in taken:
            raise ConfigurationError(f"the step itself adds a column {name!r}: rename yours")
