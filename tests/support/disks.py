"""File systems of a few MiB that a test can fill.

A test is skipped where this machine lets nobody mount, and for no other reason: every other error
fails it.
"""

import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

CAP_SYS_ADMIN = 21
"""The capability that mount(2) asks for."""


@contextlib.contextmanager
def small_disk(folder: Path, *, mib: int) -> Iterator[Path]:
    """A file system of its own with a few MiB."""
    _skip_unless(_may_mount(), "this process may not mount (no CAP_SYS_ADMIN)")
    with _mounted(folder, "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs"):
        yield folder


@contextlib.contextmanager
def ext4_disk(folder: Path, *, mib: int) -> Iterator[Path]:
    """As small_disk, on a file system with a journal; its image is a file beside the folder."""
    _skip_unless(_may_mount(), "this process may not mount (no CAP_SYS_ADMIN)")
    _skip_unless(Path("/dev/loop-control").exists(), "this machine has no loop devices")
    _skip_unless(shutil.which("mkfs.ext4") is not None, "there is no mkfs.ext4: install e2fsprogs")
    image = folder.with_suffix(".ext4")
    with image.open("wb") as file:
        file.truncate(mib << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)
    with _mounted(folder, "-o", "loop", str(image)):
        yield folder


def fill(file: Path) -> None:
    """Take the rest of a file system with one file, to the last block."""
    with file.open("ab", buffering=0) as junk:
        try:
            while True:
                junk.write(bytes(4096))
        except OSError as full:
            if full.errno != errno.ENOSPC:
                raise
            os.fsync(junk.fileno())


def _skip_unless(is_there: bool, reason: str) -> None:
    if not is_there:
        pytest.skip(reason)


def _may_mount() -> bool:
    status = Path("/proc/self/status")
    if not status.exists():
        return False
    (effective,) = (
        line.split()[1] for line in status.read_text().splitlines() if line.startswith("CapEff:")
    )
    return bool(int(effective, 16) >> CAP_SYS_ADMIN & 1)


@contextlib.contextmanager
def _mounted(folder: Path, *arguments: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", *arguments, str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)
