"""The tables and keys of a pipeline file, and where in the file each of them stands.

Pure. Owns which keys there are, their types, and the form of every message about one: file, line,
table, key, what is wrong, what to write instead. Must never know what a pipeline does.
"""

import datetime
import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

import msgspec

from holdfast.errors import ConfigurationError

Table = dict[str, Any]
T = TypeVar("T")

_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?$")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_.-]|"[^"]*"|'[^']*')+)\s*=""")
_AT = re.compile(r"^(.*) - at `\$((?:\.|\[).*)`$")


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


TABLES: Mapping[str, type[msgspec.Struct] | None] = {
    "source": None,
    "dedup": DedupTable,
    "aggregate": AggregateTable,
    "timers": TimersTable,
    "transform": TransformTable,
    "output": OutputTable,
    "delta": DeltaSection,
    "iceberg": IcebergSection,
    "spark": SparkTable,
}
"""[source] has the names of the source's options, which are checked there."""
INNER: Mapping[str, tuple[str, ...]] = {
    "aggregate": ("columns",),
    "delta": ("storage_options",),
    "iceberg": ("properties",),
    "spark": ("conf",),
}
"""Keys that are tables themselves, with names of the user's."""


def keys_of(table: str) -> tuple[str, ...]:
    kind = TABLES[table]
    return tuple(row.name for row in msgspec.structs.fields(kind)) if kind is not None else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the keys of a pipeline were written."""

    name: str
    """The file, as the user named it."""
    text: str = ""
    """Of a TOML file; empty where the tables are in Python."""
    overridden: frozenset[tuple[str, str]] = field(default_factory=frozenset[tuple[str, str]])
    """(table, key) of the command line."""

    def error(self, message: str, table: str | None = None, key: str | None = None) -> Exception:
        """The error to raise, with all that is known of the place."""
        if table is not None and key is not None and (table, key) in self.overridden:
            return ConfigurationError(f"--option {table}.{key}: {message}")
        place = self.name
        line = line_of(self.text, table, key) if table is not None else None
        if line is not None:
            place += f", line {line}"
        if table is not None:
            place += f": [{table}]" + (f" {key}" if key is not None else "")
        return ConfigurationError(f"{place}: {message}")


def line_of(text: str, table: str, key: str | None) -> int | None:
    """The line of a key, or of its table where it has no key; None where it is not to be found."""
    inside, of_table, of_outer = "", None, None
    for number, line in enumerate(text.splitlines(), start=1):
        if (header := _HEADER.match(line)) is not None:
            inside = _plain(header[1])
            if inside == table or (of_table is None and inside.startswith(f"{table}.")):
                of_table = number
        elif key is not None and (found := _KEY.match(line)) is not None:
            full = ".".join(part for part in (inside, _plain(found[1])) if part)
            if full.lower() == f"{table}.{key}".lower():
                return number
            if full == f"{table}.{key.partition('.')[0]}":
                of_outer = number
    return of_outer or of_table


def _plain(key: str) -> str:
    return key.replace('"', "").replace("'", "").replace(" ", "")


def read_toml(name: str, text: str) -> Table:
    """The tables of a file; the message of a syntax error has its line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as wrong:
        raise ConfigurationError(f"{name} is not TOML: {wrong}") from wrong


def check_tables(tables: Mapping[str, Any], origin: Origin) -> dict[str, Table]:
    """The tables by name; refused where there is one that no pipeline has."""
    for name, value in tables.items():
        if name not in TABLES:
            raise origin.error(_unknown_table(name, is_table=isinstance(value, dict)))
        if not isinstance(value, dict):
            raise origin.error(f"{name} must be a table: write its keys below a line [{name}]")
    for name in ("source", "output"):
        if name not in tables:
            example = 'subscribe = "orders"' if name == "source" else 'to = "/var/lake/orders"'
            raise origin.error(f"there is no table [{name}]: add one, with {example}")
    return {name: cast(Table, value) for name, value in tables.items()}


def _unknown_table(name: str, *, is_table: bool) -> str:
    for table in TABLES:
        if name in keys_of(table):
            return f"the key {name!r} stands outside of a table: it belongs below [{table}]"
    close = difflib.get_close_matches(name, TABLES, n=1)
    hint = f"did you mean [{close[0]}]?" if close else f"there are {_listed(TABLES)}"
    return f"unknown {'table' if is_table else 'key'} {name!r}: {hint}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"[{name}]" for name in names)


