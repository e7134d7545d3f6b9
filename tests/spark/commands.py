"""`holdfast run` and `holdfast backfill` as processes, and what they left, as a reader sees it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tests.peers.process import Process

HOLDFAST = Path(sys.executable).parent / "holdfast"
RUN_S_MAX = 280.0
SPARK_SMALL = '[spark]\nmaster = "local[2]"\n[spark.conf]\nspark.driver.memory = "1g"\n'


def holdfast(*arguments: str, expected: int = 0, **variables: str) -> str:
    """Run a command to its end; what it said on both streams."""
    done = subprocess.run(
        [str(HOLDFAST), *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == expected, said
    return said


def holdfast_json(*arguments: str, expected: int = 0) -> tuple[list[dict[str, Any]], str]:
    """Run a command with --json to its end; its events, and what it said on standard error."""
    done = subprocess.run(
        [str(HOLDFAST), *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == expected, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


class Command(Process):
    """A command that runs, in a process group of its own."""

    def end_by(self, number: signal.Signals) -> int:
        """Send a signal to all of the group, as a terminal does; the exit code."""
        os.killpg(self.pid, number)
        return self._child.wait(RUN_S_MAX)


LEADS = "import os, sys; os.setsid(); os.execv(sys.argv[1], sys.argv[1:])"


def started(*arguments: str, log: Path) -> Command:
    """Begin a command."""
    return Command([sys.executable, "-c", LEADS, str(HOLDFAST), *arguments], log=log)


def landed(store: Path) -> Mapping[str, Any]:
    """What `holdfast landed` says of a store that must be whole, every byte checked."""
    found = json.loads(holdfast("landed", str(store), "--verify", "--json"))
    assert found["whole"], found["problems"]
    return found


def rows(store: Path) -> list[dict[str, Any]]:
    """The rows of all committed Parquet files of ledgers."""
    found: list[dict[str, Any]] = []
    for sink in landed(store)["sinks"]:
        for file in sink["files"]:
            found += pq.ParquetFile(store / file["path"]).read().to_pylist()
    return found


def chain_rows(store: Path) -> list[dict[str, Any]]:
    """The rows of all Parquet objects of chains, in the order of each log."""
    found: list[dict[str, Any]] = []
    for chain in landed(store)["chains"]:
        for key in chain["keys"]:
            found += pq.ParquetFile(store / key).read().to_pylist()
    return found
