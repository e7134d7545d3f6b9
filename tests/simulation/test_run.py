"""The command that plays many seeds: what it says of one that fails, and when it stops."""

from click.testing import CliRunner
from simulation.run import SEEDS_AT_ONCE, command


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
