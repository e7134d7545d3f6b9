"""The command that plays many seeds: what it says of one that fails, and when it stops."""

import re
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner
from simulation.run import SEEDS_AT_ONCE, command

ROOT = Path(__file__).parent.parent.parent


def test_a_seed_that_fails_is_named_with_the_command_that_plays_it_again():
    ran = CliRunner().invoke(
        command, ["--seeds", "3", "--jobs", "1", "--planted", "ack-before-put"]
    )
    assert ran.exit_code == 1
    assert "seed 0 FAILED; python -m simulation.run --seed 0 --planted" in ran.output
    assert "3 of 3 seeds FAILED" in ran.output


def test_after_its_minutes_it_begins_no_more_seeds_and_says_how_many_there_were():
    few = 3 * SEEDS_AT_ONCE
    ran = CliRunner().invoke(
        command, ["--seeds", str(few), "--jobs", "1", "--minutes", "0.0001", "--mode", "alone"]
    )
    assert ran.exit_code == 0
    assert f"{SEEDS_AT_ONCE} of {few} seeds were played" in ran.output
    assert f"0 failures in {SEEDS_AT_ONCE} seeds" in ran.output


def test_the_command_of_the_page_replays_a_seed():
    page = (ROOT / "docs" / "how-to" / "replay-a-seed.md").read_text()
    (words,) = re.findall(r"```sh\n\.venv/bin/python (.+)\n```", page)
    ran = subprocess.run(
        [sys.executable, *words.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-2].startswith("seed 12345, ")
