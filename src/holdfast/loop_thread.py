"""The event loop of a process that has none of its own: Spark's executors call plain functions.

Owns one daemon thread with one loop for each process, so that connections outlive a call and writes
go on while their caller computes. A forked child makes its own. Code that has no connections to
keep, or whose coroutine itself waits for this loop, uses landing/blocking.py instead.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from holdfast.errors import InvariantViolation

T = TypeVar("T")

STOP_S_MAX = 2.0


class LoopThread:
    """A thread that runs an event loop."""

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="holdfast-io", daemon=True
        )
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result. Never from a coroutine of it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise InvariantViolation("the loop's own thread would wait for itself")
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the loop, without waiting long for what does not answer."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_S_MAX)


_making = threading.Lock()
_threads: dict[int, LoopThread] = {}
"""The threads by process id: after a fork the parent's thread does not exist in the child."""


def process_loop() -> LoopThread:
    """Return the loop thread of this process."""
    with _making:
        found = _threads.get(os.getpid())
        if found is None:
            found = _threads[os.getpid()] = LoopThread()
        return found


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of uvloop if it is installed, or else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _unlock_in_child() -> None:
    global _making
    _making = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_in_child)
