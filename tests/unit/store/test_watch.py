"""Which calls of a store get no good answer now, and what is logged of it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine

import pytest
from tests.support.async_tests import in_event_loop

from holdfast.cli.server.store_warnings import PAUSE_S, StoreWarnings
from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.errors import ObjectNotFound, StoreUnavailable
from holdfast.store.interface import Buffers, CreateAnswer
from holdfast.store.memory import MemoryStore
from holdfast.store.watch import FRESH_S, StoreWatch

CLOCK = VirtualClock(seconds=100.0)
ENVIRONMENT = SeededEnvironment(seed=1, clock=CLOCK)


class FullDisk(MemoryStore):
    """Reads, and has no room."""

    has_room = False

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        if not self.has_room:
            raise StoreUnavailable("no space left")
        return await super().create(key, body)


async def fails(call: Callable[[], Coroutine[object, object, object]]) -> None:
    with pytest.raises(StoreUnavailable):
        await call()


def test_writes_that_fail_are_trouble_though_reads_are_answered(caplog):
    async def scenario() -> None:
        store = FullDisk(environment=ENVIRONMENT, url="memory://full")
        watch = StoreWatch(store, environment=ENVIRONMENT)
        warnings = StoreWarnings(watch, environment=ENVIRONMENT)
        await fails(lambda: watch.create("k", [b"x"]))
        warnings.look()
        assert caplog.messages == []  # it may pass at once
        for _ in range(30):
            CLOCK.seconds += 1
            await watch.list("k")
            await fails(lambda: watch.create("k", [b"x"]))
            warnings.look()
        trouble = watch.trouble()
        assert trouble is not None
        assert (trouble.calls, trouble.seconds, trouble.error) == ("writes", 30, "no space left")
        assert 2 <= len(caplog.messages) <= 1 + 30 / PAUSE_S
        assert (
            "store=memory://full calls=writes seconds=3 error=no space left" in caplog.messages[0]
        )
        store.has_room = True
        await watch.create("k", [b"x"])
        assert watch.trouble() is None
        warnings.look()
        assert caplog.messages[-1] == "store_answers_again store=memory://full"

    with caplog.at_level(logging.INFO, logger="holdfast.store"):
        asyncio.run(scenario())


@in_event_loop
async def test_a_failure_that_nobody_repeats_is_over_after_a_while():
    store = FullDisk(environment=ENVIRONMENT, url="memory://full")
    watch = StoreWatch(store, environment=ENVIRONMENT)
    await fails(lambda: watch.create("k", [b"x"]))
    assert watch.trouble() is not None
    CLOCK.seconds += FRESH_S
    assert watch.trouble() is None


def test_that_an_object_is_not_there_is_a_good_answer():
    class Flaky(MemoryStore):
        is_away = True

        async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
            if self.is_away:
                raise StoreUnavailable("away")
            return await super().read(key, start=start, length=length)

    async def scenario() -> None:
        store = Flaky(environment=ENVIRONMENT, url="memory://")
        watch = StoreWatch(store, environment=ENVIRONMENT)
        await fails(lambda: watch.read("k"))
        assert watch.trouble() is not None
        store.is_away = False
        with pytest.raises(ObjectNotFound):
            await watch.read("k")
        assert watch.trouble() is None

    asyncio.run(scenario())


def test_a_call_without_an_answer_is_trouble_before_it_fails():
    class Silent(MemoryStore):
        async def size(self, key: str) -> int | None:
            await asyncio.Event().wait()

    async def scenario() -> None:
        watch = StoreWatch(
            Silent(environment=ENVIRONMENT, url="memory://"), environment=ENVIRONMENT
        )
        asked = asyncio.ensure_future(watch.size("k"))
        await asyncio.sleep(0)
        CLOCK.seconds += 2
        assert watch.trouble() is None
        CLOCK.seconds += 2
        trouble = watch.trouble()
        assert trouble is not None
        assert (trouble.calls, trouble.seconds, trouble.error) == ("reads", 4, "no answer yet")
        asked.cancel()
        await asyncio.wait({asked})
        assert watch.trouble() is None

    asyncio.run(scenario())
