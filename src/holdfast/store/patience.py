"""Waiting for a store that does not answer: the one place that says how long and how often.

Owns the back-off. Only for calls that may be repeated freely; others are in put_if_absent.
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
"""How often a corrupt answer is read before the object itself counts as corrupt."""


def backoff_s(tries: int, environment: Environment) -> float:
    """Return the pause after `tries` failures: doubled, capped, with jitter to spread callers."""
    pause = min(BACKOFF_LAST_S, BACKOFF_FIRST_S * 2 ** min(tries, 16))
    return pause * (0.5 + environment.random().random() / 2)


async def patiently(
    operation: Callable[[], Awaitable[T]],
    *,
    environment: Environment,
    give_up_after_s: float | None = None,
) -> T:
    """Repeat an idempotent call until the store answers. Repeat a corrupt read only a few times."""
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
