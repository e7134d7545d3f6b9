"""A real Spark standalone cluster on 127.0.0.1: a Master and Workers as processes.

Owns their start, and which executors they have. Everything comes from pyspark's own distribution.
"""

import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path

import pyspark
from tests.chaos.spark_process import marked, new_mark, parent_of, send, variables
from tests.peers.process import Process, free_port

from holdfast.spark.runtime.java import find_java

START_SECONDS_MAX = 240.0
EXECUTOR = "CoarseGrainedExecutorBackend"


class StandaloneCluster:
    """One Master, and Workers with one core each."""

    def __init__(
        self, folder: Path, *, workers: int = 2, environment: Mapping[str, str] | None = None
    ) -> None:
        """`environment` is set beside what every process of a run finds there."""
        self.folder = folder
        self.port = free_port()
        self.mark = new_mark()
        self._count = workers
        self._environment = dict(environment or {})
        self._master: Process | None = None
        self.workers: list[Process] = []

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self) -> "StandaloneCluster":
        arguments = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0"]
        self._master = self._launch("master.Master", "master", arguments)
        self._master.wait_until(
            lambda: "New state: ALIVE" in self._log("master"),
            seconds_max=START_SECONDS_MAX,
            what="the Master is there",
        )
        self.workers = [self.start_worker(i) for i in range(self._count)]
        return self

    def start_worker(self, number: int) -> Process:
        """Start a Worker; an old one under the same number may be dead."""
        name = f"worker-{number}"
        joined = self._joined()
        arguments = ["--host", "127.0.0.1", "--cores", "1", "--memory", "700m"]
        arguments += ["--work-dir", str(self.folder / name), "--webui-port", "0", self.url]
        worker = self._launch("worker.Worker", name, arguments)
        worker.wait_until(
            lambda: self._joined() > joined, seconds_max=START_SECONDS_MAX, what=f"{name} joins"
        )
        return worker

    def _joined(self) -> int:
        return len(re.findall("Registering worker", self._log("master")))

    def _log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _launch(self, what: str, name: str, arguments: list[str]) -> Process:
        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}"]
        return Process(
            command + arguments,
            log=self.folder / f"{name}.log",
            environment={
                **variables(self.mark),
                "SPARK_HOME": str(home),
                "JAVA_HOME": str(find_java(os.environ).home),
                "SPARK_DAEMON_MEMORY": "200m",
                "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                "SPARK_NO_DAEMONIZE": "true",
                **self._environment,
            },
        )

    def executors(self) -> list[int]:
        """The JVMs that run tasks now, of whatever application."""
        return [pid for pid, line in marked(self.mark).items() if EXECUTOR in line]

    def python_workers(self) -> list[int]:
        """The Python processes that run tasks now: forks of the executors' daemons."""
        lines = marked(self.mark)
        daemons = {pid for pid, line in lines.items() if "pyspark.daemon" in line}
        return [pid for pid in daemons if parent_of(pid) in daemons]

    def kill_worker(self, number: int) -> None:
        """SIGKILL a Worker; its executors notice that it is gone."""
        self.workers[number].kill()

    def restart_worker(self, number: int) -> None:
        self.workers[number] = self.start_worker(number)

    def stop(self) -> None:
        """All of it, at once."""
        for process in (*self.workers, self._master):
            if process is not None:
                process.kill()
        while left := marked(self.mark):
            send(left, signal.SIGKILL)
