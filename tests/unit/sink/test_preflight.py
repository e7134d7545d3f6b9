"""What a sink finds out before it runs: whether it can write, and where it would begin."""

from typing import Any

import pytest
from tests.support.async_tests import in_event_loop

from holdfast.environment import SystemEnvironment
from holdfast.errors import ConfigurationError
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.sink.preflight import PROBE_PREFIX, Beginning, probe_store
from holdfast.store.interface import Buffers, CreateAnswer
from holdfast.store.memory import MemoryStore

ENVIRONMENT = SystemEnvironment()


class Written(MemoryStore):
    """Remembers what was asked of it."""

    def __init__(self) -> None:
        super().__init__(environment=ENVIRONMENT, url="memory://")
        self.keys: list[str] = []

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        self.keys.append(key)
        return await super().create(key, body)


class Replacing(Written):
    """A store without conditional writes."""

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        await self.delete([key])
        return await super().create(key, body)


@in_event_loop
async def test_a_probe_leaves_nothing_behind_and_readers_would_skip_it():
    store = Written()
    await probe_store(store, environment=ENVIRONMENT)
    assert store.keys and all(key.startswith(PROBE_PREFIX) for key in store.keys)
    assert PROBE_PREFIX.startswith("_")
    assert await store.list("") == []


@in_event_loop
async def test_a_store_that_replaces_objects_is_refused():
    store = Replacing()
    with pytest.raises(ConfigurationError, match="conditional writes"):
        await probe_store(store, environment=ENVIRONMENT)
    assert await store.list("") == []


def beginning(**changes: Any) -> Beginning:
    usual: dict[str, Any] = {
        "where": TopicPartition("orders", 3),
        "offset": 5,
        "by": "chain",
        "log_start": 5,
        "log_end": 9,
        "on_data_loss": "fail",
    }
    return Beginning(**{**usual, **changes})


def test_where_the_log_goes_on_there_is_no_problem():
    assert (beginning().problem, beginning().lag) == (None, 4)
    assert (beginning(offset=9).problem, beginning(offset=9).lag) == (None, 0)


def test_records_that_are_gone_are_a_problem_unless_they_shall_be_covered():
    problem = beginning(log_start=7).problem
    assert problem is not None
    assert problem.startswith("orders-3: offsets 5 to 6 were deleted from the log before")
    assert "failOnDataLoss = false" in problem
    covered = beginning(log_start=7, on_data_loss="cover")
    assert (covered.problem, covered.gone, covered.lag) == (None, 2, 2)


def test_a_chain_that_is_longer_than_the_log_is_always_a_problem():
    problem = beginning(offset=10, on_data_loss="cover").problem
    assert problem is not None
    assert "another 'to'" in problem
