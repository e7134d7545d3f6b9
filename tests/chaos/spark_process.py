"""Driver programs as processes: the Python driver, its JVM and its Python workers, by pid.

Owns finding and signalling them. A driver and all that it starts carry a mark in their
environment, so that what outlives its parent is still known, and nothing else is ever signalled.
"""

import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.chaos.spark_driver import Plan, tell
from tests.peers.process import PeerFailed, Process, wait_until

ROOT = Path(__file__).parent.parent.parent
MARK = "HOLDFAST_CHAOS_MARK"
WARM_SECONDS_MAX = 300.0
END_SECONDS_MAX = 180.0
HOLD_SECONDS_MAX = 10.0


def new_mark() -> str:
    return uuid.uuid4().hex


def variables(mark: str) -> dict[str, str]:
    """What every process of a run finds in its environment."""
    return {
        MARK: mark,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
    }


def marked(mark: str) -> dict[int, str]:
    """The living processes with a mark, and their command lines."""
    wanted = f"{MARK}={mark}".encode()
    found: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().decode().strip("\0")
        except OSError:
            continue
    return {pid: line for pid, line in found.items() if line}


def parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def is_stopped(pid: int) -> bool:
    """Whether no thread of a process runs; one that is gone does not run either."""
    try:
        stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return False
    return all(stat.rpartition(")")[2].split()[0] in "TtZX" for stat in stats)


def send(pids: Iterable[int], number: signal.Signals) -> int:
    """Signal those that are still there; how many that were."""
    told = 0
    for pid in pids:
        try:
            os.kill(pid, number)
            told += 1
        except ProcessLookupError:
            continue
    return told


class Spares:
    """Driver programs that are warm, or soon will be, for whichever run wants one next.

    A start of Spark is most of what a kill costs; here it goes on beside something else.
    """

    def __init__(self, folder: Path, *, most: int, ahead: int = 1) -> None:
        self._folder = folder
        self._most = most
        """How many are started ahead in all; beyond that each is started when it is wanted."""
        self._ahead = ahead
        self._started = 0
        self._waiting: list[Driver] = []
        self._order()

    def take(self) -> "Driver":
        driver = self._waiting.pop(0) if self._waiting else self._start()
        self._order()
        return driver

    def give_back(self, driver: "Driver") -> None:
        """Stop the query of a driver, and keep the driver for another."""
        driver.rest()
        self._waiting.append(driver)

    def _order(self) -> None:
        while len(self._waiting) < self._ahead and self._started < self._most:
            self._waiting.append(self._start())

    def _start(self) -> "Driver":
        self._started += 1
        name = f"spare-{self._started}"
        control = str(self._folder / name)
        return Driver(Plan(control=control, store="", topic="", lake="", checkpoint=""), name)

    def stop(self) -> None:
        for driver in self._waiting:
            driver.sweep()
        self._waiting.clear()


def class_archive(folder: Path) -> Path | None:
    """What the JVM has loaded by the time that a driver is warm: the next ones start from it.

    A start of Spark is most of what a kill costs, and this makes it shorter. None where this Java
    makes no such archive.
    """
    archive = folder / "spark.jsa"
    plan = Plan(
        control=str(folder / "archive"),
        store="",
        topic="",
        lake="",
        checkpoint="",
        java_options=f"-XX:ArchiveClassesAtExit={archive}",
        ends_when_warm=True,
    )
    driver = Driver(plan, "archive")
    try:
        driver.wait_end(2 * WARM_SECONDS_MAX)
    finally:
        driver.sweep()
    return archive if archive.exists() else None


class Driver:
    """One driver program."""

    def __init__(self, plan: Plan, name: str) -> None:
        self.plan = plan
        self.name = name
        self.mark = new_mark()
        self.went_at = 0.0
        self.went_wall = 0.0
        self.pids: dict[str, int] = {}
        self._round = 0
        path = plan.save()
        self.process = Process(
            [sys.executable, "-m", "tests.chaos.spark_driver", str(path)],
            log=Path(plan.control) / "driver.log",
            environment=variables(self.mark),
        )

    @property
    def control(self) -> Path:
        return Path(self.plan.control)

    def wait_warm(self) -> None:
        ready = self.control / "ready"
        self.process.wait_until(
            ready.exists, seconds_max=WARM_SECONDS_MAX, what=f"{self.name} is warm"
        )
        self.pids = json.loads(ready.read_text())

    def go(self, **changes: str) -> None:
        """Start the query, with a plan that may have changed since Spark was started."""
        if not self.pids:
            self.wait_warm()
        self._round += 1
        tell(self.plan, f"go-{self._round}", **changes)
        self.went_at, self.went_wall = time.monotonic(), time.time()

    def rest(self) -> None:
        """Have it stop its query; it is warm then, and can be told to go again."""
        tell(self.plan, f"rest-{self._round}")
        rested = self.control / f"rested-{self._round}"
        self.process.wait_until(
            rested.exists, seconds_max=END_SECONDS_MAX, what=f"{self.name} is at rest"
        )

    def is_running(self) -> bool:
        return self.process.is_running()

    def python_workers(self) -> list[int]:
        """Those that run tasks: forks of Spark's daemon."""
        daemons = self.daemons()
        return [pid for pid in marked(self.mark) if parent_of(pid) in daemons]

    def daemons(self) -> list[int]:
        found = marked(self.mark)
        return [
            pid
            for pid, line in found.items()
            if "pyspark.daemon" in line and parent_of(pid) == self.pids["jvm"]
        ]

    def planners(self) -> list[int]:
        """Those that plan for the source: long-lived workers that are no tasks."""
        return [pid for pid, line in marked(self.mark).items() if "python_streaming_source" in line]

    def kill(self, who: str = "driver") -> None:
        """SIGKILL: the JVM, the Python driver, or both and all that they started."""
        wanted = {"driver": ("jvm", "python"), "jvm": ("jvm",), "python": ("python",)}[who]
        send((self.pids[name] for name in wanted), signal.SIGKILL)
        if who == "driver":
            self.sweep()

    def hold(self) -> None:
        """Stop the JVM and the Python driver; when it returns, no thread of them runs."""
        # By pid, since a look through all processes takes longer than what is to be stopped.
        send(self.pids.values(), signal.SIGSTOP)
        wait_until(
            lambda: all(is_stopped(pid) for pid in self.pids.values()),
            seconds_max=HOLD_SECONDS_MAX,
            what=f"{self.name} is stopped",
        )

    def release(self) -> None:
        """Let those go on that were held and are still there."""
        send(self.pids.values(), signal.SIGCONT)

    def sweep(self) -> None:
        """End whatever is left of it."""
        while self.process.is_running() or marked(self.mark):
            send(marked(self.mark), signal.SIGKILL)
            self.process.kill()

    def signal(self, number: signal.Signals, who: str = "family") -> None:
        """Stop or wake one of its parts, or all."""
        send(marked(self.mark) if who == "family" else [self.pids[who]], number)

    def wait_end(self, seconds_max: float = END_SECONDS_MAX) -> str:
        """Wait until it ends by itself; what it says, or an empty text where it says nothing."""
        wait_until(
            lambda: not self.process.is_running(),
            seconds_max=seconds_max,
            what=f"{self.name} ends by itself",
        )
        return self.message()

    def message(self) -> str:
        try:
            told: dict[str, Any] = json.loads((self.control / "result").read_text())
        except FileNotFoundError:
            return ""
        return str(told["error"] or "")

    def log_end(self) -> str:
        return self.process.log_text()[-3000:]


__all__ = ["Driver", "PeerFailed", "marked", "new_mark", "parent_of", "send", "variables"]
