"""Waiting for a store that does not answer now: the one place that says how long and how often.

Owns back-off. Reads may be repeated freely; what must not be repeated freely is in put_if_absent.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.environment import Environment
from holdfast.errors import CorruptObject, StoreUnavailable

T = TypeVar("T")

BACKOFF_FIRST_S = 0.05
BACKOFF_LAST_S = 5.0
CORRUPT_READS_MAX = 8
"""A mangled answer is read again this often before the object itself is held to be corrupt."""


def backoff_s(tries: int, environment: Environment) -> float:
    """The pause after `tries` failures: doubling, capped, with jitter so that a herd spreads."""
    pause = min(BACKOFF_LAST_S, BACKOFF_FIRST_S * 2 ** min(tries, 16))
    return pause * (0.5 + environment.random().random() / 2)


async def patiently(
    operation: Callable[[], Awaitable[T]],
    *,
    environment: Environment,
    give_up_after_s: float | None = None,
) -> T:
    """Repeat a read until the store answers; a mangled answer is read again a few times."""
    started = environment.monotonic()
    tries = corrupt = 0
    while True:
        try:
            return await operation()
        except StoreUnavailable:
            waited = environment.monotonic() - started
            if give_up_after_s is not None and waited >= give_up_after_s:
                raise
        except CorruptObject:
            corrupt += 1
            if corrupt >= CORRUPT_READS_MAX:
                raise
            await asyncio.sleep(backoff_s(0, environment))
            continue
        await asyncio.sleep(backoff_s(tries, environment))
        tries += 1
