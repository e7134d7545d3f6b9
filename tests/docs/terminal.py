"""A reader's terminal: one bash for a whole page, and others for what keeps running.

Owns the processes. They are ended with the page, by their process group.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

BLOCK_SECONDS_MAX = 240.0
END_SECONDS_MAX = 20.0
PAUSE_SECONDS = 0.05


class CommandFailed(Exception):
    """A block did not do what the page says."""


class Terminal:
    """A bash that takes one block after the other; it ends at the first command that fails."""

    def __init__(self, folder: Path, log: Path, variables: dict[str, str]) -> None:
        self._log = log
        self._seen = 0
        read, write = os.pipe()
        self._done = os.fdopen(read, "rb", buffering=0)
        with log.open("ab") as output:
            self._shell = subprocess.Popen(
                ["bash"],
                cwd=folder,
                env=variables,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(write,),
                start_new_session=True,
            )
        os.set_blocking(read, False)
        os.close(write)
        self._send(f"exec 9>&{write} {write}>&-\nset -meo pipefail\n")

    def run(self, commands: str) -> str:
        """What the commands printed; raises CommandFailed where one of them failed."""
        self._send(f"{commands}\nprintf 'done\\n' >&9\n")
        deadline = time.monotonic() + BLOCK_SECONDS_MAX
        while not self._done.read():
            if self._shell.poll() is not None:
                raise CommandFailed(f"exit code {self._shell.returncode}:\n{self._printed()}")
            if time.monotonic() > deadline:
                raise CommandFailed(f"still running after {BLOCK_SECONDS_MAX} s:\n{self.unread()}")
            time.sleep(PAUSE_SECONDS)
        return self._printed()

    def start(self, commands: str, *, until: str) -> None:
        """Leave commands running; return when they printed `until`."""
        self._send(f"{commands}\n")
        deadline = time.monotonic() + BLOCK_SECONDS_MAX
        while until not in self.unread():
            if self._shell.poll() is not None or time.monotonic() > deadline:
                raise CommandFailed(f"did not print {until!r}:\n{self.unread()}")
            time.sleep(PAUSE_SECONDS)

    def unread(self) -> str:
        return self._log.read_bytes()[self._seen :].decode(errors="replace")

    def end(self) -> str:
        """End everything in this terminal as closing it would; return all that was printed."""
        session = self._shell.pid
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            for group in _groups_of(session):
                _signal_group(group, number)
            deadline = time.monotonic() + END_SECONDS_MAX
            while _groups_of(session) and time.monotonic() < deadline:
                self._shell.poll()
                if number == signal.SIGINT and _groups_of(session) == {session}:
                    break  # only bash is left, and it does not end by SIGINT
                time.sleep(PAUSE_SECONDS)
        self._shell.wait(END_SECONDS_MAX)
        return self._log.read_text(errors="replace")

    def _printed(self) -> str:
        text = self.unread()
        self._seen = self._log.stat().st_size
        return text

    def _send(self, text: str) -> None:
        assert self._shell.stdin is not None
        try:
            self._shell.stdin.write(text.encode())
            self._shell.stdin.flush()
        except BrokenPipeError as gone:
            raise CommandFailed("the shell has ended") from gone


def _groups_of(session: int) -> set[int]:
    """The process groups of a session that still have a living process."""
    groups: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if int(fields[3]) == session and fields[0] != "Z":
            groups.add(int(fields[2]))
    return groups


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return
