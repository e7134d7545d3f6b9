"""What a sink does to each micro-batch, as plain data that goes to executors.

Pure. Owns the settings of a job and what they mean for the state that the ledger pins. Must never
hold a connection, a frame or a session.
"""

from dataclasses import dataclass
from typing import Any

from holdfast.errors import ConfigurationError
from holdfast.keyed_state.dedup import DedupSettings, LatePolicy
from holdfast.keyed_state.pinned import BUCKETS_MAX, Operator
from holdfast.landing.data_files import sink_id_problem

BUCKETS_DEFAULT = 16
FORMATS = ("parquet", "jsonl.zst")
CLOCK_ALLOWANCE_MS = 3_600_000
"""How far past the wall clock an event time may move the watermark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The files of a sink."""

    store: str
    """The address of the store that holds data, state and ledger."""
    sink_id: str
    format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    compression_level: int = 3

    def __post_init__(self) -> None:
        problem = sink_id_problem(self.sink_id)
        if problem is not None:
            raise ConfigurationError(problem)
        if self.format not in FORMATS:
            raise ConfigurationError(
                f"there is no output format {self.format!r}: use {' or '.join(FORMATS)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedup:
    """Let each key through once."""

    by: tuple[str, ...]
    """Columns; a part of a JSON value is `value.$.name`, a header is `headers.name`."""
    settings: DedupSettings
    event_time: str | None = None
    """The column that `within` is measured on."""
    buckets: int = BUCKETS_DEFAULT

    def __post_init__(self) -> None:
        if not self.by:
            raise ConfigurationError('dedup needs the columns of its key, as in by=["id"]')
        if self.settings.within_ms is not None and self.event_time is None:
            raise ConfigurationError(
                'dedup within a window needs a column of event times, as in event_time="timestamp"'
            )
        if not 1 <= self.buckets <= BUCKETS_MAX:
            raise ConfigurationError(f"no {self.buckets} buckets: use 1 to {BUCKETS_MAX}")

    @property
    def diverts(self) -> bool:
        return self.settings.late is LatePolicy.DIVERT

    def operator(self) -> Operator:
        parameters: dict[str, Any] = {"by": list(self.by), "event_time": self.event_time}
        return self.settings.operator(**parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One sink: an output, and what happens before it."""

    output: Output
    dedup: Dedup | None = None

    def operator(self) -> Operator | None:
        return self.dedup.operator() if self.dedup is not None else None
