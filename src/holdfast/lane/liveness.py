"""Proof that the process which held a claim is dead, if it ran on this machine.

A new owner waits until the previous owner can no longer answer. It need not wait for a process of
this machine that is dead. The proof takes the process id, its start time, the boot and the process
namespace together. Without a proof the new owner waits, which is always safe.
"""

import os
from pathlib import Path
from typing import NamedTuple, Protocol

from holdfast.lane.entry import Claim


class ProcessIdentity(NamedTuple):
    """The identity of a process, as its claim states it."""

    machine: str
    process: int
    process_start: int


class Liveness(Protocol):
    """The interface that identifies this process and checks others."""

    def identity(self) -> ProcessIdentity: ...

    def has_ended(self, claim: Claim) -> bool:
        """True only if the claim's process is proved to be dead."""
        ...


class NoProof:
    """Liveness on a machine that offers no proof: no process is ever proved dead."""

    def identity(self) -> ProcessIdentity:
        return ProcessIdentity("", 0, 0)

    def has_ended(self, claim: Claim) -> bool:
        del claim
        return False


class ProcFiles:
    """Liveness on Linux, from /proc."""

    def __init__(self, process: int) -> None:
        self._process = process

    def identity(self) -> ProcessIdentity:
        start = _start_time(self._process)
        if start is None:
            return ProcessIdentity("", 0, 0)
        return ProcessIdentity(_machine(), self._process, start)

    def has_ended(self, claim: Claim) -> bool:
        machine = _machine()
        if not machine or claim.machine != machine or claim.process <= 0:
            return False
        start = _start_time(claim.process)
        return not _exists(claim.process) if start is None else start != claim.process_start


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return ""
    return f"{boot} {namespace}"


def _start_time(process: int) -> int | None:
    """Return the start time in ticks since the boot; None if not visible, -1 if it has exited."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return -1 if fields[0] in ("Z", "X") else int(fields[19])


def _exists(process: int) -> bool:
    """True if the process exists. /proc may hide other users' processes; signal 0 does not."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
