"""The tables and keys of a pipeline file.

Pure. Owns which keys exist, and their types. Must never know what a pipeline does.
"""

from typing import Any, Literal, cast

import msgspec

from holdfast.settings_file import (
    Duration,
    FileTables,
    KeyPlaces,
    Renamed,
    Table,
    dotted,
    option_text,
)


class DedupTable(msgspec.Struct, frozen=True, kw_only=True):
    """[dedup]: keep the first record of each key."""

    by: str | list[str]
    within: Duration | None = None
    event_time: str | None = None
    lateness: Duration | None = None
    late: Literal["keep", "divert"] = "keep"
    buckets: int | None = None


class AggregateTable(msgspec.Struct, frozen=True, kw_only=True):
    """[aggregate]: running aggregates by key."""

    by: str | list[str]
    columns: dict[str, str]
    event_time: str | None = None
    forget_after: Duration | None = None
    late: Literal["keep", "divert"] = "keep"
    buckets: int | None = None


class TimersTable(msgspec.Struct, frozen=True, kw_only=True):
    """[timers]: a row for each key that fell silent."""

    by: str | list[str]
    after: Duration
    buckets: int | None = None


class TransformTable(msgspec.Struct, frozen=True, kw_only=True):
    """[transform]: a function of yours between the source and the rest."""

    python: str


class PipelineOutputTable(msgspec.Struct, frozen=True, kw_only=True):
    """[output]: where rows go, how often, and where Spark keeps its checkpoint."""

    to: str
    sink_id: str | None = None
    mode: Literal["ledger", "chain"] | None = None
    format: str = "parquet"
    layout: Literal["value", "envelope"] | None = None
    compression: Literal["zstd"] | None = None
    partition_by: str | list[str] | None = None
    key: str | None = None
    trigger: Duration = "10 seconds"
    checkpoint: str | None = None


class DeltaSection(msgspec.Struct, frozen=True, kw_only=True):
    """[delta]: a Delta table that follows the ledger; it may be empty."""

    storage_options: dict[str, Any] = {}


class IcebergSection(msgspec.Struct, frozen=True, kw_only=True):
    """[iceberg]: an Iceberg table that follows the ledger."""

    table: str
    catalog: str = "default"
    properties: dict[str, Any] = {}
    files_root: str | None = None


class PipelineSparkTable(msgspec.Struct, frozen=True, kw_only=True):
    """[spark]: which Spark, and its settings."""

    master: str = "local[*]"
    conf: dict[str, Any] = {}


PIPELINE = FileTables(
    tables={
        "source": None,
        "dedup": DedupTable,
        "aggregate": AggregateTable,
        "timers": TimersTable,
        "transform": TransformTable,
        "output": PipelineOutputTable,
        "delta": DeltaSection,
        "iceberg": IcebergSection,
        "spark": PipelineSparkTable,
    },
    inner={
        "aggregate": ("columns",),
        "delta": ("storage_options",),
        "iceberg": ("properties",),
        "spark": ("conf",),
    },
    required={"source": 'subscribe = "orders"', "output": 'to = "/var/lake/orders"'},
    example="source.startingOffsets=latest",
    renamed={
        ("source", "bootstrap.servers"): Renamed(key="kafka.bootstrap.servers"),
        ("source", "isolation.level"): Renamed(key="kafka.isolation.level"),
        ("source", "topics.pattern"): Renamed(key="subscribePattern"),
        ("source", "topics"): Renamed(key="subscribe"),
        ("source", "auto.offset.reset"): Renamed(key="startingOffsets"),
        ("source", "kafka.auto.offset.reset"): Renamed(key="startingOffsets"),
        ("output", "on-data-loss"): Renamed(
            key="failOnDataLoss", table="source", values={"fail": True, "cover": False}
        ),
    },
)
"""The tables of a pipeline file. The keys of [source] are checked as options of the source."""


_TABLES = ("assign", "startingoffsets", "startingoffsetsbytimestamp")
"""Options, in lower case, that are tables in TOML and JSON text in Spark."""


def source_options(table: Table, origin: KeyPlaces) -> dict[str, str]:
    """Return [source] as options of the source.

    In TOML, `kafka.x.y = 1` is a table in a table.
    """
    flat: Table = {}
    for name, value in table.items():
        if isinstance(value, dict) and name.lower() not in _TABLES:
            flat |= dotted(name, cast(Table, value))
        else:
            flat[name] = value
    return {name: option_text(value, name, origin) for name, value in flat.items()}
