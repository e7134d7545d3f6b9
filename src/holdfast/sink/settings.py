"""Settings of a sink: its source, group, output, format and limits.

Pure. Owns the vocabulary and the defaults. Must never open anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from holdfast.client.membership.interface import MemberSettings
from holdfast.landing.keys import KeyTemplate

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBounds:
    """Bounds of an open batch: the first one that is reached closes it."""

    bytes_max: int = 50 * MIB
    """Bytes of records, before compression."""
    age_ms: int = 60_000
    """Time since the first record of the batch was taken in."""
    records_max: int = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkLimits:
    """Limits on what the process may take."""

    memory_bytes: int = 256 * MIB
    """Bytes of everything on the way: fetched or encoded, and not yet landed."""
    uploads: int = 10
    """Number of objects that are uploaded at the same time."""
    record_bytes: int = 100 * MIB
    """The size of the largest record; a larger one is a bad record."""
    revoke_margin_ms: int = 5_000
    """How long before the rebalance timeout a revoke stops landing, so that the last commit is
    still answered in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSettings:
    """Where objects go, and what is in them."""

    store: str
    template: KeyTemplate = field(default_factory=KeyTemplate)
    format: Literal["jsonl", "raw", "parquet"] = "jsonl"
    layout: Literal["value", "envelope"] = "value"
    """For jsonl: the value as it is, or an envelope with the whole record."""
    compression: Literal["zstd", "gzip", "lz4", "none"] = "zstd"
    level: int | None = None
    bad_records: Literal["dead-letter", "fail"] = "dead-letter"
    on_data_loss: Literal["fail", "cover"] = "fail"
    """What to do if records between the chain's end and the log's start are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """The settings of one member of a sink."""

    bootstrap: str
    member: MemberSettings
    output: OutputSettings
    batch: BatchBounds = field(default_factory=BatchBounds)
    limits: SinkLimits = field(default_factory=SinkLimits)
    offset_reset: Literal["earliest", "latest"] = "earliest"
    read_committed: bool = True
    fetch_max_bytes: int = 16 * MIB
    fetch_max_wait_ms: int = 500
    http: str | None = None
    """host:port of the health and metrics endpoint."""
    spark_master: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict[str, str])
    """Settings of the Spark whose tasks are the members."""
