"""TOML files of settings: where in a file each key stands, and the error for a wrong one.

Pure, except that it checks which files exist. Owns the form of every message about a key: file,
line, table, key, what is wrong, what to write instead. Also owns what `--option TABLE.KEY=VALUE`
changes. Must never know what a key is for.
"""

import datetime
import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, get_args

import msgspec

from holdfast.addresses import scheme_of
from holdfast.errors import ConfigurationError
from holdfast.suggestion import nearest, no_such_value

Table = dict[str, Any]
Duration = Annotated[str, msgspec.Meta(examples=["10 minutes"])]
"""The text of a duration, as holdfast.quantities reads it."""
T = TypeVar("T")

_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?$")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_.-]|"[^"]*"|'[^']*')+)\s*=""")
_KINDS = {
    "str": "text",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
_AT = re.compile(r"^(.*) - at `\$((?:\.|\[).*)`$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """The current name of an old key."""

    key: str
    table: str | None = None
    """The table of the current key; None if it is the table of the old one."""
    values: Mapping[str, object] = field(default_factory=dict[str, object])
    """Old values that are written differently now, with the current value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTables:
    """The tables and keys that a kind of file has."""

    tables: Mapping[str, type[msgspec.Struct] | None]
    """The keys of each table. None: any key is an option with a text, and is checked elsewhere."""
    required: Mapping[str, str]
    """Tables that must be there, each with an example of a key in it."""
    example: str
    """An example of an override, TABLE.KEY=VALUE."""
    inner: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Keys that are tables themselves, with keys that the user chooses."""
    renamed: Mapping[tuple[str, str], Renamed] = field(
        default_factory=dict[tuple[str, str], Renamed]
    )
    """Old names, by table and key, that still work."""

    def keys_of(self, table: str) -> tuple[str, ...]:
        kind = self.tables[table]
        if kind is None:
            return ()
        return tuple(row.encode_name for row in msgspec.structs.fields(kind))

    def unknown_table(self, name: str, *, is_table: bool) -> str:
        for table in self.tables:
            if name in self.keys_of(table):
                return f"the key {name!r} is outside of all tables: put it below [{table}]"
        close = nearest(name, self.tables)
        listed = ", ".join(f"[{table}]" for table in self.tables)
        hint = f"did you mean [{close}]?" if close else f"there are {listed}"
        return f"unknown {'table' if is_table else 'key'} {name!r}: {hint}"

    def unknown_key(self, key: str, table: str) -> str:
        known = self.keys_of(table)
        for other in self.tables:
            if other != table and key in self.keys_of(other):
                return f"unknown key {key!r}: it belongs below [{other}]"
        old = {name: new.key for (place, name), new in self.renamed.items() if place == table}
        close = nearest(key, [*known, *old])
        if close is not None:
            return f"unknown key {key!r}: did you mean {old.get(close, close)!r}?"
        return f"unknown key {key!r}: [{table}] has {', '.join(known)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlaces:
    """The places where the keys of a file were written."""

    name: str
    """The file, as the user named it."""
    text: str = ""
    """The text of a TOML file; empty if the tables are in Python."""
    overridden: frozenset[tuple[str, str]] = field(default_factory=frozenset[tuple[str, str]])
    """(table, key) of each key that the command line replaces."""
    known: FileTables
    """The tables and keys that the file may have."""
    written: Mapping[tuple[str, str], tuple[str, str]] = field(
        default_factory=dict[tuple[str, str], tuple[str, str]]
    )
    """Keys that are in the file under an old name, and that name."""

    def error(self, message: str, table: str | None = None, key: str | None = None) -> Exception:
        """Return the error to raise, with all that is known about the place."""
        if table is not None and key is not None and (table, key) in self.overridden:
            return ConfigurationError(f"--option {table}.{key}: {message}")
        if table is not None and key is not None:
            table, key = self.written.get((table, key), (table, key))
        place = self.name
        line = line_of(self.text, table, key) if table is not None else None
        if line is not None:
            place += f", line {line}"
        if table is not None:
            place += f": [{table}]" + (f" {key}" if key is not None else "")
        return ConfigurationError(f"{place}: {message}")


def line_of(text: str, table: str, key: str | None) -> int | None:
    """Return the line of a key, or of its table if it has no line; None if neither is found."""
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
    """Parse the tables of a file. The message of a syntax error has its line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as wrong:
        raise ConfigurationError(f"{name} is not TOML: {wrong}") from wrong


def check_tables(tables: Mapping[str, Any], origin: KeyPlaces) -> dict[str, Table]:
    """Return the tables by name. Raise if one is unknown, or if a required one is missing."""
    known = origin.known
    for name, value in tables.items():
        if name not in known.tables:
            raise origin.error(known.unknown_table(name, is_table=isinstance(value, dict)))
        if not isinstance(value, dict):
            raise origin.error(f"{name} must be a table: write its keys below a line [{name}]")
    for name, example in known.required.items():
        if name not in tables:
            raise origin.error(
                f"the table [{name}] is missing: add it, with a key such as {example}"
            )
    return {name: cast(Table, value) for name, value in tables.items()}


def convert(table: Table, name: str, kind: type[T], origin: KeyPlaces) -> T:
    """Convert a table to its type. The error names the key, and the nearest known one."""
    keys = origin.known.keys_of(name)
    for key in table:
        if key not in keys:
            raise origin.error(origin.known.unknown_key(key, name), name, key)
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as wrong:
        found = _AT.match(str(wrong))
        if found is None:
            raise origin.error(_spoken(str(wrong)), name) from wrong
        key = _key_in(found[2], keys)
        raise origin.error(_wrong_value(found[1], kind, key), name, key) from wrong


def _key_in(path: str, keys: Iterable[str]) -> str:
    """Return the key that msgspec's path begins with. A key may contain dots."""
    path = path.lstrip(".")
    begins = [key for key in keys if re.match(rf"{re.escape(key)}(?![\w-])", path)]
    return max(begins, key=len, default=path)


def _wrong_value(problem: str, kind: type[Any], key: str) -> str:
    """Say what is wrong with the value of a key, with the possible words or an example."""
    rows = [row for row in msgspec.structs.fields(kind) if row.encode_name == key]
    parts = [part for row in rows for part in _parts_of(row.type)]
    given = re.match(r"Invalid enum value '(.*)'$", problem)
    if given is not None:
        return no_such_value(given[1], [part for part in parts if isinstance(part, str)])
    known = [part.examples or [] for part in parts if isinstance(part, msgspec.Meta)]
    return _spoken(problem) + "".join(f': write it as "{examples[0]}"' for examples in known)


def _parts_of(kind: Any) -> list[Any]:
    """Return the types, words and examples that a type is made of."""
    return [kind, *(part for inner in get_args(kind) for part in _parts_of(inner))]


def _spoken(problem: str) -> str:
    """Translate a message of msgspec from Python's words to those of a TOML file."""
    missing = re.match(r"Object missing required field `([\w.-]+)`", problem)
    if missing is not None:
        return f"the key {missing[1]!r} is missing"
    types = re.match(r"Expected `(.+)`, got `(.+)`$", problem)
    if types is None:
        return problem
    wanted = [_KINDS.get(name, name) for name in types[1].split(" | ") if name != "null"]
    return f"this must be {' or '.join(wanted)}, not {_KINDS.get(types[2], types[2])}"


def dotted(prefix: str, table: Table) -> Table:
    """Return the leaves of nested tables, by their full names with dots."""
    flat: Table = {}
    for name, value in table.items():
        full = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict):
            flat |= dotted(full, cast(Table, value))
        else:
            flat[full] = value
    return flat


def option_text(value: object, name: str, origin: KeyPlaces, *, table: str = "source") -> str:
    """Return a TOML value as the text of an option."""
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
            raise origin.error(f"{value} has no time zone: write {value}Z for UTC", table, name)
        case _:
            pass
    raise origin.error(
        f"{value!r} cannot be an option: use text, a whole number, true, false or a list of texts",
        table,
        name,
    )


def texts_of(inner: Table, table: str, key: str, origin: KeyPlaces) -> dict[str, str]:
    """Return the settings of an inner table as texts, by their full names."""
    return {
        name: option_text(value, f"{key}.{name}", origin, table=table)
        for name, value in dotted("", inner).items()
    }


def spark_settings(inner: Table, origin: KeyPlaces) -> dict[str, str]:
    """Return the settings of Spark in [spark] conf."""
    flat = texts_of(inner, "spark", "conf", origin)
    for name in flat:
        if not name.startswith("spark."):
            raise origin.error(
                f"{name!r} is not a Spark setting: their names begin with spark., as in"
                ' "spark.driver.memory" = "4g"',
                "spark",
                "conf",
            )
    return flat


def with_overrides(
    tables: Mapping[str, Any],
    overrides: Iterable[str],
    known: FileTables,
    hint: Callable[[str], None] = lambda _: None,
) -> tuple[Table, frozenset[tuple[str, str]]]:
    """Return the tables after `--option TABLE.KEY=VALUE`, and the keys that it replaced."""
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
                f"--option {override}: write it as TABLE.KEY=VALUE, as in --option {known.example}"
            )
        if table not in known.tables:
            said = known.unknown_table(table, is_table=True)
            raise ConfigurationError(f"--option {name}: {said}")
        renamed = known.renamed.get((table, key))
        meant: object | None = None
        if renamed is not None:
            table, key = renamed.table or table, renamed.key
            meant = renamed.values.get(value)
            hint(f"--option {name.strip()} is now called {table}.{key}; the old name still works")
        place = changed.setdefault(table, {})
        within, inner_dot, inner = key.partition(".")
        if inner_dot and within in known.inner.get(table, ()):
            before = dotted("", cast(Table, place.get(within, {})))
            place[within] = {**before, inner: value}
        else:
            _forget(place, key)
            place[key] = _value(value, known.tables[table], key) if meant is None else meant
        names.add((table, key))
    return changed, frozenset(names)


