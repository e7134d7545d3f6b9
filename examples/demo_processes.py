"""The programs that the demo kills: brokers on one store, and the driver of a query on Spark.

Owns starting and ending them. Each start is on the same store and port, or on the same lake and
checkpoint: nothing else is kept.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

READY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
LANES = 4
HOLDFAST = str(Path(sys.executable).parent / "holdfast")
FOR_A_SHORT_LIFE = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""A driver lives here for half a minute: compiling well would take longer than it saves."""


class BrokerProcess:
    """`holdfast serve` as a child process; every start is on the same store and port."""

    def __init__(self, folder: Path, broker_id: int) -> None:
        self.broker_id = broker_id
        self.store = folder / "store"
        self._log = folder / f"broker-{broker_id}.log"
        self._address = "127.0.0.1:0"
        self._child: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        return self._address

    def start(self) -> None:
        """Return when the broker says that it is ready."""
        command = [HOLDFAST, "serve", "--store", str(self.store), "--listen", self._address]
        command += ["--id", str(self.broker_id), "--lanes", str(LANES)]
        with self._log.open("a") as log:
            self._child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._child.stdout is not None
        watchdog = threading.Timer(READY_SECONDS_MAX, self._child.kill)
        watchdog.start()
        line = self._child.stdout.readline()
        watchdog.cancel()
        if " is ready on " not in line:
            raise SystemExit(f"the broker did not start:\n{self._log.read_text()[-2000:]}")
        self._address = line.split(" is ready on ")[1].split(",")[0]

    def kill(self) -> None:
        assert self._child is not None
        self._child.send_signal(signal.SIGKILL)
        self._child.wait()

    def stop(self) -> None:
        if self._child is None or self._child.poll() is not None:
            return
        self._child.terminate()
        try:
            self._child.wait(15)
        except subprocess.TimeoutExpired:
            self.kill()


class Brokers:
    """Three of them on one store: a cluster."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store"
        self.each = {number: BrokerProcess(folder, number) for number in (1, 2, 3)}

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.each.values())

    def start(self) -> None:
        for broker in self.each.values():
            broker.start()

    def drain(self, number: int, *, ends: bool = False) -> None:
        """Have a broker hand over all that it leads; or take some again."""
        command = [HOLDFAST, "cluster", "drain", str(number), "--bootstrap", self.bootstrap]
        done = subprocess.run(
            [*command, "--end"] if ends else command,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"broker {number} was not drained:\n{done.stderr}")

    def stop(self) -> None:
        for broker in self.each.values():
            broker.stop()


class DriverProcess:
    """`holdfast run` as a child process; its JVM ends when it does."""

    def __init__(self, folder: Path, pipeline: Path) -> None:
        self.log = folder / "driver.log"
        self._pipeline = pipeline
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("a") as log:
            self._child = subprocess.Popen(
                [HOLDFAST, "run", str(self._pipeline)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=FOR_A_SHORT_LIFE | os.environ,
            )

    def ended_with(self) -> int | None:
        """The code that it ended with by itself; None while it runs."""
        return None if self._child is None else self._child.poll()

    def last_words(self) -> str:
        return self.log.read_text()[-3000:].strip()

    def kill(self) -> None:
        assert self._child is not None
        os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def stop(self) -> None:
        if self._child is None or self._child.poll() is not None:
            return
        self._child.terminate()
        try:
            self._child.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
