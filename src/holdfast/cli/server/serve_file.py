"""`holdfast serve --config FILE`: the options of the command line in a TOML file.

Owns how a file becomes options: [serve] has options by their names, [override] has settings by
Kafka's names. Each error names the file, the line and what to write instead. Must never have a list
of the options: the command defines which there are.
"""

from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from holdfast.broker.properties import overridden
from holdfast.broker.settings import BrokerSettings
from holdfast.errors import ConfigurationError
from holdfast.identifiers import BrokerId
from holdfast.settings_file import (
    FileTables,
    KeyPlaces,
    Table,
    check_tables,
    convert,
    dotted,
    located,
    no_file,
    option_text,
    read_toml,
)

SERVE = "serve"
OVERRIDE = "override"
NOT_IN_FILES = ("config", "overrides", "help")
PLACES = ("store", "spool")
"""Options that may be paths. A relative path starts at the file's folder."""
_META = "holdfast.serve.overrides"


def read_config(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Make the values in the file the defaults of the other options."""
    del option
    if value is not None:
        context.default_map, context.meta[_META] = read_serve_file(Path(value), context.command)


def overrides_of(context: click.Context) -> tuple[str, ...]:
    """Return NAME=VALUE for each key of [override]."""
    return context.meta.get(_META, ())


def read_serve_file(path: Path, command: click.Command) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the values by the names of the command's parameters, and the overrides."""
    if not path.is_file():
        raise ConfigurationError(f"--config: {no_file(path, ('.toml',))}")
    text = path.read_text()
    options = {_name(each): each for each in _options(command)}
    known = FileTables(
        tables={SERVE: _table_of(options), OVERRIDE: None}, required={}, example="serve.id=1"
    )
    origin = KeyPlaces(name=str(path), text=text, known=known)
    tables = check_tables(read_toml(str(path), text), origin)
    serve = tables.get(SERVE, {})
    convert(serve, SERVE, _table_of(options), origin)
    values = {
        options[name].name or name: _value(options[name], name, value, path, origin)
        for name, value in serve.items()
    }
    return values, _overrides(tables.get(OVERRIDE, {}), origin)


def _options(command: click.Command) -> list[click.Option]:
    found = [each for each in command.params if isinstance(each, click.Option)]
    return [each for each in found if each.name not in NOT_IN_FILES]


def _name(option: click.Option) -> str:
    return option.opts[0].removeprefix("--")


def _table_of(options: dict[str, click.Option]) -> type[msgspec.Struct]:
    """Return a struct of the keys that [serve] may have, with the types of their values."""
    fields = [
        (name.replace("-", "_"), _kind(option) | None, None) for name, option in options.items()
    ]
    return msgspec.defstruct("ServeTable", fields, rename=lambda name: name.replace("_", "-"))


def _kind(option: click.Option) -> Any:
    if option.is_flag:
        return bool
    match option.type:
        case click.Choice():
            return Literal[tuple(option.type.choices)]
        case click.types.IntParamType():
            return int
        case _:
            return str


def _value(option: click.Option, name: str, value: Any, path: Path, origin: KeyPlaces) -> Any:
    """Return a value, checked against the same bounds as on the command line."""
    try:
        option.type.convert(value, option, None)
    except click.BadParameter as wrong:
        raise origin.error(wrong.message, SERVE, name) from wrong
    return located(value, path.parent) if name in PLACES else value


def _overrides(table: Table, origin: KeyPlaces) -> tuple[str, ...]:
    """Return Kafka's settings as NAME=VALUE, after checking each one alone."""
    usual = BrokerSettings(broker_id=BrokerId(0), host="", port=0)
    found: list[str] = []
    for name, value in dotted("", table).items():
        text = f"{name}={option_text(value, name, origin, table=OVERRIDE)}"
        found.append(text)
        try:
            overridden(usual, [text])
        except ConfigurationError as wrong:
            if not str(wrong).startswith(f"--override {name}: "):
                continue  # it conflicts with another one's default, which the file may change
            message = str(wrong).removeprefix(f"--override {name}: ")
            raise origin.error(message, OVERRIDE, name) from wrong
    return tuple(found)
