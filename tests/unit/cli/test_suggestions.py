"""Mistyped commands, and the completion of a shell."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.main import cli

HOLDFAST = Path(sys.executable).parent / "holdfast"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["topik"], "there is no command 'topik': did you mean 'topic'?"),
        (["topic", "consum"], "there is no command 'consum': did you mean 'consume'?"),
        (["group", "descrbe"], "did you mean 'describe'?"),
        (["cluster", "statsu"], "did you mean 'status'?"),
        (["xyzzy"], "there are serve, topic, cluster"),
        (["topic", "produce", "t", "--acks", "al"], "there is no 'al': did you mean 'all'?"),
    ],
)
def test_the_nearest_name_is_offered(words: list[str], said: str):
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2
    assert said in done.output


def test_a_shell_completes_commands_and_options():
    script = subprocess.run(
        [str(HOLDFAST)],
        env={**os.environ, "_HOLDFAST_COMPLETE": "bash_source"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    assert "complete -o nosort -F" in script

    def completed(words: str, at: int) -> str:
        variables = {
            "_HOLDFAST_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(at),
        }
        return subprocess.run(
            [str(HOLDFAST)],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout

    assert completed("holdfast to", 1).split() == ["plain,topic"]
    assert completed("holdfast topic co", 2).split() == ["plain,consume"]
    assert "plain,--since" in completed("holdfast topic consume --s", 3)
