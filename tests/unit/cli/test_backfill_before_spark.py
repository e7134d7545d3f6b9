"""What `holdfast backfill` refuses before a Spark is started."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.backfill import command

ASKED = ("--topic", "orders", "--sink-id", "old")


@pytest.mark.parametrize("option", ["where=offset > 5", "startingOffsets=earliest"])
def test_an_option_that_would_have_no_effect_is_refused_with_those_that_have(
    tmp_path: Path, option: str
):
    places = ("--store", str(tmp_path / "store"), "--to", str(tmp_path / "lake"))
    result = CliRunner().invoke(command, [*places, *ASKED, "--option", option])
    assert result.exit_code != 0
    assert f"--option {option.partition('=')[0]} would have no effect" in result.output
    assert "--from-offset" in result.output


def test_records_must_be_somewhere(tmp_path: Path):
    result = CliRunner().invoke(command, ["--to", str(tmp_path / "lake"), *ASKED])
    assert result.exit_code != 0
    assert "--store" in result.output
    assert "--bootstrap" in result.output
