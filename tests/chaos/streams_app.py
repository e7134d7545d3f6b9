"""The Kafka Streams application that chaos kills (peers/java/ChaosStreams.java), as a process.

Owns its settings, its folder of local state, which outlives every kill, and what it says: where in
a commit it is, what it restored, what it was told. Knows nothing of what its output must be.
"""

import os
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.peers.jars import QUICK_START, java_command, program_class_path
from tests.peers.process import PeerFailed, Process

PARTITIONS = 4
"""Of the internal topics and of the outputs; the input has fewer."""
POLL_S = 0.001
SETTINGS = {
    "processing.guarantee": "exactly_once_v2",
    "num.stream.threads": "2",
    "commit.interval.ms": "100",
    "statestore.cache.max.bytes": "0",
    "replication.factor": "1",
    "repartition.purge.interval.ms": "2000",
    # Where a dead member is not known by its instance id, the group waits for it so long.
    "consumer.session.timeout.ms": "6000",
    "consumer.heartbeat.interval.ms": "1500",
}
CORRUPTED = re.compile(r"Detected the states of tasks \[(.*?)\] are corrupted")
STATIC = {"consumer.group.instance.id": "chaos", "consumer.session.timeout.ms": "45000"}
SMALL_BUFFERS = {"rocksdb.config.setter": "ChaosStreams$SmallBuffers"}


class StreamsApp:
    """One application, killed and started again."""

    def __init__(
        self, folder: Path, bootstrap: str, *, name: str, settings: Mapping[str, str]
    ) -> None:
        self.name = name
        self.starts = 0
        self.said: Counter[str] = Counter()
        """How often what was said, of all the processes that are gone."""
        self.restored = 0
        self._folder = folder
        self._state = folder / "state"
        self._armed = folder / "armed"
        self._process: Process | None = None
        self._properties = folder / "streams.properties"
        folder.mkdir(parents=True, exist_ok=True)
        chosen = {
            "bootstrap.servers": bootstrap,
            "application.id": name,
            "state.dir": str(self._state),
            "chaos.armed": str(self._armed),
            "chaos.input": f"{name}-in",
            "chaos.output": f"{name}-out",
            "chaos.counts": f"{name}-counts",
            "chaos.partitions": str(PARTITIONS),
            **SETTINGS,
            **settings,
        }
        self._properties.write_text("".join(f"{k}={v}\n" for k, v in chosen.items()))
        self._command = [java_command(), "-Xms64m", "-Xmx256m", *QUICK_START]
        self._command += [f"-Djava.io.tmpdir={folder}", "-Dorg.apache.logging.log4j.level=WARN"]
        self._command += ["-cp", program_class_path(), "ChaosStreams", str(self._properties)]

    @property
    def process(self) -> Process:
        if self._process is None:
            raise PeerFailed("the application was not started")
        return self._process

    def launch(self) -> None:
        self.starts += 1
        self._process = Process(
            self._command,
            log=self._folder / f"app-{self.starts:03d}.log",
            environment={"ROCKSDB_SHAREDLIB_DIR": str(self._folder)},
        )

    def is_running(self) -> bool:
        return "STATE RUNNING" in self.process.log_text()

    def reach(self, wanted: str, *, seconds_max: float) -> bool:
        """Wait until a thread says that it is at `hold POINT` or `pass POINT`; False: it did not
        in time."""
        log = self.process.log
        position = log.stat().st_size
        pending = self._armed.with_suffix(".pending")
        pending.write_text(wanted)
        pending.replace(self._armed)
        line = f"AT {wanted.partition(' ')[2]}\n"
        deadline = time.monotonic() + seconds_max
        try:
            while time.monotonic() < deadline:
                with log.open() as source:
                    source.seek(position)
                    if line in source.read():
                        return True
                if not self.process.is_running():
                    return False
                time.sleep(POLL_S)
            return False
        finally:
            self._armed.unlink()

    def kill(self) -> None:
        self.process.kill()
        self._read_log()

    def pause(self, seconds: float) -> None:
        """It stands still, and goes on as if nothing had been."""
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(self.process.pid, signal.SIGCONT)

    def stop(self) -> None:
        """A clean end: transactions are committed, members leave."""
        self.process.stop()
        self._read_log()

    def lose_state(self) -> None:
        """As if it were started again on another machine: no local state, another process id."""
        shutil.rmtree(self._state, ignore_errors=True)

    def _read_log(self) -> None:
        for line in self.process.log_text().splitlines():
            word, _, rest = line.partition(" ")
            if word == "UNCAUGHT":
                self.said[f"uncaught {rest.partition(':')[0]}"] += 1
            elif word == "RESTORED":
                self.restored += int(rest.rpartition(" ")[2])
            corrupted = CORRUPTED.search(line)
            if corrupted is not None:
                self.said["state of tasks thrown away"] += corrupted[1].count("_")
