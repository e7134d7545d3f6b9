"""Broker processes for chaos: started warm, killed at an instant, timed.

Owns the children it starts and their logs. Must only be used from the main thread: a child dies
with the thread that started it.
"""

import contextlib
import errno
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.peers.process import PeerFailed, Process, free_port, wait_until

START_SECONDS_MAX = 90.0


@contextlib.contextmanager
def eager_broker_on(folder: Path) -> Iterator["ChaosBroker"]:
    """A broker on `folder`/store that snapshots, rewrites and deletes all the time."""
    broker = ChaosBroker(
        folder, name="eager", store=str(folder / "store"), port=free_port(), eager=True
    )
    try:
        broker.go()
        broker.wait_ready()
        yield broker
    finally:
        broker.kill()


class Child(Process):
    """A process whose exit code is of interest."""

    @property
    def exit_code(self) -> int | None:
        return self._child.poll()


class ChaosBroker:
    """One process on a store, warm at once, serving after `go`."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str,
        store: str,
        port: int,
        eager: bool = False,
        variables: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.port = port
        self.eager = eager
        self.log = folder / f"{name}.log"
        self._fifo = folder / f"{name}.go"
        folder.mkdir(parents=True, exist_ok=True)
        os.mkfifo(self._fifo)
        command = [sys.executable, "-m", "tests.chaos.broker_child", "--go", str(self._fifo)]
        command += ["--store", store, "--port", str(port), *arguments]
        command += ["--eager"] if eager else []
        self.process = Child(command, log=self.log, environment=dict(variables or {}))
        self.went_at = 0.0

    def go(self) -> None:
        """Begin to serve; returns at once."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                os.close(os.open(self._fifo, os.O_WRONLY | os.O_NONBLOCK))
                break
            except OSError as error:
                if error.errno != errno.ENXIO or time.monotonic() > deadline:
                    raise
            if not self.process.is_running():
                raise PeerFailed(f"{self.name} ended before it began\n{self.process.log_text()}")
            time.sleep(0.002)
        self.went_at = time.monotonic()

    def is_ready(self) -> bool:
        return " is ready on " in self.process.log_text()

    def wait_ready(self) -> float:
        """Returns the seconds from `go` to ready."""
        self.process.wait_until(self.is_ready, seconds_max=START_SECONDS_MAX, what=self.name)
        return time.monotonic() - self.went_at

    def kill(self) -> None:
        self.process.kill()
        self._fifo.unlink(missing_ok=True)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def exit_code(self, *, seconds_max: float) -> int:
        """Wait until it ends by itself."""
        wait_until(
            lambda: not self.process.is_running(),
            seconds_max=seconds_max,
            what=f"{self.name} ends",
        )
        code = self.process.exit_code
        assert code is not None
        return code
