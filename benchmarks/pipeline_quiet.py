"""How quiet the machine is: CPU time that other processes take while something is measured.

Reads /proc alone. The load average remembers the run before for minutes; this does not.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
QUIET_CORES = 0.3
LOOK_SECONDS = 2.0


class Others:
    """Cores that others keep busy, from here on; `mine` and their children are not others."""

    def __init__(self, mine: Iterable[int]) -> None:
        self._mine = tuple(mine)
        self._begun = time.monotonic()
        self._busy = _busy_ticks()
        self._own = self._own_ticks()

    def cores(self) -> float:
        seconds = time.monotonic() - self._begun
        others = (_busy_ticks() - self._busy) - (self._own_ticks() - self._own)
        return max(0.0, others / TICKS_PER_SECOND / max(seconds, 1e-3))

    def _own_ticks(self) -> int:
        return sum(_ticks(pid) for mine in self._mine for pid in family(mine))


def wait_for_quiet(*, seconds_max: float) -> float:
    """Wait until all do next to nothing, for as long as allowed; cores that are still busy."""
    deadline = time.monotonic() + seconds_max
    while True:
        others = Others(())
        time.sleep(LOOK_SECONDS)
        cores = others.cores()
        if cores <= QUIET_CORES or time.monotonic() > deadline:
            return cores


def family(pid: int) -> list[int]:
    """A process and all that it started, as far as they are there."""
    members = [pid]
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                members.extend(family(int(child)))
    except OSError:
        pass
    return members


def _ticks(pid: int) -> int:
    """User and system time of a process, and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(int(ticks) for ticks in fields[11:15])


def _busy_ticks() -> int:
    user, nice, system, _, _, irq, soft_irq = (
        int(ticks) for ticks in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    )
    return user + nice + system + irq + soft_irq
