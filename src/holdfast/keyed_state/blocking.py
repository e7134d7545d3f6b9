"""A private event loop for callers that have none: Spark's executors call plain functions.

Owns one daemon thread with one loop for each process. A forked child makes its own. Must never be
called from a coroutine: that would block the loop that the coroutine runs on.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""The loops by process id: after a fork the parent's thread does not exist in the child."""


def start_blocking(coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
    """Start the coroutine in the private loop, without waiting for its result."""
    return asyncio.run_coroutine_threadsafe(coroutine, _private_loop())


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine in the private loop, and wait for its result."""
    future = start_blocking(coroutine)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _private_loop() -> asyncio.AbstractEventLoop:
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = asyncio.new_event_loop()
            _loops[os.getpid()] = loop
            threading.Thread(
                target=loop.run_forever, name="holdfast-keyed-state", daemon=True
            ).start()
        return loop


def _unlock_in_child() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_in_child)
