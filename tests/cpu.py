"""`pytest --cpu=FILE`: the processor time of each test, with every process that it starts.

Wall time says little while several workers share two cores. Owns one control group for each worker
(cpuacct of cgroup v1, or cgroup v2), which the processes of a test inherit; needs root. What a test
leaves running counts for the tests after it: a shared Spark or broker is nobody's alone.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

V1 = Path("/sys/fs/cgroup/cpuacct")
V2 = Path("/sys/fs/cgroup")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu", metavar="FILE", help="append the processor time of each test to FILE")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--cpu")
    is_controller = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if file and not is_controller:
        config.pluginmanager.register(_Meter(Path(file)))


class _Meter:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._is_v1 = V1.is_dir()
        self._group = (V1 if self._is_v1 else V2) / f"holdfast-tests-{os.getpid()}"
        self._group.mkdir()
        (self._group / "cgroup.procs").write_text(str(os.getpid()))

    def _seconds(self) -> float:
        if self._is_v1:
            return int((self._group / "cpuacct.usage").read_text()) / 1e9
        fields = (self._group / "cpu.stat").read_text().split()
        return int(fields[fields.index("usage_usec") + 1]) / 1e6

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        before = self._seconds()
        try:
            return (yield)
        finally:
            with self._file.open("a") as out:
                out.write(f"{self._seconds() - before:.2f}\t{item.nodeid}\n")

    def pytest_unconfigure(self) -> None:
        (self._group.parent / "cgroup.procs").write_text(str(os.getpid()))
        with contextlib.suppress(OSError):  # a process that was left behind is still in it
            self._group.rmdir()
