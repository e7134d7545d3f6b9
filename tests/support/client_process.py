"""A client program as a process: started with what to be, told what to do, paused and killed.

Owns the process, and what it has told. It must only be used from the main thread: a child dies
with the thread that started it.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tests.peers.jars import (
    QUICK_START,
    PeerUnavailable,
    go_program,
    java_command,
    program_class_path,
)
from tests.peers.process import PeerFailed, die_with_parent

EVENT_SECONDS_MAX = 90.0
ROOT = Path(__file__).parent.parent.parent
Event = dict[str, Any]


class ProgramAbility(Enum):
    """What not every program does, because its client library does not."""

    COOPERATIVE = "a cooperative assignor"
    CONSUMER_PROTOCOL = "group.protocol=consumer (KIP-848)"
    OFFSETS_OF_ANY_GROUP = "offsets of a group that it is not in, in a transaction"


@dataclass(frozen=True, slots=True)
class Program:
    """One client family that can be started as a process."""

    name: str
    command: Callable[[], Sequence[str]]
    abilities: frozenset[ProgramAbility]


def _python(module: str) -> Callable[[], Sequence[str]]:
    return lambda: (sys.executable, "-m", f"tests.compat.programs.{module}")


def _java() -> Sequence[str]:
    options = ("-Xmx192m", *QUICK_START)
    return (java_command(), *options, "-cp", program_class_path(), "ClientProgram")


def _go() -> Sequence[str]:
    return (str(go_program()),)


_COOPERATIVE = ProgramAbility.COOPERATIVE
_CONSUMER_PROTOCOL = ProgramAbility.CONSUMER_PROTOCOL
_ANY_GROUP = ProgramAbility.OFFSETS_OF_ANY_GROUP
PROGRAMS = (
    Program(
        "librdkafka",
        _python("librdkafka"),
        frozenset({_COOPERATIVE, _CONSUMER_PROTOCOL, _ANY_GROUP}),
    ),
    Program("kafka-python", _python("kafka_python"), frozenset({_COOPERATIVE, _ANY_GROUP})),
    Program("aiokafka", _python("aio"), frozenset({_ANY_GROUP})),
    Program("java", _java, frozenset({_COOPERATIVE, _CONSUMER_PROTOCOL, _ANY_GROUP})),
    Program(
        "franz-go", lambda: (str(go_program()),), frozenset({_COOPERATIVE, _CONSUMER_PROTOCOL})
    ),
)


class ClientProcess:
    """One process of a program, and the events that it has told."""

    def __init__(self, program: Program, be: Mapping[str, Any], *, log: Path) -> None:
        self.program = program
        self.events: list[Event] = []
        self._log = log
        self._changed = threading.Condition()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as sink:
            self._child = subprocess.Popen(
                [*program.command(), json.dumps(be)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                text=True,
                cwd=ROOT,
                preexec_fn=die_with_parent,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            if not line.endswith("\n"):
                break  # killed while it wrote
            with self._changed:
                self.events.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    @property
    def is_running(self) -> bool:
        return self._child.poll() is None

    @property
    def has_told_all(self) -> bool:
        return not self._reader.is_alive()

    def tell(self, do: str, **fields: Any) -> None:
        """A command; one that is paused reads it when it goes on."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self._child.stdin.flush()

    def wait_for(
        self, event: str, *, after: int = 0, seconds_max: float = EVENT_SECONDS_MAX
    ) -> Event:
        """The first event of this name among those that came after so many."""
        found: list[Event] = []

        def has_come() -> bool:
            found[:] = [told for told in self.events[after:] if told["event"] == event]
            return bool(found)

        self.wait_until(
            has_come, what=f"{self.program.name} tells {event}", seconds_max=seconds_max
        )
        return found[0]

    def wait_until(
        self, is_so: Callable[[], bool], *, what: str, seconds_max: float = EVENT_SECONDS_MAX
    ) -> None:
        deadline = time.monotonic() + seconds_max
        with self._changed:
            while not is_so():
                left = deadline - time.monotonic()
                if left <= 0 or self.has_told_all:
                    raise PeerFailed(f"{what}: not so\n{self.last_words()}")
                self._changed.wait(min(left, 0.5))

    def last_words(self) -> str:
        log = self._log.read_text(errors="replace")[-3000:]
        return f"{self.program.name} {self.events[-8:]}\n{log}"

    def pause(self) -> None:
        os.kill(self._child.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._child.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL: it has no say in it."""
        if self.is_running:
            self._child.kill()
        self._end()

    def leave(self) -> None:
        """Ask it to end, and wait until it has."""
        self.tell("leave")
        self.wait_for("left")
        self._end()

    def _end(self) -> None:
        self._child.wait(30)
        self._reader.join(10)
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue

    @property
    def owned(self) -> set[int]:
        """The partitions of a member at this moment."""
        told = [event for event in self.events if event["event"] == "owned"]
        return set(told[-1]["partitions"]) if told else set()

    @property
    def values(self) -> list[str]:
        """What a member has read so far."""
        return [
            record[2]
            for event in self.events
            if event["event"] == "records"
            for record in event["records"]
        ]

    def ask(self, do: str, **fields: Any) -> int:
        """A command to a producer, and the error code of its answer."""
        before = len(self.events)
        self.tell(do, **fields)
        return self.wait_for("done", after=before)["error"]

    def commit(self, offsets: Mapping[int, int] | None = None) -> int:
        """Have a member commit, by default all positions; the error code of its answer."""
        before = len(self.events)
        self.tell("commit", **({} if offsets is None else {"offsets": dict(offsets)}))
        return self.wait_for("committed", after=before)["error"]


def why_missing(program: Program) -> str | None:
    """Why this program cannot be had here."""
    try:
        program.command()
    except PeerUnavailable as unavailable:
        return str(unavailable)
    return None
