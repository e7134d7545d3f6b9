"""What a sink is told: from where, under which group, to where, in which form, and its limits.

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
    """When an open batch is closed: what comes first."""

    bytes_max: int = 50 * MIB
    """Of records, before compression."""
    age_ms: int = 60_000
    """Since its first record was fetched."""
    records_max: int = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the process may take."""

    memory_bytes: int = 256 * MIB
    """Of everything held on the way: fetched, encoded, not yet landed."""
    uploads: int = 10
    """Objects that are under way to the store at once."""
    record_bytes: int = 100 * MIB
    """A larger record is a bad record."""
    revoke_margin_ms: int = 5_000
    """Less than the rebalance timeout, so that the answer of the last commit still comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSettings:
    """Where objects go, and what is in them."""

    store: str
    template: KeyTemplate = field(default_factory=KeyTemplate)
    format: Literal["jsonl", "raw", "parquet"] = "jsonl"
    layout: Literal["value", "envelope"] = "value"
    """Of jsonl: the value as it is, or an envelope with the whole record."""
    compression: Literal["zstd", "gzip", "lz4", "none"] = "zstd"
    level: int | None = None
    bad_records: Literal["dead-letter", "fail"] = "dead-letter"
    on_data_loss: Literal["fail", "cover"] = "fail"
    """Where records between the chain's end and the log's start are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """One member of a sink."""

    bootstrap: str
    member: MemberSettings
    output: OutputSettings
    batch: BatchBounds = field(default_factory=BatchBounds)
    limits: Limits = field(default_factory=Limits)
    offset_reset: Literal["earliest", "latest"] = "earliest"
    read_committed: bool = True
    fetch_max_bytes: int = 16 * MIB
    fetch_max_wait_ms: int = 500
    http: str | None = None
    """host:port of the health and metrics endpoint."""
    spark_master: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of the Spark whose tasks are the members."""
