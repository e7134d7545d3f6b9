"""The machine, the commit and the disk that a result was measured on."""

import os
import platform
import statistics
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parent.parent
MIB = 1024 * 1024
QUIET_LOAD_MAX = 0.3
"""A result that began under more load than this is not published: it would show the other work."""
QUIET_SECONDS_MAX = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    date: str
    commit: str
    cores: int
    memory_gib: float
    load_at_start: float
    system: str
    disk_sync_ms: float
    disk_mb_per_second: float


def describe_machine(folder: Path, *, disk_writes: int) -> Machine:
    """Everything that a reader needs to judge a figure, with the disk measured in this folder."""
    load_at_start = _wait_until_quiet()
    sync_ms = _disk_sync_ms(folder, disk_writes)
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        commit=_commit(),
        cores=os.cpu_count() or 0,
        memory_gib=round(memory_bytes / 2**30, 1),
        load_at_start=round(load_at_start, 2),
        system=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        disk_sync_ms=round(sync_ms, 2),
        disk_mb_per_second=round(MIB / 1e6 / (sync_ms / 1000), 1),
    )


def is_quiet(machine: Machine) -> bool:
    return machine.load_at_start <= QUIET_LOAD_MAX


def _wait_until_quiet() -> float:
    """Give the load of what has just ended some minutes to fade; return what is left."""
    deadline = time.monotonic() + QUIET_SECONDS_MAX
    while (load := os.getloadavg()[0]) > QUIET_LOAD_MAX and time.monotonic() < deadline:
        print(f"waiting for a quiet machine: load average {load:.2f}", flush=True)
        time.sleep(15)
    return load


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
        ).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src")
    return git("rev-parse", "--short", "HEAD") + ("+changes" if changed else "")


def _disk_sync_ms(folder: Path, writes: int) -> float:
    """The disk's own limit: the median of 1 MiB written and made durable, one after the other."""
    block = os.urandom(MIB)
    taken: list[float] = []
    path = folder / "disk-limit"
    with path.open("wb", buffering=0) as file:
        for _ in range(writes):
            begun = time.perf_counter()
            file.write(block)
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - begun)
    path.unlink()
    return statistics.median(taken) * 1000
