"""Bare environments that all workers of a test run share.

Owns one folder of the run, with the wheel and the environments in it. Each is built by the first
worker that asks for it, under a lock; the others wait, then read what was noted about it.
"""

import contextlib
import fcntl
import os
import pickle
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.bare_environments import BareEnvironment, build_wheel

ONTO = {
    "": (),
    "sink": ("",),
    "spark": ("sink",),
    "delta": ("spark",),
    "iceberg": ("spark",),
    "all": ("delta", "iceberg"),
}
"""The extras of the wheel, each with the smaller ones whose libraries it shares."""


class SharedEnvironments:
    """The wheel, and environments that have it with one extra or none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def wheel(self) -> Path:
        with self._lock():
            return self._wheel()

    def get(self, extra: str = "", *, tools: Sequence[str] = ()) -> BareEnvironment:
        """What `pip install 'holdfast[EXTRA]' TOOLS` makes."""
        with self._lock():
            return self._environment(extra, tuple(sorted(tools)))

    def _wheel(self) -> Path:
        return self._once("dist", build_wheel)

    def _environment(self, extra: str, tools: tuple[str, ...]) -> BareEnvironment:
        wheel = self._wheel()
        smaller = (extra,) if tools else ONTO[extra]
        onto = [self._environment(name, ()) for name in smaller]
        return self._once(
            "-".join([extra or "base", *tools]),
            lambda folder: BareEnvironment(folder, wheel, extra=extra, onto=onto, tools=tools),
        )

    def _once(self, name: str, build: Callable[[Path], Any]) -> Any:
        """What is built in the folder of this name; only a finished one has a note beside it."""
        folder, note = self.folder / name, self.folder / f"{name}.built"
        if not note.exists():
            shutil.rmtree(folder, ignore_errors=True)
            note.write_bytes(pickle.dumps(build(folder)))
        return pickle.loads(note.read_bytes())

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def of_this_run(tmp_path_factory: pytest.TempPathFactory) -> SharedEnvironments:
    """The ones that all workers of this run share."""
    own = tmp_path_factory.getbasetemp()
    of_all = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    return SharedEnvironments(of_all / "environments")
