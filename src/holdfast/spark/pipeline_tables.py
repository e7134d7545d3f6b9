"""The tables and keys of a pipeline file.

Pure. Owns which keys there are, and their types. Must never know what a pipeline does.
"""

from typing import Any, Literal, cast

import msgspec

from holdfast.settings_file import FileTables, Origin, Table, dotted, option_text


class DedupTable(msgspec.Struct, frozen=True, kw_only=True):
    """[dedup]: let each key through once."""

    by: str | list[str]
    within: str | None = None
    event_time: str | None = None
    lateness: str | None = None
    late: Literal["keep", "divert"] = "keep"
    buckets: int | None = None


class AggregateTable(msgspec.Struct, frozen=True, kw_only=True):
    """[aggregate]: running aggregates by key."""

    by: str | list[str]
    columns: dict[str, str]
    event_time: str | None = None
    forget_after: str | None = None
    late: Literal["keep", "divert"] = "keep"
    buckets: int | None = None


class TimersTable(msgspec.Struct, frozen=True, kw_only=True):
    """[timers]: a row for each key that fell silent."""

    by: str | list[str]
    after: str
    buckets: int | None = None


class TransformTable(msgspec.Struct, frozen=True, kw_only=True):
    """[transform]: a function of yours between the source and the rest."""

    python: str


class OutputTable(msgspec.Struct, frozen=True, kw_only=True):
    """[output]: where rows go, how often, and where Spark keeps its notes."""

    to: str
    sink_id: str | None = None
    mode: Literal["ledger", "chain"] | None = None
    format: str = "parquet"
    partition_by: str | list[str] | None = None
    key: str | None = None
    trigger: str = "10 seconds"
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


class SparkTable(msgspec.Struct, frozen=True, kw_only=True):
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
        "output": OutputTable,
        "delta": DeltaSection,
        "iceberg": IcebergSection,
        "spark": SparkTable,
    },
    inner={
        "aggregate": ("columns",),
        "delta": ("storage_options",),
        "iceberg": ("properties",),
        "spark": ("conf",),
    },
    required={"source": 'subscribe = "orders"', "output": 'to = "/var/lake/orders"'},
    example="source.startingOffsets=latest",
)
"""[source] has the names of the source's options, which are checked there."""


def source_options(table: Table, origin: Origin) -> dict[str, str]:
    """[source] as options of the source: `kafka.x.y = 1` in TOML is a table in a table."""
    flat: Table = {}
    for name, value in table.items():
        if name.lower() == "kafka" and isinstance(value, dict):
            flat |= dotted("kafka", cast(Table, value))
        else:
            flat[name] = value
    return {name: option_text(value, name, origin) for name, value in flat.items()}
