"""Options that several commands share: one name, one meaning, one help text.

Owns these texts, and the form of the examples in a command's help. Must never read a value.
"""

from collections.abc import Callable
from typing import Any

import click

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def examples(*lines: str) -> str:
    """Return the end of a command's help: examples that can be pasted."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


bootstrap_option: Decorator = click.option(
    "--bootstrap",
    "--bootstrap-server",
    default=BOOTSTRAP_DEFAULT,
    show_default=True,
    metavar="HOST:PORT",
    help="A broker of the cluster, or several with commas between them.",
)
json_option: Decorator = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON instead of text."
)
json_lines_option: Decorator = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON instead of text: a line for each step, and a summary as the last line.",
)
yes_option: Decorator = click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation. Needed with --json."
)
override_option: Decorator = click.option(
    "--option",
    "options",
    multiple=True,
    metavar="TABLE.KEY=VALUE",
    help="Replace a setting of the file. Can be repeated.",
)
dry_run_option: Decorator = click.option(
    "--dry-run", is_flag=True, help="Check everything, print what would be done, and end."
)
verify_option: Decorator = click.option(
    "--verify", is_flag=True, help="Read every object and check its checksums."
)
verbose_option: Decorator = click.option(
    "--verbose", is_flag=True, help="Also show log lines, on standard error."
)
timeout_option: Decorator = click.option(
    "--timeout",
    "timeout_s",
    default=60,
    show_default=True,
    type=click.IntRange(1),
    metavar="SECONDS",
    help="How long to wait until it is done. After that it goes on by itself.",
)


def master_option(default: str | None, *, otherwise: str = "") -> Decorator:
    """Return the option `--master`. `otherwise` says in its help what is used without it."""
    return click.option(
        "--master",
        default=default,
        show_default=default is not None,
        metavar="URL",
        help=f"Spark's master URL, such as local[4] or spark://host:7077.{otherwise}",
    )


def need_yes(*, as_json: bool, yes: bool) -> None:
    """Refuse --json without --yes: standard output is JSON only, so no question can be asked."""
    if as_json and not yes:
        raise click.UsageError("--json asks no questions: add --yes to confirm the change")
