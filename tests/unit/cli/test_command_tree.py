"""All commands and sub-commands: what each of them must have, and that its help tells the truth."""

import contextlib
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.support.command_tree import ALL

from holdfast.cli.main import cli

WITHOUT_JSON = {
    "holdfast serve": "it prints one line and runs until it is stopped; its log has --log-format",
}
SHARED = ("--bootstrap", "--dry-run", "--json", "--option", "--timeout", "--verbose", "--verify")
OWN_TEXT = {
    "--json": {"run", "sink", "backfill", "consume"},  # a line for each step, or for each record
    "--bootstrap": {"backfill"},  # instead of --store
    "--option": {"backfill"},  # of the Kafka client, since there is no file
}
"""Commands in which a shared option means something of its own."""


LEAVES = {path: found for path, found in ALL.items() if not isinstance(found, click.Group)}


def options(command: click.Command) -> dict[str, click.Option]:
    found = [each for each in command.params if isinstance(each, click.Option)]
    return {name: each for each in found for name in each.opts}


def test_every_command_can_print_json():
    assert set(WITHOUT_JSON) <= set(LEAVES)
    lacking = {path for path, found in LEAVES.items() if "--json" not in options(found)}
    assert lacking == set(WITHOUT_JSON)


@pytest.mark.parametrize("path", ALL)
def test_every_option_has_a_help_text(path: str):
    silent = [name for name, each in options(ALL[path]).items() if not each.help]
    assert silent == []


@pytest.mark.parametrize("name", SHARED)
def test_an_option_that_several_commands_have_reads_the_same_in_each(name: str):
    texts = {
        path: options(found)[name].help
        for path, found in LEAVES.items()
        if name in options(found) and path.split()[-1] not in OWN_TEXT.get(name, ())
    }
    assert len(texts) >= 2
    assert len(set(texts.values())) == 1, texts


@pytest.mark.parametrize("path", ALL)
def test_the_examples_in_the_help_of_a_command_can_be_run_as_they_are(path: str, tmp_path: Path):
    asked = CliRunner().invoke(cli, [*path.split()[1:], "--help"])
    assert asked.exit_code == 0
    _, mark, tail = asked.output.rpartition("Examples:\n")
    assert mark, "it ends with examples"
    lines = tail.splitlines()
    assert lines
    (tmp_path / "broker.toml").write_text('[serve]\nstore = "log"\n')
    with contextlib.chdir(tmp_path):
        assert sum(parsed(line) for line in lines) >= 1


def parsed(line: str) -> int:
    """How many commands of ours a line of a shell has; each must be understood."""
    count = 0
    for part in line.split(" | "):
        words = shlex.split(part)
        if words[0] != "holdfast":
            continue
        path, rest = "holdfast", words[1:]
        while rest and f"{path} {rest[0]}" in ALL:
            path, rest = f"{path} {rest[0]}", rest[1:]
        assert path in LEAVES, line
        LEAVES[path].make_context(path, rest)
        count += 1
    return count
