"""The command `holdfast`: sub-commands, loaded only when they are called.

Owns how errors are shown: one line that names the problem and the remedy, never a traceback.
"""

import importlib
import sys

import click
from click.shell_completion import CompletionItem

from holdfast import __version__
from holdfast.cli.options import examples
from holdfast.cli.suggestions import SuggestingGroup
from holdfast.errors import HoldfastError
from holdfast.extras import MissingExtra

EXIT_MISSING_EXTRA = 2

COMMANDS = {
    "serve": ("holdfast.cli.server.serve", "Run a broker."),
    "topic": ("holdfast.cli.topic", "Create and delete topics; produce and consume records."),
    "cluster": ("holdfast.cli.cluster", "Show brokers and lanes; move a lane, drain a broker."),
    "group": ("holdfast.cli.group", "List, describe and reset consumer groups."),
    "run": ("holdfast.cli.run", "Run a pipeline on Spark, from a .toml or a .py file."),
    "sink": ("holdfast.cli.sink", "Write topics to object storage, as a consumer group."),
    "backfill": ("holdfast.cli.backfill", "Write an old range of a topic to files, on Spark."),
    "inspect": ("holdfast.cli.inspect", "Show and check the store of a broker."),
    "landed": ("holdfast.cli.landed", "Show and check what a sink or a pipeline has written."),
    "compact": ("holdfast.cli.compact", "Merge the small files of a pipeline or a backfill."),
}


class LazyGroup(SuggestingGroup):
    """A group that imports a sub-command only when it is called, so that `--help` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        return module.command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands. Click would import each of them for its help text."""
        return [
            CompletionItem(name, help=text)
            for name, (_, text) in COMMANDS.items()
            if name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "holdfast serve --store /var/lib/holdfast",
        "holdfast topic create orders --partitions 6",
        "holdfast topic produce orders orders.txt",
        "holdfast run pipeline.toml --once",
    ),
)
@click.version_option(__version__, prog_name="holdfast")
def cli() -> None:
    """A Kafka-compatible log on object storage, with exactly-once copies to files and tables.

    `holdfast COMMAND --help` explains a command and shows examples.
    """


def main() -> None:
    """Run the command line. A HoldfastError prints one line; the exit code is 2 if an extra is
    missing, otherwise 1."""
    try:
        cli.main(standalone_mode=True)
    except MissingExtra as missing:
        click.echo(str(missing), err=True)
        sys.exit(EXIT_MISSING_EXTRA)
    except HoldfastError as error:
        click.echo(f"holdfast: {error}", err=True)
        sys.exit(1)
