"""The pytest plugin: a broker for a whole test session, as the fixture `holdfast_broker`.

Owns the fixture. Pytest loads this module wherever Holdfast is installed, so it must import the
broker only when a test asks for it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.testing import RunningBroker


@pytest.fixture(scope="session")
def holdfast_broker() -> "Iterator[RunningBroker]":
    """A broker on memory, for all tests of the session: give each test a topic of its own."""
    from holdfast.testing import broker

    with broker() as running:
        yield running
