"""The command `holdfast`: sub-commands, loaded only when they are called.

Owns how errors reach a person: one line that names the thing and the remedy, never a trace.
"""

import importlib
import sys

import click

from holdfast import __version__
from holdfast.errors import HoldfastError

COMMANDS = {
    "serve": ("holdfast.cli.serve", "Run a broker on a store."),
    "topic": ("holdfast.cli.topic", "Create, list, describe and delete topics."),
    "cluster": ("holdfast.cli.cluster", "Show brokers and lanes; move lanes, drain brokers."),
    "group": ("holdfast.cli.group", "List, describe and reset consumer groups."),
    "run": ("holdfast.cli.run", "Run a pipeline on Spark, from a .toml or a .py file."),
    "sink": ("holdfast.cli.sink", "Land topics in object storage, as a consumer group."),
    "backfill": ("holdfast.cli.backfill", "Write an old range of a topic to files, on Spark."),
    "inspect": ("holdfast.cli.inspect", "Show what is in a store, with no broker running."),
    "landed": ("holdfast.cli.landed", "Show what has landed, and prove that it is whole."),
    "compact": ("holdfast.cli.compact", "Merge the small files of a sink."),
}


class LazyGroup(click.Group):
    """Imports a sub-command's module when it is called: `--help` must be quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        return module.command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast")
def cli() -> None:
    """A Kafka-compatible log on object storage: no record lost, hidden, rewound or doubled."""


def main() -> None:
    """Run the command line; an error of Holdfast's own is one line and exit code 1."""
    try:
        cli.main(standalone_mode=True)
    except HoldfastError as error:
        click.echo(f"holdfast: {error}", err=True)
        sys.exit(1)
