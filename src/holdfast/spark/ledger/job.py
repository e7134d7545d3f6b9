"""What a pipeline does to each micro-batch, as plain data that goes to executors.

Pure. Owns the settings of a job and what they mean for the state that the ledger pins. Must never
hold a connection, a DataFrame or a session.
"""

from dataclasses import dataclass
from typing import Any

from holdfast.errors import ConfigurationError
from holdfast.keyed_state.aggregates import AggregateSettings
from holdfast.keyed_state.dedup import DedupSettings
from holdfast.keyed_state.pinned import BUCKETS_MAX, Operator
from holdfast.keyed_state.timers import TimerSettings
from holdfast.landing.data_files import sink_id_problem
from holdfast.suggestion import no_such_value

BUCKETS_DEFAULT = 16
FORMATS = ("parquet", "jsonl.zst")
ENTRY = "_entry"
"""The output column with the ledger number; a key's newest row has the greatest number."""
DEADLINE = "deadline"
CLOCK_ALLOWANCE_MS = 3_600_000
"""How far past the wall clock an event time may move the event-time watermark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where and how a job writes its files."""

    store: str
    """The address of the store that holds data, state and ledger."""
    sink_id: str
    format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    compression_level: int = 1

    def __post_init__(self) -> None:
        problem = sink_id_problem(self.sink_id)
        if problem is not None:
            raise ConfigurationError(problem)
        if self.format not in FORMATS:
            raise ConfigurationError(no_such_value(self.format, ("parquet", "jsonl")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedup:
    """A step that lets each key through once."""

    by: tuple[str, ...]
    """Columns; a field of a JSON value is `value.$.name`, a header is `headers.name`."""
    settings: DedupSettings
    event_time: str | None = None
    """The column by which `within` is measured."""
    buckets: int = BUCKETS_DEFAULT

    def __post_init__(self) -> None:
        if not self.by:
            raise ConfigurationError('dedup needs the columns of its key, as in by=["id"]')
        if self.settings.within_ms is not None and self.event_time is None:
            raise ConfigurationError(
                'within needs a column of event times, as in event_time="timestamp"'
            )
        check_buckets(self.buckets)

    def operator(self, schema: Any) -> Operator:
        del schema  # keys are hashed by value, whatever their type
        return self.settings.operator(by=list(self.by), event_time=self.event_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """A step with running aggregates by key; its output is each key that a micro-batch changed."""

    settings: AggregateSettings
    event_time: str | None = None
    """The column that moves the event-time watermark, by which idle keys are forgotten."""
    buckets: int = BUCKETS_DEFAULT

    def __post_init__(self) -> None:
        if self.settings.idle_ms is not None and self.event_time is None:
            raise ConfigurationError(
                'forget_after needs a column of event times, as in event_time="timestamp"'
            )
        check_buckets(self.buckets)

    @property
    def by(self) -> tuple[str, ...]:
        return self.settings.key_columns

    def operator(self, schema: Any) -> Operator:
        missing = [name for name in self.settings.inputs() if name not in schema.names]
        if missing:
            raise ConfigurationError(
                f"there is no column {missing[0]!r} to aggregate; there are"
                f" {', '.join(schema.names)}"
            )
        return self.settings.operator(schema, event_time=self.event_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timers:
    """A step that writes a row for each key that had no event for a while, by the wall clock."""

    settings: TimerSettings
    buckets: int = BUCKETS_DEFAULT

    def __post_init__(self) -> None:
        check_buckets(self.buckets)

    @property
    def by(self) -> tuple[str, ...]:
        return self.settings.key_columns

    @property
    def event_time(self) -> None:
        return None

    def operator(self, schema: Any) -> Operator:
        missing = [name for name in self.by if name not in schema.names]
        if missing:
            raise ConfigurationError(
                f"there is no column {missing[0]!r} for timers; there are {', '.join(schema.names)}"
            )
        types = {name: str(schema.field(name).type) for name in self.by}
        return self.settings.operator(types=types)


Operation = Dedup | Aggregation | Timers


def check_buckets(buckets: int) -> None:
    if not 1 <= buckets <= BUCKETS_MAX:
        raise ConfigurationError(f"buckets is {buckets}: it must be 1 to {BUCKETS_MAX}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The work of one pipeline: an output, and the stateful step before it."""

    output: Output
    operation: Operation | None = None
