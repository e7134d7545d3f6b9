"""Answers that leave when something else is done, with no task for each.

For requests that come by the thousand, where a task and a wait for each one cost more than what the
request asks for.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

FirstT = TypeVar("FirstT")
ThenT = TypeVar("ThenT")


def then(
    first: asyncio.Future[FirstT],
    make: Callable[[asyncio.Future[FirstT]], ThenT],
    *,
    timeout_s: float | None = None,
) -> asyncio.Future[ThenT]:
    """What `make` says of the first future once it is done, or when the time is up.

    The first one may be shared: nothing that happens to the second one reaches it.
    """
    loop = first.get_loop()
    second: asyncio.Future[ThenT] = loop.create_future()

    def settle(_: Any = None) -> None:
        if timer is not None:
            timer.cancel()
        if second.done():
            return
        try:
            second.set_result(make(first))
        except Exception as error:
            second.set_exception(error)

    timer = loop.call_later(timeout_s, settle) if timeout_s is not None else None
    first.add_done_callback(settle)
    return second
