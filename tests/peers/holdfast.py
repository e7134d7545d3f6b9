"""Holdfast as a process: `holdfast serve` on a free port of 127.0.0.1, as a user would start it."""

import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.peers.process import PeerFailed, Process, answers_api_versions, free_port

START_SECONDS_MAX = 60.0


class HoldfastBroker:
    """One broker on one store. Stop and start keep the store, the port and the metrics port."""

    name = "holdfast"

    def __init__(
        self,
        folder: Path,
        *,
        store: str | None = None,
        arguments: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        module: str | None = None,
    ) -> None:
        """With a module, that is run in place of the command `holdfast`."""
        self.folder = folder
        self.store = store or str(folder / "store")
        self.port = free_port()
        self.metrics_port = free_port()
        self.variables = dict(variables or {})
        self._arguments = tuple(arguments)
        self._module = module
        self._process: Process | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> Process:
        if self._process is None:
            raise PeerFailed("Holdfast was not started")
        return self._process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running()

    def start(self) -> "HoldfastBroker":
        """Start, and return when the broker has said `ready` and answers."""
        self.launch()
        self.process.wait_until(
            lambda: (
                "ready" in self.process.log_text() and answers_api_versions("127.0.0.1", self.port)
            ),
            seconds_max=START_SECONDS_MAX,
            what="Holdfast is ready",
        )
        return self

    def launch(self) -> None:
        """Start without waiting for an answer."""
        self.folder.mkdir(parents=True, exist_ok=True)
        holdfast = Path(sys.executable).parent / "holdfast"
        if not holdfast.exists():
            raise PeerFailed(f"{holdfast} is missing: make install")
        program = [str(holdfast)] if self._module is None else [sys.executable, "-m", self._module]
        command = [*program, "serve", "--store", self.store, "--listen", self.bootstrap]
        command += ["--metrics", f"127.0.0.1:{self.metrics_port}", *self._arguments]
        self._process = Process(
            command, log=self.folder / "holdfast.log", environment=self.variables
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        self.process.kill()

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric over its children that carry these labels."""
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.partition("{")[0].partition(" ")[0] == name and all(w in line for w in wanted)
        )
