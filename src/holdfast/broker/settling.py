"""Responses that leave when a future is done, without a task for each.

This is for requests that come by the thousand: a task and a wait for each would cost more than the
request's own work.
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
    """Return a future of `make(first)`, made once `first` is done or the time is up.

    `first` may be shared: nothing that happens to the returned future reaches it.
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
