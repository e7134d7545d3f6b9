"""The list of groups for ListGroups, made once for all requests that wait for it.

Owns the list that is being made. Must never answer a request from a list that was begun before the
request came: it may miss a group that the client has just made.
"""

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.list_groups import ListedGroup

Listed = list[ListedGroup] | ErrorCode
Make = Callable[[], Awaitable[Listed]]


class GroupLists:
    """Lists of groups: one is made at a time, and the next one serves all waiting requests."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._next: asyncio.Future[Listed] | None = None

    async def list_groups(self, make: Make) -> Listed:
        """Return a list that was begun after this call. Callers share it and must not change it."""
        if self._next is not None:
            return await asyncio.shield(self._next)
        promised = self._next = asyncio.get_running_loop().create_future()
        try:
            async with self._turn:
                self._next = None
                found = await make()
        except BaseException:
            promised.cancel()
            raise
        finally:
            if self._next is promised:
                self._next = None
        promised.set_result(found)
        return found
