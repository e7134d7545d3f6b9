"""Coroutines for code without an event loop: notebooks, scripts, and looks that keep nothing open.

Owns one private loop per call, in the caller's thread, so a coroutine may wait for the loop of the
process (loop_thread.py), as the landing of a range does while it reads. Must never run on a loop
that the caller already runs: in that case it uses a separate thread. What is opened inside a call
must be closed inside it; work that shares connections belongs on the loop of the process.
"""

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.environment import Environment, SystemEnvironment
from holdfast.errors import StoreUnavailable
from holdfast.store.address import open_store
from holdfast.store.interface import Store

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T], *, timeout_seconds: float | None = None) -> T:
    """Run a coroutine to its end in a private event loop and return its result.

    Without a time-out, landing and the ledger wait for a store for ever. When the time-out passes,
    StoreUnavailable is raised, and a write that was under way may have happened. Repeating it is
    safe.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _alone(coroutine, timeout_seconds)
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(_alone, coroutine, timeout_seconds).result()


def with_store(
    url: str,
    use: Callable[[Store, Environment], Coroutine[Any, Any, T]],
    *,
    environment: Environment | None = None,
    timeout_seconds: float | None = None,
) -> T:
    """Open the store, use it, and close it, all in one private loop."""
    environment = environment or SystemEnvironment()

    async def whole() -> T:
        store = open_store(url, environment=environment)
        try:
            return await use(store, environment)
        finally:
            await store.close()

    return run(whole(), timeout_seconds=timeout_seconds)


def _alone(coroutine: Coroutine[Any, Any, T], timeout_seconds: float | None) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(timeout_seconds) as limit:
            try:
                return await coroutine
            except asyncio.CancelledError as error:
                if not limit.expired():
                    raise
                raise StoreUnavailable(
                    f"not done within {timeout_seconds} s; the outcome is unknown"
                ) from error

    with asyncio.Runner() as runner:
        return runner.run(bounded())
