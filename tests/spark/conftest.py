"""One Spark for all tests of a worker, and records in a real Holdfast to read with it."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.peers.holdfast import HoldfastBroker
from tests.support.topics import Topics

import holdfast.spark

_names = itertools.count()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Spark as `holdfast.spark.runtime.session` starts it, small."""
    session = holdfast.spark.session(
        "local[2]",
        app_name="tests",
        config={
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        },
    )
    yield session
    session.stop()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test has."""
    return re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:200] + f"-{next(_names)}"


@pytest.fixture(scope="session")
def topics(holdfast_broker: HoldfastBroker) -> Topics:
    """The topics of the Holdfast broker that all tests of a worker share."""
    return Topics(holdfast_broker.bootstrap)
