"""What a signal does to `holdfast run`: the first one asks, the second one ends the process."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, threading
from holdfast.cli.run import stop_on_signals
first, second = map(int, sys.argv[1:])
stop = threading.Event()
stop_on_signals(stop)
os.kill(os.getpid(), first)
print(stop.is_set(), flush=True)
os.kill(os.getpid(), second)
print("still there")
"""


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_for_an_end_and_the_second_one_is_the_end(
    first: signal.Signals, second: signal.Signals
):
    arguments = [sys.executable, "-c", PROGRAM, str(int(first)), str(int(second))]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "True\n", done.stderr
    assert done.returncode == -second