def with_current_names(
    tables: Mapping[str, Any],
    known: FileTables,
    name: str,
    hint: Callable[[str], None],
) -> tuple[Table, dict[tuple[str, str], tuple[str, str]]]:
    """Return the tables with current names, and the old name of each key that had one.

    `hint` is called for each old name, with the new one. If a key has both, the new name counts.
    """
    changed: Table = {
        key: dict(cast(Table, value)) if isinstance(value, dict) else value
        for key, value in tables.items()
    }
    written: dict[tuple[str, str], tuple[str, str]] = {}
    for (table, old), renamed in known.renamed.items():
        if not isinstance(changed.get(table), dict):
            continue
        place = cast(Table, changed[table])
        value = _taken(place, old)
        if value is None:
            continue
        to = renamed.table or table
        if isinstance(value, str) and value in renamed.values:
            value = renamed.values[value]
        where = "" if to == table else f" below [{to}]"
        hint(
            f"{name}: [{table}] {old} is now called {renamed.key}{where}; the old name still works"
        )
        cast(Table, changed.setdefault(to, {})).setdefault(renamed.key, value)
        written[to, renamed.key] = (table, old)
    return changed, written


def _taken(table: Table, key: str) -> object | None:
    """Remove a key from a table and return its value. A key with dots may be in inner tables."""
    if key in table:
        return table.pop(key)
    head, dot, rest = key.partition(".")
    while dot:
        inner = table.get(head)
        if isinstance(inner, dict):
            # A copy, since the file's own tables must not change.
            table[head] = dict(cast(Table, inner))
            value = _taken(cast(Table, table[head]), rest)
            if not table[head]:
                del table[head]
            return value
        more, dot, rest = rest.partition(".")
        head = f"{head}.{more}"
    return None


