"""Every example, run as its reader would run it, against a real broker."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.peers.holdfast import HoldfastBroker

ROOT = Path(__file__).parent.parent.parent
CLIENTS = ["produce_consume", "with_kafka_python", "with_aiokafka"]
LINES_MAX = 60
ZERO_ROWS = (
    "sent, never acknowledged",
    "lost",
    "doubled",
    "out of order",
    "different for the reader that was there all the time",
)


def run(arguments: list[str], *, seconds_max: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )


@pytest.mark.parametrize("name", CLIENTS)
def test_an_example_reads_back_what_it_produced(holdfast_broker: HoldfastBroker, name: str):
    arguments = [f"examples/{name}.py", "--bootstrap", holdfast_broker.bootstrap, "--topic", name]
    for offset in (0, 10):
        done = run(arguments, seconds_max=90)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines[0] == f"produced 10 records from offset {offset} on"
        assert lines[1:] == [f"hello {i}" for i in range(10)]


@pytest.mark.parametrize("name", CLIENTS)
def test_an_example_is_short(name: str):
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) < LINES_MAX


def test_the_demo_counts_nothing_wrong_and_leaves_nothing_behind(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--seconds", "6", "--rate", "300"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = dict(re.findall(r"^  (\S.*?) {2,}(\S.*)$", done.stdout, flags=re.MULTILINE))
    assert int(rows["acknowledged"]) >= 6 * 300 - 100
    assert rows["read back by a new consumer"] == rows["acknowledged"]
    assert {rows[row] for row in ZERO_ROWS} == {"0"}
    assert any(row.startswith("high watermark went back") for row in rows)
    assert done.stdout.count("SIGKILL after") == 2
    assert list(tmp_path.iterdir()) == []
