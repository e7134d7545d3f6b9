"""File systems of a few MiB that a test can fill."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def small_disk(folder: Path, *, mib: int) -> Iterator[Path]:
    """A file system of its own with a few MiB; OSError where this user may not mount."""
    with _mounted(folder, "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs"):
        yield folder


@contextlib.contextmanager
def ext4_disk(folder: Path, *, mib: int) -> Iterator[Path]:
    """As small_disk, on a file system with a journal; its image is a file beside the folder."""
    image = folder.with_suffix(".ext4")
    with image.open("wb") as file:
        file.truncate(mib << 20)
    _run_or_refuse("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
    with _mounted(folder, "-o", "loop", str(image)):
        yield folder


@contextlib.contextmanager
def _mounted(folder: Path, *arguments: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    _run_or_refuse("mount", *arguments, str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def _run_or_refuse(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"cannot {command[0]}: {done.stderr.strip()}")


def fill(file: Path) -> None:
    """Take the rest of a file system with one file, to the last block."""
    with file.open("ab", buffering=0) as junk:
        try:
            while True:
                junk.write(bytes(4096))
        except OSError:
            os.fsync(junk.fileno())