def convert(table: Table, name: str, kind: type[T], origin: Origin) -> T:
    """A table as what it must be; the message names the key, and the nearest right one."""
    known = keys_of(name)
    for key in table:
        if key not in known:
            raise origin.error(_unknown_key(key, name, known), name, key)
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as wrong:
        found = _AT.match(str(wrong))
        if found is None:
            raise origin.error(_spoken(str(wrong)), name) from wrong
        key = re.split(r"[.\[]", found[2].lstrip("."))[0]
        raise origin.error(_spoken(found[1]), name, key) from wrong


def _unknown_key(key: str, table: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    if close:
        return f"unknown key {key!r}: did you mean {close[0]!r}?"
    for other in TABLES:
        if other != table and key in keys_of(other):
            return f"unknown key {key!r}: it belongs below [{other}]"
    return f"unknown key {key!r}: [{table}] has {', '.join(known)}"


def _spoken(problem: str) -> str:
    """msgspec's words, which are of Python, in those of a TOML file."""
    missing = re.match(r"Object missing required field `(\w+)`", problem)
    if missing is not None:
        return f"the key {missing[1]!r} is missing"
    problem = problem.replace(" | null", "").replace("`array`", "a list").replace("`str", "`text")
    problem = problem.replace("| array`", "or a list`").replace("Expected", "this must be")
    return problem.replace("Invalid enum value", "there is no")


def source_options(table: Table, origin: Origin) -> dict[str, str]:
    """[source] as options of the source: `kafka.x.y = 1` in TOML is a table in a table."""
    flat: Table = {}
    for name, value in table.items():
        if name.lower() == "kafka" and isinstance(value, dict):
            flat |= dotted("kafka", cast(Table, value))
        else:
            flat[name] = value
    return {name: option_text(value, name, origin) for name, value in flat.items()}


def dotted(prefix: str, table: Table) -> Table:
    """The leaves of a table of tables, by their full names."""
    flat: Table = {}
    for name, value in table.items():
        full = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict):
            flat |= dotted(full, cast(Table, value))
        else:
            flat[full] = value
    return flat


def option_text(value: object, name: str, origin: Origin, *, table: str = "source") -> str:
    """A TOML value as the text that an option has."""
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int():
            return str(value)
        case list():
            parts = cast("list[object]", value)
            if all(isinstance(part, str) for part in parts):
                return ",".join(str(part) for part in parts)
        case dict():
            return json.dumps(value, sort_keys=True)
        case datetime.datetime() if value.tzinfo is not None:
            return str(round(value.timestamp() * 1000))
        case datetime.datetime():
            raise origin.error(f"{value} has no time zone: write {value}Z", table, name)
        case _:
            pass
    raise origin.error(
        f"{value!r} cannot be an option: use text, a whole number, true, false or a list of texts",
        table,
        name,
    )


def texts_of(inner: Table, table: str, key: str, origin: Origin) -> dict[str, str]:
    """A table of settings inside a table, by their full names and as texts."""
    return {
        name: option_text(value, f"{key}.{name}", origin, table=table)
        for name, value in dotted("", inner).items()
    }


def with_overrides(
    tables: Mapping[str, Any], overrides: Iterable[str]
) -> tuple[Table, frozenset[tuple[str, str]]]:
    """The tables after `--option TABLE.KEY=VALUE`, and which keys those were."""
    changed: Table = {
        name: dict(cast(Table, value)) if isinstance(value, dict) else value
        for name, value in tables.items()
    }
    names: set[tuple[str, str]] = set()
    for override in overrides:
        name, sign, value = override.partition("=")
        table, dot, key = name.strip().partition(".")
        if not sign or not dot or not key:
            raise ConfigurationError(
                f"--option {override}: write it as TABLE.KEY=VALUE, as in"
                " --option source.startingOffsets=latest"
            )
        if table not in TABLES:
            raise ConfigurationError(f"--option {name}: {_unknown_table(table, is_table=True)}")
        place = changed.setdefault(table, {})
        within, inner_dot, inner = key.partition(".")
        if inner_dot and within in INNER.get(table, ()):
            known = dotted("", cast(Table, place.get(within, {})))
            place[within] = {**known, inner: value}
        else:
            _forget(place, key)
            place[key] = value if table == "source" else _value(value)
        names.add((table, key))
    return changed, frozenset(names)


def _forget(table: Table, key: str) -> None:
    """Names of options have no case, and `kafka.x` may stand in a table of its own."""
    for name in [name for name in table if name.lower() == key.lower()]:
        del table[name]
    if key.lower().startswith("kafka.") and isinstance(table.get("kafka"), dict):
        inner = dotted("kafka", cast(Table, table.pop("kafka")))
        table.update({name: value for name, value in inner.items() if name.lower() != key.lower()})


def _value(text: str) -> object:
    """As TOML reads it where it is a number, a flag or a list; else the text itself."""
    try:
        found = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return cast(object, found) if isinstance(found, bool | int | list) else text
