"""Whether the process that held a claim is certainly gone, seen from the same machine.

A new owner waits until the old one's last answers are out of date. Where the old one was a
process of this machine, and that process is dead, there is nothing to wait for: the proof is its
id, its start time, the boot and the process namespace, all four the same. No proof means waiting,
never harm.
"""

import os
from pathlib import Path
from typing import NamedTuple, Protocol

from holdfast.lane.entry import Claim


class ProcessIdentity(NamedTuple):
    """What a claim says about the process that made it."""

    machine: str
    process: int
    process_start: int


class Liveness(Protocol):
    """Identifies this process, and looks at others."""

    def identity(self) -> ProcessIdentity: ...

    def has_ended(self, claim: Claim) -> bool:
        """True only where the claim's process is proved to be dead."""
        ...


class NoProof:
    """For machines that offer none: nothing is ever proved."""

    def identity(self) -> ProcessIdentity:
        return ProcessIdentity("", 0, 0)

    def has_ended(self, claim: Claim) -> bool:
        del claim
        return False


class ProcFiles:
    """Linux: what /proc says."""

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
    """In clock ticks since the boot; None where it cannot be seen."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return -1 if fields[0] in ("Z", "X") else int(fields[19])


def _exists(process: int) -> bool:
    """/proc may hide the processes of other users; signal 0 does not."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
