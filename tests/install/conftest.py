"""The wheel, built once, and environments that have it with one extra or none."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.peers.process import Process
from tests.support.bare_environments import BareEnvironment
from tests.support.shared_environments import SharedEnvironments


@pytest.fixture(scope="session")
def wheel(environments: SharedEnvironments) -> Path:
    return environments.wheel()


@pytest.fixture(scope="session")
def base(environments: SharedEnvironments) -> BareEnvironment:
    """`pip install holdfast`"""
    return environments.get()


@pytest.fixture(scope="session")
def with_sink(environments: SharedEnvironments) -> BareEnvironment:
    """`pip install 'holdfast[sink]'`"""
    return environments.get("sink")


@pytest.fixture(scope="session")
def with_spark(environments: SharedEnvironments) -> BareEnvironment:
    """`pip install 'holdfast[spark]'`"""
    return environments.get("spark")


@pytest.fixture(scope="session")
def with_delta(environments: SharedEnvironments) -> BareEnvironment:
    """`pip install 'holdfast[delta]'`"""
    return environments.get("delta")


@pytest.fixture(scope="session")
def with_iceberg(environments: SharedEnvironments) -> BareEnvironment:
    """`pip install 'holdfast[iceberg]'`"""
    return environments.get("iceberg")


@pytest.fixture(scope="session")
def with_all(environments: SharedEnvironments) -> BareEnvironment:
    """`pip install 'holdfast[all]'`"""
    return environments.get("all")


@pytest.fixture
def served(base: BareEnvironment, tmp_path: Path) -> Iterator["Served"]:
    """A broker of the environment without extras, on a directory."""
    broker = Served(base, tmp_path)
    try:
        yield broker
    finally:
        broker.process.stop()


class Served:
    """A broker that said that it is ready, and where."""

    def __init__(self, environment: BareEnvironment, folder: Path) -> None:
        self.store = str(folder / "store")
        command = [str(environment.folder / "bin" / "holdfast"), "serve", "--store", self.store]
        self.process = Process(
            [*command, "--listen", "127.0.0.1:0"],
            log=folder / "serve.log",
            environment={"PYTHONPATH": ""},
        )
        self.process.wait_until(
            lambda: " is ready on " in self.process.log_text(),
            seconds_max=60,
            what="the broker of the wheel is ready",
        )

    @property
    def bootstrap(self) -> str:
        return self.process.log_text().partition(" is ready on ")[2].partition(",")[0]
