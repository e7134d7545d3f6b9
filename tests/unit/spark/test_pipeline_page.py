"""The page on pipelines is held to the code: every key of a file, every option of the commands."""

import re
from pathlib import Path

import click
import pytest

from holdfast.cli import backfill, run
from holdfast.spark.ledger.operations import FUNCTIONS
from holdfast.spark.pipelines.tables import PIPELINE
from holdfast.spark.source.options import NAMES

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "pipeline.md"
NOT_FOR_FILES = {"rows", "where", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"}


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def names_in(section: str) -> set[str]:
    """What stands in the first column of its tables."""
    cells = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.parametrize("table", [table for table in PIPELINE.tables if table != "source"])
def test_every_key_is_on_the_page_and_no_other(table: str):
    assert names_in(sections()[f"`[{table}]`"]) == set(PIPELINE.keys_of(table))


def test_every_function_of_aggregates_is_on_the_page():
    found = re.search(r"the functions are ([^.]+)\.", sections()["`[aggregate]`"])
    assert found is not None
    assert set(re.findall(r"`(\w+)`", found[1])) == set(FUNCTIONS)


def test_every_option_of_the_source_is_on_the_page_and_no_other():
    assert names_in(sections()["`[source]`"]) == set(NAMES) - NOT_FOR_FILES


@pytest.mark.parametrize(
    ("section", "command"),
    [("The command", run.command), ("`holdfast backfill`", backfill.command)],
)
def test_every_option_of_a_command_is_on_the_page_and_no_other(
    section: str, command: click.Command
):
    options = {p.opts[0] for p in command.params if isinstance(p, click.Option)}
    assert names_in(sections()[section]) == options
