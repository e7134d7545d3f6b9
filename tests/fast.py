"""`pytest --fast`: the tests that start no process, for the inner loop (`make test-fast`).

Owns which tests those are. Tests that are marked `slow`, `spark` or `peer` are left out. Any other
test is skipped at the moment when it starts a process, so nobody has to keep a list.
"""

import sys
from typing import Any

import pytest

LEFT_OUT = ("slow", "spark", "peer")
STARTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.exec"})
"""What Python tells an audit hook when a process is started."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="only tests that start no process")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--fast"):
        config.pluginmanager.register(_NoProcess())


class _NoProcess:
    """Skips a test that starts a process. pytest itself may start what it likes."""

    def __init__(self) -> None:
        self._is_in_a_test = False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._is_in_a_test and event in STARTS:
            raise pytest.skip.Exception("starts a process: not part of --fast")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Any:
        self._is_in_a_test = True
        try:
            return (yield)
        finally:
            self._is_in_a_test = False

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        left_out = [i for i in items if any(i.get_closest_marker(name) for name in LEFT_OUT)]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item not in left_out]
