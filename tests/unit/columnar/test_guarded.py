"""No kernel reads one byte past the end of what it is given."""

import json
import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "guarded.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), *arguments],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def test_hostile_bytes_before_unreadable_memory_are_never_read_past():
    found = run()
    assert found.returncode == 0, found.stderr
    verdicts = json.loads(found.stdout)
    assert verdicts["corrupt"] > 500 and verdicts["sound"] > 100


def test_the_guard_does_kill_who_touches_it():
    assert run("touch").returncode == -signal.SIGSEGV
