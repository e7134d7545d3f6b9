"""One child process: its log file, the wait until it answers, its CPU time and its end by pid.

It knows nothing of Kafka beyond the smallest question a broker answers (ApiVersions).
"""

import contextlib
import ctypes
import fcntl
import os
import random
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

API_VERSIONS_V0 = struct.pack(">hhih", 18, 0, 7, -1)
CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
STOP_SECONDS_MAX = 30.0
PORT_MIN = 10_000
PORT_TRIES_MAX = 100
PORTS = Path(tempfile.gettempdir()) / "holdfast-test-ports"
_locks: list[IO[str]] = []
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """A test run that is killed must leave no broker behind."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class PeerFailed(Exception):
    """A peer did not start or did not answer in time; the message carries the end of its log."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has, and that no connection is given by the kernel.

    A broker that is started again on its port must find it free. So the port belongs to this
    process from now on, whether it is bound or not: other test processes see the lock on its file.
    """
    first_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(PORT_TRIES_MAX):
        port = random.SystemRandom().randrange(PORT_MIN, first_given)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            PORTS.mkdir(exist_ok=True)
            lock = (PORTS / str(port)).open("w")
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _locks.append(lock)
            return port
    raise PeerFailed(f"no free port from {PORT_MIN} to {first_given - 1}")


def wait_until(condition: Callable[[], bool], *, seconds_max: float, what: str) -> float:
    """Ask until the answer is yes; returns the seconds it took."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > seconds_max:
            raise PeerFailed(f"{what}: not within {seconds_max} s")
        time.sleep(0.01)
    return time.monotonic() - begun


def answers_api_versions(host: str, port: int) -> bool:
    """Whether a Kafka broker at this address answers the first question of every client."""
    try:
        with socket.create_connection((host, port), timeout=1.0) as connection:
            connection.sendall(struct.pack(">i", len(API_VERSIONS_V0)) + API_VERSIONS_V0)
            head = connection.recv(8, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(head) == 8 and head[4:] == API_VERSIONS_V0[4:8]


class Process:
    """A child process that writes to a log file and ends when it is told to."""

    def __init__(
        self, command: Sequence[str], *, log: Path, environment: dict[str, str] | None = None
    ) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as sink:
            self._log_start = sink.tell()
            self._child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                preexec_fn=die_with_parent,
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    def is_running(self) -> bool:
        return self._child.poll() is None

    def log_text(self) -> str:
        """What this process has written so far (an earlier one may have used the same file)."""
        with self.log.open("rb") as source:
            source.seek(self._log_start)
            return source.read().decode(errors="replace")

    def wait_until(self, condition: Callable[[], bool], *, seconds_max: float, what: str) -> float:
        """Like wait_until, and gives up at once, with the log's end, when the process is gone."""

        def condition_or_gone() -> bool:
            return condition() or not self.is_running()

        try:
            took = wait_until(condition_or_gone, seconds_max=seconds_max, what=what)
        except PeerFailed as failure:
            raise PeerFailed(f"{failure}\n{self.log_text()[-2000:]}") from None
        if not self.is_running():
            code = self._child.returncode
            raise PeerFailed(f"{what}: exited with {code}\n{self.log_text()[-2000:]}")
        return took

    def stop(self) -> None:
        """Ask it to end (SIGTERM); kill it when it has not ended in time."""
        if self.is_running():
            self._child.terminate()
            try:
                self._child.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
        self._child.wait()

    def exit_code(self) -> int | None:
        """None while it runs; minus the signal where one ended it."""
        return self._child.poll()

    def signal(self, number: int) -> None:
        """Send a signal, and wait for nothing."""
        if self.is_running():
            self._child.send_signal(number)

    def pause(self) -> None:
        """SIGSTOP: it stands still, and its sockets stay."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL: the process has no say in it."""
        if self.is_running():
            self._child.kill()
        self._child.wait()

    def cpu_seconds(self) -> float:
        """User and system time so far, of all threads, and of its children alive or reaped."""
        return sum(_cpu_ticks(pid) for pid in _family(self.pid)) / CLOCK_TICKS_PER_SECOND

    def memory_bytes(self) -> int:
        """Resident memory of the process and its living children."""
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        return sum(
            int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page_bytes
            for pid in _family(self.pid)
        )


def _family(pid: int) -> list[int]:
    members = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # threads end at any time
            for child in (task / "children").read_text().split():
                members.extend(_family(int(child)))
    return members


def _cpu_ticks(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    fields = stat.rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15])
