"""Many small reads in parallel, a bounded number at a time.

Owns the bound. Must never reorder: results are in the order of their items.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

AT_ONCE = 32

T = TypeVar("T")
U = TypeVar("U")


async def each(
    call: Callable[[T], Awaitable[U]], items: Iterable[T], *, at_once: int = AT_ONCE
) -> list[U]:
    """Return the results of a call for each item. The first error ends it."""
    listed = list(items)
    results: list[U] = []
    for start in range(0, len(listed), at_once):
        part = listed[start : start + at_once]
        results.extend(await asyncio.gather(*(call(item) for item in part)))
    return results