def _forget(table: Table, key: str) -> None:
    """Remove a key from a table, in upper or lower case. A key with dots may be in inner tables."""
    for name in [name for name in table if name.lower() == key.lower()]:
        del table[name]
    head, dot, _ = key.lower().partition(".")
    if dot and isinstance(table.get(head), dict):
        inner = dotted(head, cast(Table, table.pop(head)))
        table.update({name: value for name, value in inner.items() if name.lower() != key.lower()})


def _value(text: str, kind: type[msgspec.Struct] | None, key: str) -> object:
    """Return the value as TOML reads it if the key takes a number, a flag or a list; otherwise the
    text itself."""
    if kind is None:
        return text
    try:
        found = cast(object, tomllib.loads(f"value = {text}")["value"])
    except tomllib.TOMLDecodeError:
        return text
    is_fit = isinstance(found, bool | int | list)
    wanted = next((row for row in msgspec.structs.fields(kind) if row.encode_name == key), None)
    if is_fit and wanted is not None:
        try:
            msgspec.convert(found, wanted.type)
        except msgspec.ValidationError:
            is_fit = False
    return found if is_fit else text


def no_file(path: Path, suffixes: Collection[str]) -> str:
    """Return the message for a file that does not exist. It suggests a file with a near name."""
    if path.is_dir():
        return f"{path} is a directory: name a file in it"
    there = [p.name for p in path.parent.glob("*") if p.suffix in suffixes]
    near = nearest(path.name, there)
    return f"there is no file {path}" + (f": did you mean {near}?" if near else "")


def located(text: str, folder: Path) -> str:
    """Return an address as it is, and a path relative to a folder as a full path."""
    if scheme_of(text):
        return text
    return str(Path(folder, Path(text).expanduser()))
