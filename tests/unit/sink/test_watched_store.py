"""The sink's note of why its store does not answer."""

import pytest
from tests.support.async_tests import in_event_loop

from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.errors import ObjectNotFound, StoreUnavailable
from holdfast.sink.watched_store import WatchedStore
from holdfast.store.memory import MemoryStore

CLOCK = VirtualClock(seconds=100.0)
ENVIRONMENT = SeededEnvironment(seed=1, clock=CLOCK)


class Silent(MemoryStore):
    is_silent = True

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        if self.is_silent:
            raise StoreUnavailable("no answer")
        return await super().read(key, start=start, length=length)


@in_event_loop
async def test_that_an_object_is_not_there_is_an_answer():
    store = Silent(environment=ENVIRONMENT)
    watched = WatchedStore(store, environment=ENVIRONMENT)
    with pytest.raises(StoreUnavailable):
        await watched.read("origin")
    CLOCK.seconds += 7
    assert (watched.problem, watched.problem_seconds) == ("no answer", 7.0)
    store.is_silent = False
    with pytest.raises(ObjectNotFound):
        await watched.read("origin")
    assert (watched.problem, watched.problem_seconds) == (None, 0.0)
