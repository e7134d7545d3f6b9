"""The page on sinks is held to the code: every key, option and metric, and no other."""

import re
from pathlib import Path

import click
import pytest
from tests.unit.sink.statuses import status

from holdfast.cli.sink import command
from holdfast.sink.config_file import LEVELS
from holdfast.sink.config_tables import SINK
from holdfast.sink.http import HealthServer
from holdfast.sink.metrics import SinkCollector

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "sink.md"


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def names_in(section: str) -> set[str]:
    """What stands in the first column of its tables."""
    return set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))


@pytest.mark.parametrize("table", SINK.tables)
def test_every_key_is_on_the_page_and_no_other(table: str):
    found = names_in(sections()[f"`[{table}]`"])
    assert {name for name in found if not name.startswith("holdfast_")} == set(SINK.keys_of(table))


def test_every_option_of_the_command_is_on_the_page_and_no_other():
    options = {p.opts[0] for p in command.params if isinstance(p, click.Option)}
    assert names_in(sections()["The command"]) == options


def test_every_metric_is_on_the_page_and_no_other():
    families = SinkCollector(status, memory_bytes=1).collect()
    there = {f"{f.name}_total" if f.type == "counter" else f.name for f in families}
    found = names_in(sections()["`[http]`"])
    assert {name for name in found if name.startswith("holdfast_")} == there


def test_levels_and_paths_are_those_of_the_code():
    for name, (least, most) in LEVELS.items():
        assert f"{least} to {most} for {name}" in PAGE.read_text()
    server = HealthServer("127.0.0.1:0", memory_bytes=1)
    assert server.paths
    for path in server.paths:
        assert f"`{path}`" in sections()["`[http]`"]
