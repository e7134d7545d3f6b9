"""Broker processes by the dozen: forked from one that has imported everything.

Owns the children it starts. Each is `holdfast serve` in a process of its own, with its own log.
"""

import multiprocessing
import os
import sys
from pathlib import Path

from tests.peers.process import free_port, wait_until

START_SECONDS_MAX = 60.0
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["tests.hostile.forked", "holdfast.cli.main", "holdfast.cli.server.serve"]
)


def _serve(arguments: list[str], log: str) -> None:
    from holdfast.cli.main import main

    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.argv = ["holdfast", *arguments]
    main()


class ForkedBroker:
    """One broker on a store; `ended` holds its exit code where it refused to serve."""

    def __init__(self, store: str, log: Path) -> None:
        self.port = free_port()
        self.log = log
        arguments = ["serve", "--store", store, "--listen", f"127.0.0.1:{self.port}"]
        self._process = _context.Process(target=_serve, args=(arguments, str(log)), daemon=True)
        self._process.start()

    def log_text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def wait(self) -> int | None:
        """Until it is ready (None) or has ended (its exit code)."""
        wait_until(
            lambda: " is ready on " in self.log_text() or not self._process.is_alive(),
            seconds_max=START_SECONDS_MAX,
            what="the broker serves or refuses",
        )
        return None if self._process.is_alive() else self._process.exitcode

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
