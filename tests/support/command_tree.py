"""All commands and sub-commands of the command line."""

from collections.abc import Iterator

import click

from holdfast.cli.main import cli


def walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from walk(found, f"{path} {name}")


ALL = dict(walk(cli, "holdfast"))
